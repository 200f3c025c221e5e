"""Is nothing chosen on test images, and is every figure what it is called and every image what its label says?"""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from test_linear import QUIET, Pooled, colours
from torch import nn

from logo_ssl.data import Batches, ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import Extraction, mocos_sgd
from logo_ssl.eval.encoders import FrozenEncoder, load_encoder
from logo_ssl.eval.linear import linear
from logo_ssl.eval.transfer import SETS, transfer
from logo_ssl.probes import SGDProbes

PROTOCOLS = ["sgd", "sgd-augmented", "lbfgs"]


@pytest.fixture
def encoder() -> FrozenEncoder:
    return FrozenEncoder("pooled", Pooled().eval(), (0.5,) * 3, (0.25,) * 3, 8, "pooled")


def poisoned(split: Split) -> Split:
    """Every label is wrong."""
    return Split(split.images, (split.labels + 1) % 3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_test_labels_change_neither_choice_nor_classifier(
    encoder: FrozenEncoder, tmp_path: Path, protocol: str
) -> None:
    test, records, figures = colours(30, 1), [], []
    for split in (test, poisoned(test)):
        data, out = ImageSet("colours", colours(60, 0), split), tmp_path / "linear.json"
        figures.append(dict(linear(encoder, data, QUIET, protocol=protocol, epochs=5, out=out)))
        records.append(json.loads(out.read_text()))
    for chosen in ("validation", "l2_weight" if protocol == "lbfgs" else "lr"):
        assert records[0][chosen] == records[1][chosen]
    assert figures[0][f"linear top-1, {protocol}"] > 95
    assert figures[1][f"linear top-1, {protocol}"] < 5


def unbalanced(n: int, seed: int) -> Split:
    """Five images of the first two classes for every one of the third."""
    split = colours(n, seed)
    rows = torch.arange(n)
    return split[(split.labels < 2) | (rows % 5 == 0)]


def test_wrong_test_labels_do_not_change_what_transfer_chooses(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, records = colours(30, 1), []
    for split in (test, poisoned(test)):
        data = ImageSet("colours", unbalanced(90, 0), split)
        monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size, data=data: data)
        list(transfer(encoder, ["pets"], QUIET, out=tmp_path / "t.json"))
        records.append(json.loads((tmp_path / "t-pets.json").read_text()))
    assert (records[0]["validation"], records[0]["l2_weight"]) == (records[1]["validation"], records[1]["l2_weight"])
    assert records[0]["value"] > 95
    assert records[1]["value"] < 5


def test_each_set_is_chosen_and_scored_by_its_own_figure(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third class is rare; in the test its images are said to be of the second, and in validation none is found."""
    test = unbalanced(90, 1)
    few, many = (int((test.labels == label).sum()) for label in (2, 1))
    data = ImageSet("colours", unbalanced(90, 0), Split(test.images, test.labels.clamp(max=1)))
    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size: data)
    measured = transfer(encoder, list(SETS), QUIET, out=tmp_path / "t.json")
    figures = {str(metric): value for metric, value in measured}
    per_class = {"pets", "flowers", "caltech101", "aircraft"}
    assert figures.keys() == {f"{name} {'mean per class' if name in per_class else 'top-1'}" for name in SETS}
    assert figures["cars top-1"] == pytest.approx(100 * 2 * many / (2 * many + few))
    assert figures["pets mean per class"] == pytest.approx(100 * (1 + many / (many + few)) / 2)
    for name, strongest in (("pets", 100 * 2 / 3), ("cars", 100 * 12 / 13)):  # of 6, 6 and 1 images
        validation = json.loads((tmp_path / f"t-{name}.json").read_text())["validation"]
        assert validation["100000.0"] == pytest.approx(strongest)


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
    said: list[str] = []
    how = replace(QUIET, say=said.append)
    assert len(dict(linear(encoder, data, how, protocol="sgd-augmented", epochs=2))) == 1
    assert sweep | chosen == {*range(30)} - {6}
    assert not sweep & chosen
    assert any(sentence.startswith("1 of 30 training images cannot be read and is left out: ") for sentence in said)


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

    monkeypatch.setattr(mocos_sgd, "Batches", Failing)
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
def test_a_set_too_small_to_choose_by_is_refused(encoder: FrozenEncoder, tmp_path: Path, protocol: str) -> None:
    data, out = ImageSet("few", colours(3, 0), colours(30, 1)), tmp_path / "x.json"
    with pytest.raises(UserError, match=r"^No class of few has 2 images to train on"):
        list(linear(encoder, data, QUIET, protocol=protocol, out=out))
    with pytest.raises(UserError, match=r"^No class of few has 3 images"):
        list(linear(encoder, ImageSet("few", colours(6, 0)), QUIET, protocol=protocol, out=out))
    assert not out.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_grey_arrays_fill_the_channels_of_any_protocol(encoder: FrozenEncoder, protocol: str) -> None:
    grey = [Split(split.array[:, :1], split.labels) for split in (colours(60, 0), colours(30, 1))]
    figures = dict(linear(encoder, ImageSet("grey", *grey), QUIET, protocol=protocol, epochs=5))
    assert figures[f"linear top-1, {protocol}"] > 50
    two = [Split(split.array[:, :2], split.labels) for split in (colours(60, 0), colours(30, 1))]
    with pytest.raises(UserError, match="sees images of 3 channels, and these have 2"):
        list(linear(encoder, ImageSet("two", *two), QUIET, protocol=protocol))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(encoder: FrozenEncoder) -> None:
    data, how = ImageSet("colours", colours(60, 0), colours(30, 1)), Extraction(device="cuda", cache=False)
    with pytest.raises(UserError, match="device is 'cuda', which this machine does not have"):
        list(linear(encoder, data, how))


def test_every_crop_of_an_epoch_counts(encoder: FrozenEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths, step = list[int](), SGDProbes.step

    def stepped(self, features, labels, decay=1.0):
        lengths.append(len(labels))
        step(self, features, labels, decay)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    data = ImageSet("colours", colours(300, 0), colours(30, 1))
    list(linear(encoder, data, QUIET, protocol="sgd-augmented", epochs=1, rates=(0.1, 1.0)))
    assert lengths == [240, 256, 44]


def test_workers_end_when_training_on_crops_fails(
    encoder: FrozenEncoder, greys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = list[bool]()
    monkeypatch.setattr("logo_ssl.data.loader.RaggedFeed.close", lambda self: closed.append(True), raising=False)
    monkeypatch.setattr("logo_ssl.data.loader.SentFeed.close", lambda self: closed.append(True))

    def broken(self, features, labels, decay=1.0):
        raise KeyboardInterrupt

    monkeypatch.setattr(SGDProbes, "step", broken)
    data = load_data(str(greys), 8)
    with pytest.raises(KeyboardInterrupt):
        list(linear(encoder, data, QUIET, protocol="sgd-augmented"))
    assert closed


@pytest.mark.parametrize("protocol", ["sgd", "sgd-augmented"])
def test_a_last_classifier_that_diverges_is_refused(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    step, out = SGDProbes.step, tmp_path / "x.json"

    def stepped(self, features, labels, decay=1.0):
        step(self, features, labels, decay if len(self.rates) > 1 else math.inf)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    with pytest.raises(UserError, match="the best on validation, diverged on all of train; use lbfgs"):
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


def test_progress_of_transfer_is_shown(encoder: FrozenEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ImageSet("colours", colours(60, 0), colours(30, 1))
    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size: data)
    seen: dict[str, tuple[int, int]] = {}
    how = replace(QUIET, progress=lambda what, done, total: seen.update({what: (done, total)}))
    list(transfer(encoder, ["pets"], how))
    assert seen["Pets, L2 weights"] == (45, 45)


def test_a_real_encoder_goes_through_every_protocol() -> None:
    encoder, data = load_encoder("random/tiny", size=16), ImageSet("colours", colours(30, 0), colours(30, 1))
    for protocol in PROTOCOLS:
        assert len(list(linear(encoder, data, QUIET, protocol=protocol, epochs=1))) == 1
