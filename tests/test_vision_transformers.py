"""Vision transformers: crops, starts, evaluations and exports of other sizes; features, drop path, attention."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import logo_ssl
from logo_ssl.data import load_data
from logo_ssl.encoders import load_encoder
from logo_ssl.errors import UserError
from logo_ssl.frameworks import DINOConfig
from logo_ssl.models import build_backbone
from logo_ssl.models.backbones import class_attention
from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.page import page
from logo_ssl.train import build

VIT, SIZE, OTHER = "timm/test_vit", 32, 64  # patches of 16 px
CHANGES = {
    **{"backbone": VIT, "pooling": "mean", "drop_path": 0.1, "crops__global_size": SIZE, "crops__local_size": 16},
    **{"framework": "dino", "framework__batch_norm": False, "framework__hidden": 16, "framework__out_dim": 32},
    **{"optimiser__kind": "adamw", "optimiser__lr": 1e-3, "optimiser__weight_decay_end": 0.4},
    **{"optimiser__layer_decay": 0.75, "optimiser__clip": 3.0},
    **{"epochs": 1, "batch_size": 16, "loggers": (), "device": "cpu"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("transformers")


@pytest.fixture(scope="module")
def run(folder):
    """A transformer that was trained for two steps."""
    pixels, labels = np.random.default_rng(0).integers(0, 256, (48, SIZE, SIZE, 3), np.uint8), np.arange(48) % 2
    train, test = {"train_images": pixels[:32], "train_labels": labels[:32]}, {"test_images": pixels[32:]}
    np.savez(folder / "data.npz", **train, **test, test_labels=labels[32:])
    return logo_ssl.pretrain("tiny", folder / "run", data=folder / "data.npz", **CHANGES)


def noise(size, n=2):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def resampled(pos_embed, side):
    """Position embeddings of a class token and a square of patches, for a square of another side."""
    old = round((pos_embed.shape[1] - 1) ** 0.5)
    grid = pos_embed[:, 1:].unflatten(1, (old, old)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, (side, side), mode="bicubic", antialias=True)
    return torch.cat([pos_embed[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def test_local_crops_have_resampled_positions_when_compiled_and_in_bfloat16_too():
    backbone, small = build_backbone(VIT, size=OTHER).eval(), build_backbone(VIT, size=SIZE).eval()
    small.load_state_dict(backbone.state_dict() | {"pos_embed": resampled(backbone.pos_embed, 2)})
    expected = small(noise(SIZE))
    torch.testing.assert_close(backbone(noise(SIZE)), expected)
    backbone.compile(backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(backbone(noise(SIZE)), expected)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(backbone(noise(SIZE)).float(), expected, rtol=0.1, atol=0.1)


def test_features_are_the_class_token_or_the_mean_of_the_patches_of_the_same_weights():
    token, mean = (build_backbone(VIT, size=SIZE, pooling=pooling).eval() for pooling in ("token", "mean"))
    mean.load_state_dict(token.state_dict())
    tokens = token.forward_features(noise(SIZE))
    torch.testing.assert_close(token(noise(SIZE)), tokens[:, 0])
    torch.testing.assert_close(mean(noise(SIZE)), tokens[:, 1:].mean(dim=1))


@pytest.mark.parametrize(
    ("name", "option"), [("resnet18", {"pooling": "mean"}), ("tiny", {"drop_path": 0.1}),
                         ("timm/test_efficientnet", {"pooling": "token"})]
)  # fmt: skip
def test_networks_without_class_token_or_drop_path_refuse_these(name, option):
    with pytest.raises(UserError, match=next(iter(option))):
        build_backbone(name, **option)


def test_the_teacher_drops_no_paths():
    framework = DINOConfig(dim=8, hidden=16, out_dim=5).build(build_backbone(VIT, size=SIZE, drop_path=0.9), 64)
    student, teacher = framework.encoder.backbone.train(), framework.momentum_encoder.backbone.train()
    assert not torch.equal(student(noise(SIZE)), student(noise(SIZE)))
    assert torch.equal(teacher(noise(SIZE)), teacher(noise(SIZE)))


def test_a_run_is_evaluated_and_exported_at_another_size_with_features_of_its_own(run, folder):
    trained, encoder = logo_ssl.load(run.path), logo_ssl.load(run.path, size=OTHER)
    expected = trained.forward_features(noise(OTHER))[:, 1:].mean(dim=1).detach()  # of this size for one batch
    torch.testing.assert_close(encoder(noise(OTHER)).detach(), expected)
    for target, suffix in {"timm": ".safetensors", "safetensors": ".safetensors", "hf": "", "onnx": ".onnx"}.items():
        exported = logo_ssl.export(encoder, target, folder / f"exported-{target}{suffix}")
        names = {}
        exec(exported.snippet, names)
        apart = (names["encoder"](noise(OTHER)).detach() - expected).abs().max() / expected.abs().max()
        assert apart < 1e-4, target


def test_knn_of_a_run_works_at_another_size_and_compares_with_the_same_features_before_training(run, shell):
    code, out, _ = shell(f"eval knn {run.path} --size {OTHER} --device cpu")
    assert (code, "untrained" in out) == (0, True)


def test_a_run_of_another_size_begins_with_resampled_positions_and_all_other_weights(run, folder):
    recipe = find_recipe("tiny").changed(**CHANGES | {"crops__global_size": OTHER, "init": str(run.path)})
    begun = build(recipe, load_data(str(folder / "data.npz"), OTHER)).framework.encoder.backbone.state_dict()
    weights = load_file(run.backbone_file)
    weights["pos_embed"] = resampled(weights["pos_embed"], OTHER // 16)
    assert begun.keys() == weights.keys()
    for name, value in weights.items():
        torch.testing.assert_close(begun[name], value, msg=name)


def test_an_unfinished_run_has_the_features_of_its_recipe(run, folder, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / run.backbone_file.name).unlink()
    torch.testing.assert_close(logo_ssl.load(tmp_path / "run")(noise(SIZE)), logo_ssl.load(run.path)(noise(SIZE)))


def test_attention_is_what_the_last_block_computes(run):
    backbone, kept = load_encoder(str(run.path)).backbone, []
    attn = backbone.blocks[-1].attn
    attn.fused_attn = False
    attn.attn_drop.register_forward_hook(lambda module, inputs, output: kept.append(output))
    backbone(noise(OTHER))
    torch.testing.assert_close(class_attention(backbone, noise(OTHER)), kept[0][:, :, 0, 1:].unflatten(-1, (4, 4)))


def test_the_page_shows_attention_if_the_class_token_is_the_feature(run, folder):
    tokens = logo_ssl.pretrain("tiny", folder / "tokens", data=folder / "data.npz", **CHANGES | {"pooling": "token"})
    convolutions = CHANGES | {"backbone": "tiny", "pooling": "default", "drop_path": 0.0, "optimiser__layer_decay": 1.0}
    other = logo_ssl.pretrain("tiny", folder / "other", data=folder / "data.npz", **convolutions)
    shown = [page(RunCollector(crops=False, images=8, device="cpu").collect([each])) for each in (tokens, run, other)]
    assert ['id="attention"' in each for each in shown] == [True, False, False]
    assert "head 2" in shown[0]
