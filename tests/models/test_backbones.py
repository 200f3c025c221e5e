import copy
import random

import pytest
import safetensors
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from logo_ssl.errors import UserError
from logo_ssl.models import BatchNorm, build_backbone, draw_as_torch_does
from logo_ssl.models.backbones import load_weights, plain_weights, weight_bytes


@pytest.mark.parametrize(
    ("name", "stem", "size", "n_features"),
    [
        ("tiny", "cifar", 32, 256),
        ("small-alexnet", "imagenet", 64, 4096),
        ("resnet18", "cifar", 32, 512),
        ("resnet34", "imagenet", 64, 512),
        ("resnet50", "imagenet", 64, 2048),
        ("timm/vit_tiny_patch16_224", "imagenet", 224, 192),
        ("timm/mobilenetv3_small_050", "imagenet", 64, 1024),
    ],
)
def test_every_backbone_gives_features_of_the_width_it_says(name, stem, size, n_features):
    backbone = build_backbone(name, stem, 3, size).eval()
    assert backbone.num_features == n_features
    for side in (size, size // 2 if "vit" not in name else 96):  # local crops are smaller
        assert backbone(torch.randn(2, 3, side, side)).shape == (2, n_features)


@pytest.mark.parametrize("channels", [1, 5])
@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_images_may_have_any_number_of_channels(channels, stem):
    assert build_backbone("resnet18", stem, channels).eval()(torch.randn(2, channels, 32, 32)).shape == (2, 512)


def test_a_resnet_with_imagenet_stem_loads_into_torchvision():
    theirs = torchvision.models.resnet18()
    theirs.fc = torch.nn.Identity()
    ours = build_backbone("resnet18")
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(theirs.eval()(x), ours.eval()(x))


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(UserError, match=r"'resnet81'.*Did you mean resnet18"):
        build_backbone("resnet81")
    with pytest.raises(UserError, match=r"timm has no model 'resnet18x'.*Did you mean"):
        build_backbone("timm/resnet18x")


def test_initial_weights_are_matched_by_name_and_shape():
    source, target = build_backbone("resnet18"), build_backbone("resnet18", "cifar")
    assert load_weights(target, source.state_dict() | {"fc.weight": torch.zeros(3)}) == ["conv1.weight"]
    assert torch.equal(target.layer1[0].conv1.weight, source.layer1[0].conv1.weight)


@pytest.mark.parametrize(("theirs", "ours"), [(3, 1), (3, 2), (3, 5), (1, 3), (5, 3)])
def test_images_without_colours_give_the_same_whatever_channels_the_weights_were_for(theirs, ours, random):
    source, target = (build_backbone("tiny", channels=channels).double().eval() for channels in (theirs, ours))
    assert load_weights(target, source.state_dict()) == []
    grey = random(2, 1, 32, 32)
    torch.testing.assert_close(target(grey.expand(-1, ours, -1, -1)), source(grey.expand(-1, theirs, -1, -1)))


def test_larger_patches_give_what_the_weights_gave_of_smaller_ones(random):
    small, large = (nn.Sequential(nn.Conv2d(3, 7, side, side)) for side in (8, 16))
    load_weights(large, small.state_dict())
    patch = random(2, 3, 8, 8).float()
    enlarged = F.interpolate(patch, (16, 16), mode="bicubic", antialias=True)
    torch.testing.assert_close(large(enlarged), small(patch), rtol=1e-4, atol=1e-4)


def test_torchs_default_begins_with_another_square_norm_by_channels():
    backbone = build_backbone("resnet18", "cifar")
    convolutions = [module for module in backbone.modules() if isinstance(module, torch.nn.Conv2d)]
    before = [module.weight.square().sum().item() for module in convolutions]
    draw_as_torch_does(backbone)
    ratios = [norm / module.weight.square().sum().item() for norm, module in zip(before, convolutions, strict=True)]
    assert ratios == pytest.approx([6 * c.in_channels / c.out_channels for c in convolutions], rel=0.15)


def test_smaller_weights_before_our_batch_norm_are_a_larger_rate_and_a_smaller_decay():
    """Weights of 1 / sqrt(6), trained by (lr, decay), stay 1 / sqrt(6) of those trained by (6 lr, decay / 6)."""
    large = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), BatchNorm(8, eps=1e-20, affine=False)).double()
    small = copy.deepcopy(large)
    with torch.no_grad():
        small[0].weight.mul_(6**-0.5)
    generator = torch.Generator().manual_seed(0)
    crops, target = (torch.randn(4, c, s, s, generator=generator, dtype=torch.float64) for c, s in ((3, 8), (8, 6)))
    for network, lr, decay in ((large, 6 * 0.06, 1e-2 / 6), (small, 0.06, 1e-2)):
        optimiser = torch.optim.SGD(network.parameters(), lr, momentum=0.9, weight_decay=decay)
        for _ in range(10):
            optimiser.zero_grad()
            ((network(crops) - target) ** 3).mean().backward()
            optimiser.step()
    torch.testing.assert_close(small[0].weight, large[0].weight * 6**-0.5)


def test_position_embeddings_are_resampled_for_another_size_and_no_other_weight_changes():
    torch.manual_seed(0)
    large, small = (build_backbone("timm/vit_tiny_patch16_224", size=size) for size in (224, 96))
    assert load_weights(small, large.state_dict()) == []
    grid = large.pos_embed[:, 1:].unflatten(1, (14, 14)).permute(0, 3, 1, 2)
    resized = F.interpolate(grid, (6, 6), mode="bicubic", antialias=True).permute(0, 2, 3, 1).flatten(1, 2)
    torch.testing.assert_close(small.pos_embed, torch.cat([large.pos_embed[:, :1], resized], dim=1))
    assert torch.equal(small.blocks[0].attn.qkv.weight, large.blocks[0].attn.qkv.weight)


def test_the_same_weights_are_the_same_bytes_in_whatever_order_they_tell_of_themselves():
    weights = plain_weights(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).state_dict())
    told = [(f"key{i}", f'"é\n{i}') for i in range(20)]
    contents = {weight_bytes(weights, dict(random.Random(seed).sample(told, len(told)))) for seed in range(5)}
    assert len(contents) == 1


def test_the_file_is_what_the_library_reads(tmp_path):
    weights = plain_weights(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)).state_dict())
    file = tmp_path / "w.safetensors"
    file.write_bytes(weight_bytes(weights, {"b": "ü", "a": "1"}))
    read = safetensors.torch.load_file(file)
    assert read.keys() == weights.keys()
    assert all(torch.equal(read[name], value) for name, value in weights.items())
    with safetensors.safe_open(file, framework="pt") as opened:
        assert opened.metadata() == {"a": "1", "b": "ü"}
