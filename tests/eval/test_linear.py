"""Linear classifiers give the figures of the features, and nothing is chosen on test images."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_sets import QUIET, Pooled, colours, poisoned
from torch import nn

from logo_ssl.data import Batches, ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import linear as linear_module
from logo_ssl.eval import splits as splits_module
from logo_ssl.eval.encoder import FrozenEncoder, load_encoder
from logo_ssl.eval.knn import knn
from logo_ssl.eval.linear import at_edge, linear
from logo_ssl.eval.options import Extraction
from logo_ssl.eval.sgd_probe import SGDProbes
from logo_ssl.eval.splits import split_rows_of

PROTOCOLS = ["sgd", "sgd-augmented", "lbfgs"]


@pytest.fixture
def encoder() -> FrozenEncoder:
    return FrozenEncoder("pooled", Pooled().eval(), (0.5,) * 3, (0.25,) * 3, 8, "pooled")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_separable_features_are_separated_and_recorded(encoder: FrozenEncoder, tmp_path: Path, protocol: str) -> None:
    data = ImageSet("colours", colours(60, 0), colours(30, 1), ("r", "g", "b"))
    out = tmp_path / "linear.json"
    figures = dict(linear(encoder, data, QUIET, protocol=protocol, epochs=15, out=out))
    assert figures[f"linear top-1, {protocol}"] > 95
    record = json.loads(out.read_text())
    assert {"protocol", "validation", "commit", "hardware", "fingerprint", "train_images"} <= record.keys()
    assert record["train_images"] == 60
    again = linear(encoder, data, QUIET, protocol=protocol, epochs=15, out=out, overwrite=True)
    assert dict(again) == figures


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_validation_images_beside_a_test_choose(encoder, tmp_path: Path, protocol: str, monkeypatch) -> None:
    """Then they are learned from as well; nearest neighbours, which choose nothing, know train alone."""
    train, test, val = (colours(n, seed) for seed, n in enumerate((60, 30, 12)))
    data, out, chosen_by = ImageSet("colours", train, test, ("r", "g", "b"), val), tmp_path / "linear.json", []

    def noted(*given):
        chosen_by.append((parts := split_rows_of(*given)).val.labels)
        return parts

    monkeypatch.setattr(splits_module, "split_rows_of", noted)
    list(linear(encoder, data, QUIET, protocol=protocol, epochs=5, out=out))
    record = json.loads(out.read_text())
    assert chosen_by[0].equal(val.labels)
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 12, 72)
    assert record["data_fingerprint"].keys() == {"train", "val", "test"}
    assert "chosen on the validation split, then trained on train and validation" in record["protocol"]
    list(knn(encoder, data, QUIET, protocols=[(5, 0.1)], out=tmp_path / "knn.json"))
    counts = json.loads((tmp_path / "knn.json").read_text())
    assert (counts["train_images"], counts["test_images"]) == (60, 30)


def test_photographs_of_val_are_joined_to_those_of_train(encoder, tmp_path: Path) -> None:
    for part_, seed in (("train", 0), ("val", 1), ("test", 2)):
        for i, pixels in enumerate(colours(24, seed).array.permute(0, 2, 3, 1).numpy()):
            file = tmp_path / "set" / part_ / "rgb"[i % 3] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    (tmp_path / "set" / "val" / "r" / "0.png").write_bytes(b"")
    how = Extraction(device="cpu", workers=0, cache=False, max_bad=0.9)
    data, out = load_data(str(tmp_path / "set"), 8), tmp_path / "linear.json"
    list(linear(encoder, data, how, protocol="sgd-augmented", epochs=2, out=out))
    record = json.loads(out.read_text())
    assert (record["val_images"], record["train_images"], record["unreadable_count"]) == (23, 47, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_test_labels_change_neither_choice_nor_classifier(
    encoder: FrozenEncoder, tmp_path: Path, protocol: str
) -> None:
    test, records, figures = colours(30, 1), [], []
    for split in (test, poisoned(test)):
        data, out = ImageSet("colours", colours(60, 0), split), tmp_path / "linear.json"
        figures.append(dict(linear(encoder, data, QUIET, protocol=protocol, epochs=5, out=out, overwrite=True)))
        records.append(json.loads(out.read_text()))
    for chosen in ("validation", "l2_weight" if protocol == "lbfgs" else "lr"):
        assert records[0][chosen] == records[1][chosen]
    assert figures[0][f"linear top-1, {protocol}"] > 95
    assert figures[1][f"linear top-1, {protocol}"] < 5


class Watched(nn.Module):
    """Mean colours behind a batch norm, with a note of the mode of every pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.modes = nn.BatchNorm2d(3), list[bool]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return self.norm(x).mean(dim=(2, 3))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_backbone_stays_in_eval_mode(protocol: str) -> None:
    backbone = Watched().eval()
    encoder = FrozenEncoder("watched", backbone, (0.5,) * 3, (0.25,) * 3, 8, "watched")
    list(linear(encoder, ImageSet("colours", colours(60, 0), colours(30, 1)), QUIET, protocol=protocol, epochs=2))
    assert backbone.modes
    assert not any(backbone.modes)
    assert backbone.norm.running_mean.equal(torch.zeros(3))


