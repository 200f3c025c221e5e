"""Fine-tuning learns from labels, from any share of them, and leaves the encoder alone."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from small_sets import QUIET, colours
from torch import nn

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import finetune as module
from logo_ssl.eval.encoder import FrozenEncoder, load_encoder, remove_classifier
from logo_ssl.eval.features import labelled_features
from logo_ssl.eval.finetune import finetune


def test_labels_are_learned_from_any_share_and_the_encoder_stays(tmp_path):
    encoder = load_encoder("random/tiny", size=16)
    before = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    out = tmp_path / "finetune.json"
    figures = dict(finetune(encoder, data, QUIET, fractions=(0.2, 1.0), epochs=12, batch_size=30, out=out))
    assert figures["finetune top-1, 100 % of labels (60 images)"] > 80
    assert next(iter(figures)) == "finetune top-1, 20 % of labels (12 images)"
    assert all(torch.equal(value, before[name]) for name, value in encoder.backbone.state_dict().items())
    record = json.loads(out.read_text())
    assert [row["images"] for row in record["results"]] == [12, 60]
    assert [row["batch_size"] for row in record["results"]] == [12, 30]
    assert {"protocol", "commit", "hardware", "fingerprint"} <= record.keys()
    assert record["official_test"]
    assert record["batch_of_tuning"] == 30
    assert "weight decay 0.0001" in record["protocol"]
    list(finetune(encoder, replace(data, test=None), QUIET, epochs=1, out=out, overwrite=True))
    assert not json.loads(out.read_text())["official_test"]


def test_a_tuning_that_diverges_is_told():
    encoder, data = load_encoder("random/tiny", size=16), ImageSet("colours", colours(30, 0), colours(12, 1))
    with pytest.raises(UserError, match=r"lr=1e\+30.* diverged at step \d+"):
        list(finetune(encoder, data, QUIET, epochs=6, lr=1e30))


def of_torchvision() -> nn.Module:
    net = torchvision.models.resnet18(weights=None)
    remove_classifier(net)
    return net


def of_timm() -> nn.Module:
    """A network whose `num_features` are not what it gives."""
    net = timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=0)
    assert net.num_features != net.head_hidden_size
    return net


@pytest.mark.parametrize("build", [of_torchvision, of_timm])
def test_encoders_of_every_library_can_be_tuned(build) -> None:
    encoder = FrozenEncoder("library", build().eval(), (0.5,) * 3, (0.25,) * 3, 32, "library")
    figures = dict(finetune(encoder, ImageSet("colours", colours(12, 0), colours(6, 1)), QUIET, epochs=1))
    assert len(figures) == 1


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FrozenEncoder, Split]]:
    """What was tested, and on which images."""
    seen: list[tuple[FrozenEncoder, Split]] = []

    def spied(encoder, split, how, what):
        seen.append((encoder, split))
        return labelled_features(encoder, split, how, what)

    monkeypatch.setattr(module, "labelled_features", spied)
    return seen


def test_every_layer_of_the_backbone_learns(tested) -> None:
    encoder = load_encoder("random/tiny", size=16)
    list(finetune(encoder, ImageSet("colours", colours(60, 0), colours(30, 1)), QUIET, epochs=2))
    ((tuned, _),) = tested
    before, after = encoder.backbone.state_dict(), tuned.backbone.get_submodule("backbone").state_dict()
    assert before.keys() == after.keys()
    assert [name for name, value in after.items() if value.equal(before[name])] == []


def test_test_images_are_shown_in_small_batches_and_training_repeats() -> None:
    """On a device of its own choosing, the clock would choose among kernels whose sums differ."""
    encoder, batches, clocked = load_encoder("random/tiny", size=16), list[int](), list[bool]()

    def note(network, inputs) -> None:
        if network.training:
            clocked.append(torch.backends.cudnn.benchmark or not torch.backends.cudnn.deterministic)
        else:
            batches.append(len(inputs[0]))

    encoder.backbone.register_forward_pre_hook(note)
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    first = list(finetune(encoder, data, replace(QUIET, batch_size=7), epochs=2))
    assert batches == [1, 7, 7, 7, 7, 2]  # the first asks how wide features are
    assert clocked
    assert not any(clocked)
    assert list(finetune(encoder, data, QUIET, epochs=2)) == first


def test_grey_arrays_fill_the_channels() -> None:
    grey = [Split(split.array[:, :1], split.labels) for split in (colours(30, 0), colours(12, 1))]
    encoder = load_encoder("random/tiny", size=16)
    assert len(list(finetune(encoder, ImageSet("grey", *grey), QUIET, epochs=1))) == 1


def save(folder: Path, split: Split, broken: tuple[int, ...]) -> None:
    for i, (image, label) in enumerate(zip(split.array, split.labels.tolist(), strict=True)):
        file = folder / "rgb"[label] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file)
        if i in broken:
            file.write_bytes(b"")


@pytest.mark.parametrize("with_test", [True, False])
def test_unreadable_images_neither_train_nor_test(tmp_path: Path, tested, with_test: bool) -> None:
    save(tmp_path / "set" / "train", colours(30, 0), broken=(4, 9))
    if with_test:
        save(tmp_path / "set" / "test", colours(12, 1), broken=(2,))
    said: list[str] = []
    out, how = tmp_path / "x.json", replace(QUIET, say=said.append)
    data = load_data(str(tmp_path / "set"), 16)
    list(finetune(load_encoder("random/tiny", size=16), data, how, epochs=1, out=out))
    record, n_test = json.loads(out.read_text()), 11 if with_test else 6
    assert record["results"][0]["images"] == (28 if with_test else 22)
    assert record["test_images"] == len(tested[0][1]) == n_test
    told = " ".join(said)
    assert "2 of 30 training images cannot be read" in told
    assert ("1 of 12 test images cannot be read" in told) == with_test
    assert record["unreadable_images"][:2] == ["train/g/04.png", "train/r/09.png"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_tuning_repeats_and_tests_where_it_trained(tested) -> None:
    encoder = load_encoder("random/resnet18", size=32, stem="cifar")
    data, how = ImageSet("colours", colours(600, 0), colours(90, 1)), replace(QUIET, device="cuda")
    for _ in range(2):
        list(finetune(encoder, data, how, epochs=2))
    one, other = (tuned.backbone.state_dict() for tuned, _ in tested)
    assert all(value.is_cuda and value.equal(other[name]) for name, value in one.items())


def test_shares_of_the_same_images_are_one_row_with_its_true_share(tmp_path: Path) -> None:
    data, out = ImageSet("colours", colours(30, 0), colours(9, 1)), tmp_path / "x.json"
    encoder = load_encoder("random/tiny", size=16)
    figures = dict(finetune(encoder, data, QUIET, fractions=(0.01, 0.1, 0.2), epochs=1, out=out))
    assert list(figures) == [f"finetune top-1, {share} % of labels ({n} images)" for share, n in ((10, 3), (20, 6))]
    rows = json.loads(out.read_text())["results"]
    told = [(row["fraction"], row["fractions_asked"], row["images"]) for row in rows]
    assert told == [(0.1, [0.01, 0.1], 3), (0.2, [0.2], 6)]
