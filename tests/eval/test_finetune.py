"""Fine-tuning learns from labels, from any share of them, and leaves the encoder alone."""

from dataclasses import replace

import pytest
import timm
import torch
import torchvision
from small_sets import QUIET, colour_set, colours, frozen, measured, save_folder
from torch import nn

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.encoders import FrozenEncoder, load_encoder, remove_classifier
from logo_ssl.errors import UserError
from logo_ssl.eval import finetune as module
from logo_ssl.eval.features import labelled_features
from logo_ssl.eval.finetune import FineTune, Semi


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[tuple[FrozenEncoder, Split]]:
    """What was tested, and on which images."""
    seen: list[tuple[FrozenEncoder, Split]] = []

    def spied(encoder, split, how, what):
        seen.append((encoder, split))
        return labelled_features(encoder, split, how, what)

    monkeypatch.setattr(module, "labelled_features", spied)
    return seen


def test_labels_are_learned_from_any_share_by_every_layer_and_the_encoder_stays(tiny, tested) -> None:
    before = {name: value.clone() for name, value in tiny.backbone.state_dict().items()}
    found = measured(Semi, tiny, colour_set(), fractions=(0.2, 1.0), epochs=12, batch_size=30)
    assert found.figures["finetune top-1, 100 % of labels (60 images)"] > 80
    assert next(iter(found.figures)) == "finetune top-1, 20 % of labels (12 images)"
    assert all(torch.equal(value, before[name]) for name, value in tiny.backbone.state_dict().items())
    assert [(row["images"], row["batch_size"]) for row in found.record["results"]] == [(12, 12), (60, 30)]
    assert (found.record["official_test"], found.record["batch_of_tuning"]) == (True, 30)
    assert "weight decay 0.0001" in found.record["protocol"]
    after = tested[-1][0].backbone.get_submodule("backbone").state_dict()
    assert before.keys() == after.keys()
    assert [name for name, value in after.items() if value.equal(before[name])] == []


def test_without_a_test_split_a_fifth_of_the_readable_images_tests(tiny, tmp_path, tested) -> None:
    folder = save_folder(tmp_path / "set", colours(30, 0))
    for name in ("g/04.png", "r/09.png"):
        (folder / name).write_bytes(b"")
    record = measured(FineTune, tiny, load_data(str(folder), 16), epochs=1).record
    assert (record["results"][0]["images"], record["test_images"], record["official_test"]) == (22, 6, False)
    assert len(tested[0][1]) == 6


def test_a_tuning_that_diverges_names_its_rate(tiny) -> None:
    with pytest.raises(UserError, match=r"lr=1e\+30"):
        measured(FineTune, tiny, colour_set(30, 12), epochs=6, lr=1e30)


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
def test_encoders_of_every_library_can_be_tuned_on_grey_images(build) -> None:
    grey = [Split(split.array[:, :1], split.labels) for split in (colours(12, 0), colours(6, 1))]
    assert len(measured(FineTune, frozen(build(), 32), ImageSet("grey", *grey), epochs=1).figures) == 1


def test_shares_of_the_same_images_are_one_row_with_its_true_share(tiny) -> None:
    found = measured(Semi, tiny, colour_set(30, 9), fractions=(0.01, 0.1, 0.2), epochs=1)
    expected = [f"finetune top-1, {share} % of labels ({n} images)" for share, n in ((10, 3), (20, 6))]
    assert list(found.figures) == expected
    assert [(row["fraction"], row["images"]) for row in found.record["results"]] == [(0.1, 3), (0.2, 6)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_tuning_repeats_and_tests_where_it_trained(tested) -> None:
    encoder = load_encoder("random/resnet18", size=32, stem="cifar")
    for _ in range(2):
        measured(FineTune, encoder, colour_set(600, 90), replace(QUIET, device="cuda"), epochs=2)
    one, other = (tuned.backbone.state_dict() for tuned, _ in tested)
    assert all(value.is_cuda and value.equal(other[name]) for name, value in one.items())