@pytest.fixture
def greys(tmp_path: Path) -> Path:
    """30 images, each of a grey of its own, in three class folders; number 6, of the first class, cannot be read."""
    for i in range(30):
        file = tmp_path / "greys" / "abc"[i % 3] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12 + i % 2, 12, 3), 8 * i, np.uint8)).save(file)
    (tmp_path / "greys" / "a" / "06.png").write_bytes(b"nothing")
    return tmp_path / "greys"


def numbers(features: torch.Tensor) -> list[int]:
    """Which of the greys these features are of."""
    return ((features[:, 0] * 0.25 + 0.5) * 255 / 8).round().int().tolist()


def test_an_unreadable_image_neither_lends_its_label_nor_leaks_validation(
    encoder: FrozenEncoder, greys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, chosen = set[int](), set[int]()
    step, select = SGDProbes.step, SGDProbes.select

    def stepped(self, features, labels, decay=1.0):
        assert [i % 3 for i in numbers(features)] == labels.tolist()
        if len(self.rates) > 1:
            sweep.update(numbers(features))
        step(self, features, labels, decay)

    def selected(self, val):
        chosen.update(numbers(val.features))
        return select(self, val)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    monkeypatch.setattr(SGDProbes, "select", selected)
    data = load_data(str(greys), 8)
    data = replace(data, test=data.train[torch.tensor([11, 12, 25])])
    assert len(dict(linear(encoder, data, QUIET, protocol="sgd-augmented", epochs=2))) == 1
    assert sweep | chosen == {*range(30)} - {6}
    assert not sweep & chosen


def test_a_grey_image_in_place_of_one_that_cannot_be_read_teaches_nothing(
    encoder: FrozenEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths, step = list[int](), SGDProbes.step

    class Failing(Batches):
        """Every fifth image of an epoch cannot be read; of the last, smaller batch none can."""

        def __iter__(self):
            for batch in super().__iter__():
                lost = torch.arange(len(batch.rows)) % 5 == 0 if len(batch.rows) > 44 else True
                yield batch._replace(rows=torch.where(torch.as_tensor(lost), -1, batch.rows))

    def stepped(self, features, labels, decay=1.0):
        assert (features.argmax(dim=1) == labels).all()
        lengths.append(len(labels))
        step(self, features, labels, decay)

    monkeypatch.setattr(linear_module, "Batches", Failing)
    monkeypatch.setattr(SGDProbes, "step", stepped)
    data = ImageSet("colours", colours(300, 0), colours(30, 1))
    list(linear(encoder, data, QUIET, protocol="sgd-augmented", epochs=1, rates=(0.1, 1.0)))
    assert lengths == [192, 204]


def test_without_a_test_split_random_crops_never_show_the_held_out_fifth(
    encoder: FrozenEncoder, greys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, step = set[int](), SGDProbes.step

    def stepped(self, features, labels, decay=1.0):
        seen.update(numbers(features))
        step(self, features, labels, decay)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    figures = dict(linear(encoder, load_data(str(greys), 8), QUIET, protocol="sgd-augmented", epochs=1))
    assert len(figures) == 1
    assert len({*range(30)} - {6} - seen) == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_grey_arrays_fill_the_channels_of_any_protocol(encoder: FrozenEncoder, protocol: str) -> None:
    grey = [Split(split.array[:, :1], split.labels) for split in (colours(60, 0), colours(30, 1))]
    figures = dict(linear(encoder, ImageSet("grey", *grey), QUIET, protocol=protocol, epochs=5))
    assert figures[f"linear top-1, {protocol}"] > 50
    two = [Split(split.array[:, :2], split.labels) for split in (colours(60, 0), colours(30, 1))]
    with pytest.raises(UserError, match="3 channels, and these images have 2"):
        list(linear(encoder, ImageSet("two", *two), QUIET, protocol=protocol))


def test_every_crop_of_an_epoch_counts(encoder: FrozenEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, step = list[int](), SGDProbes.step

    def stepped(self, features, labels, decay=1.0):
        lengths.append(len(labels))
        step(self, features, labels, decay)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    data = ImageSet("colours", colours(300, 0), colours(30, 1))
    list(linear(encoder, data, QUIET, protocol="sgd-augmented", epochs=1, rates=(0.1, 1.0)))
    assert lengths == [240, 256, 44]


@pytest.mark.parametrize("protocol", ["sgd", "sgd-augmented"])
def test_a_last_classifier_that_diverges_is_refused(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    step, out = SGDProbes.step, tmp_path / "x.json"

    def stepped(self, features, labels, decay=1.0):
        step(self, features, labels, decay if len(self.rates) > 1 else math.inf)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    with pytest.raises(UserError, match="diverged on all of train"):
        list(linear(encoder, data, QUIET, protocol=protocol, epochs=2, out=out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("protocol", "steps"),
    [
        ("lbfgs", {"L2 weights": (45, 45)}),
        ("sgd", {"epochs of all learning rates": (3, 3), "epochs of the last classifier": (3, 3)}),
        ("sgd-augmented", {"epochs of all learning rates": (3, 3), "epochs of the last classifier": (3, 3)}),
    ],
)
def test_progress_is_shown(encoder: FrozenEncoder, protocol: str, steps: dict[str, tuple[int, int]]) -> None:
    seen: dict[str, tuple[int, int]] = {}
    how = replace(QUIET, progress=lambda what, done, total: seen.update({what: (done, total)}))
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    list(linear(encoder, data, how, protocol=protocol, epochs=3))
    assert seen == {"features of training images": (60, 60), "features of test images": (30, 30)} | steps


def test_a_real_encoder_goes_through_every_protocol() -> None:
    encoder, data = load_encoder("random/tiny", size=16), ImageSet("colours", colours(30, 0), colours(30, 1))
    for protocol in PROTOCOLS:
        assert len(list(linear(encoder, data, QUIET, protocol=protocol, epochs=1))) == 1


@pytest.mark.parametrize(
    ("validation", "chosen", "edge"),
    [
        ({1.0: 50.0, 3.0: 60.0, 10.0: 70.0}, 10.0, "largest"),
        ({1.0: 70.0, 3.0: 60.0, 10.0: 50.0}, 1.0, "smallest"),
        ({1.0: 50.0, 3.0: 70.0, 10.0: 60.0}, 3.0, ""),
        ({1.0: 70.0, 3.0: 70.0, 10.0: 50.0}, 1.0, ""),
        ({1.0: 70.0}, 1.0, ""),
    ],
)
def test_a_choice_at_the_edge_of_what_was_tried_is_noticed(validation, chosen, edge) -> None:
    assert at_edge(chosen, validation) == edge
