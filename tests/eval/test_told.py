"""What does an evaluation tell beside its figures: whom it left out, what guessing gives, how it ended?"""

import io
import json
import math
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from logo_ssl.data.files import Stamp
from PIL import Image
from rich.console import Console
from rich.progress import Progress
from test_linear import colours

from logo_ssl import cli, terminal
from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.embedding import export
from logo_ssl.errors import UserError
from logo_ssl.eval import Extraction, copies
from logo_ssl.eval.commands import PROTOCOLS
from logo_ssl.eval.encoders import FrozenEncoder, load_encoder
from logo_ssl.eval.finetune import finetune
from logo_ssl.eval.knn import knn
from logo_ssl.eval.linear import linear
from logo_ssl.eval.transfer import transfer
from logo_ssl.train import Pretraining, learning

CLASSIFYING = ("knn", "linear", "transfer", "finetune", "semi")


def shell(capsys, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `logo-ssl eval`."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["eval", *words])
    told = capsys.readouterr()
    return stop.value.code or 0, told.out, told.err


def listening() -> tuple[Extraction, list[str]]:
    said: list[str] = []
    return Extraction(device="cpu", workers=0, cache=False, say=said.append), said


def evaluated(name: str, encoder: FrozenEncoder, data: ImageSet, how: Extraction, out: Path) -> dict[str, float]:
    """The figures of a protocol."""
    match name:
        case "knn":
            return dict(knn(encoder, data, how, protocols=((5, 0.07),), out=out))
        case "linear":
            return dict(linear(encoder, data, how, epochs=1, out=out))
        case _:
            return dict(finetune(encoder, data, how, epochs=1, out=out))


@pytest.fixture
def encoder() -> FrozenEncoder:
    return load_encoder("random/tiny", size=16)


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """Class folders of 30 training and 15 test images."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 30), ("test", 15)):
        for i in range(n):
            file = tmp_path / "parted" / part / "abc"[i % 3] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (*rng.integers(12, 40, 2), 3), np.uint8)).save(file)
    return tmp_path / "parted"


def options(name: str, data: Path | str) -> list[str]:
    """A quick command line."""
    quick = ["--device", "cpu", "--workers", "0", "--size", "16"]
    more = {
        "knn": ["--protocols", "5", "0.07"],
        "linear": ["--epochs", "1"],
        "finetune": ["--epochs", "2", "--batch-size", "10"],
        "semi": ["--epochs", "1"],
    }
    return [name, "random/tiny", "--sets" if name == "transfer" else "--data", str(data), *quick, *more.get(name, [])]


@pytest.mark.parametrize(("step", "name", "code"), [(1, "SIGTERM", 143), (5, "SIGTERM", 143), (1, "SIGINT", 130)])
def test_an_interrupted_tuning_keeps_nothing_and_says_so(capsys, parted, monkeypatch, step, name, code) -> None:
    """Also in the last of its six steps, after which the epoch ends as it would have."""
    original = Pretraining.training_step

    def interrupted(self, *arguments):
        if self.trainer.global_step == step:
            os.kill(os.getpid(), getattr(signal, name))
        return original(self, *arguments)

    monkeypatch.setattr(Pretraining, "training_step", interrupted)
    told = f"Stopped by {'Ctrl-C' if name == 'SIGINT' else name}; nothing of the fine-tuning is kept, and the same"
    assert shell(capsys, *options("finetune", parted))[::2] == (code, f"logo-ssl: {told} command starts it again.\n")


def test_a_dead_workers_cure_is_an_option_of_the_command(capsys, parted, monkeypatch) -> None:
    def die(*arguments):
        raise RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed. ")

    monkeypatch.setattr(learning, "_fit", die)
    code, _, err = shell(capsys, *options("finetune", parted))
    assert code == 2
    assert err.endswith("; try fewer --workers.\n")


def test_ctrl_c_outside_a_training_is_told(capsys, parted, monkeypatch) -> None:
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("logo_ssl.eval.commands.data_for", interrupted)
    told = "logo-ssl: Stopped by Ctrl-C; give the same command again.\n"
    assert shell(capsys, *options("knn", parted))[::2] == (130, told)


@pytest.mark.parametrize("name", CLASSIFYING)
def test_a_class_without_a_readable_training_image_is_refused(capsys, parted, name) -> None:
    for file in (parted / "train" / "b").iterdir():
        file.write_bytes(b"")
    line = options(name, parted)
    code, out, err = shell(capsys, *line, "--max-bad", "0.5")
    assert code == 2
    told = "None of the 10 training images of class 'b' of parted can be read; mend them, or take the class out"
    assert told in (out if name == "transfer" else err)


@pytest.mark.parametrize("name", ["knn", "linear", "finetune"])
def test_images_that_cannot_be_read_are_named_and_recorded(encoder, parted, tmp_path, name) -> None:
    broken = ["train/a/0.png", "train/a/3.png", "train/b/4.png", "train/c/5.png", "test/c/2.png"]
    for file in broken:
        (parted / file).write_bytes(b"")
    how, said = listening()
    evaluated(name, encoder, load_data(str(parted), 16), how, tmp_path / "x.json")
    named = ", ".join(str(parted / file) for file in broken[:3])
    assert f"4 of 30 training images cannot be read and are left out: {named} and 1 more." in said
    record = json.loads((tmp_path / "x.json").read_text())
    assert (record["unreadable_count"], record["unreadable_images"]) == (5, broken)
    assert how.unreadable == []  # the next evaluation starts afresh


@pytest.mark.parametrize("name", CLASSIFYING)
def test_every_protocol_tells_and_records_what_guessing_gives(capsys, parted, tmp_path, name) -> None:
    code, out, err = shell(capsys, *options(name, parted), "--out", str(tmp_path / "x.json"))
    assert code == 0, err
    known = 3 if name == "semi" else 30
    told = "Chance: 33.33 %; always the commonest training class: 33.33 %."
    assert f"15 images are classified by {known} training images, in 3 classes. {told}" in out
    assert ("Top-5 is left out: with 3 classes" in out) == (name != "transfer")
    assert "top-5" not in out
    record = json.loads(next(tmp_path.glob("x*.json")).read_text())
    told = record["results"][0] if name in ("finetune", "semi") else record
    assert (told["chance"], told["commonest"]) == (33.33, 33.33)
    assert (record["test_images"], record["classes"]) == (15, 3)
    assert (record["test_images_compared"], record["test_images_in_train"]) == (15, 0)


@pytest.mark.parametrize("name", ["knn", "linear"])
def test_figures_have_the_standard_error_of_the_test_images_beside_them(capsys, parted, tmp_path, name) -> None:
    code, out, err = shell(capsys, *options(name, parted), "--out", str(tmp_path / "x.json"))
    assert code == 0, err
    record = json.loads((tmp_path / "x.json").read_text())
    ((metric, error),) = record["standard_errors"].items()
    share = float(re.search(rf"{metric} │ ([\d.]+) ± {error:.2f} │", out)[1]) / 100
    if 0 < share < 1:
        assert error == pytest.approx(100 * math.sqrt(share * (1 - share) / 15), abs=0.01)
    assert out.count("±: the standard error by the number of images that were classified, 15;") == 1


def test_a_mean_over_classes_is_guessed_class_by_class(encoder, parted, tmp_path, monkeypatch) -> None:
    data = load_data(str(parted), 16)
    data = replace(data, train=data.train[torch.arange(25)])  # 10, 10 and 5 images
    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda *_: data)
    list(transfer(encoder, ["pets"], listening()[0], out=tmp_path / "x.json"))
    assert json.loads((tmp_path / "x-pets.json").read_text())["commonest"] == 33.33


def test_fewer_than_five_neighbours_have_no_top5(encoder, images, tmp_path) -> None:
    how, said = listening()
    figures = dict(knn(encoder, images, how, protocols=((3, 0.07), (5, 0.07)), out=tmp_path / "x.json"))
    assert list(figures) == ["knn top-1, k=3, tau=0.07", "knn top-1, k=5, tau=0.07", "knn top-5, k=5, tau=0.07"]
    assert "Top-5 is left out for k=3: so few neighbours name no 5 classes." in said
    assert ["top5" in row for row in json.loads((tmp_path / "x.json").read_text())["results"]] == [False, True]


def test_shares_of_the_same_images_are_one_row_with_its_true_share(encoder, tmp_path) -> None:
    how, said = listening()
    data = ImageSet("colours", colours(30, 0), colours(9, 1))
    settings = {"fractions": (0.01, 0.1, 0.2), "epochs": 1, "out": tmp_path / "x.json"}
    figures = dict(finetune(encoder, data, how, **settings))
    assert list(figures) == [f"finetune top-1, {share} % of labels ({n} images)" for share, n in ((10, 3), (20, 6))]
    told = "Fractions 0.01 and 0.1 are the same 3 images, since each class has one at least; they are measured once."
    assert told in said
    rows = json.loads((tmp_path / "x.json").read_text())["results"]
    assert [(row["fraction"], row["fractions_asked"], row["images"]) for row in rows] == [
        (0.1, [0.01, 0.1], 3),
        (0.2, [0.2], 6),
    ]


def test_copies_of_training_images_are_counted(parted, images) -> None:
    for i in (1, 4):
        (parted / "test" / "b" / f"copy {i}.png").write_bytes((parted / "train" / "b" / f"{i}.png").read_bytes())
    (parted / "train" / "a" / "0.png").write_bytes(b"")
    (parted / "test" / "a" / "0.png").write_bytes(b"")  # which are no copies of an image
    data, (how, said) = load_data(str(parted), 16), listening()
    assert copies.copies(data.train, data.test, how) == {"test_images_compared": 17, "test_images_in_train": 2}
    assert said[0].startswith("Warning: 2 of 17 test images are among the training images, byte by byte")
    assert copies.copies(images.train, images.test, how)["test_images_in_train"] == 0
    assert copies.copies(images.train, images.train[torch.tensor([7])], how)["test_images_in_train"] == 1
    assert said[1].startswith("Warning: 1 of 1 test images is among")
    assert said[1].endswith("take it out of train or test.")
    assert copies.copies(images.train, None, how) == {}


def test_files_to_look_among_are_asked_for_their_sizes_once(parted, monkeypatch) -> None:
    data, (how, _), asked = load_data(str(parted), 16), listening(), []
    of = Stamp.of
    monkeypatch.setattr(Stamp, "of", lambda path: asked.append(path) or of(path))
    copies.copies(data.train, data.test, how, data.test)
    counts = Counter(asked)
    assert {counts[data.train.images.name(row)] for row in range(len(data.train))} == {1}


@pytest.mark.parametrize("protocol", ["linear", "transfer"])
def test_copies_among_validation_images_are_told_where_these_choose(capsys, parted, tmp_path, protocol) -> None:
    for name in ("val/a/0.png", "val/b/1.png", "val/c/2.png"):
        (parted / name).parent.mkdir(parents=True, exist_ok=True)
    for source, copy in (("test/a/0", "val/a/0"), ("test/b/1", "val/b/1"), ("train/c/2", "val/c/2")):
        (parted / f"{copy}.png").write_bytes((parted / f"{source}.png").read_bytes())
    code, out, err = shell(capsys, *options(protocol, parted), "--out", str(tmp_path / "x.json"))
    assert code == 0, err
    assert "2 of 15 test images are among the validation images, byte by byte, and the figures are too good" in out
    assert "1 of 3 validation images is among the training images, byte by byte, and what validation chooses" in out
    assert "among the training images, byte by byte, and the figures" not in out
    record = json.loads(next(tmp_path.glob("x*.json")).read_text())
    assert (record["test_images_in_val"], record["test_images_in_train"]) == (2, 0)
    assert (record["val_images_in_train"], record["val_images_compared"]) == (1, 3)


def test_validation_images_that_take_no_part_are_not_looked_among(encoder, images) -> None:
    how, said = listening()
    list(knn(encoder, replace(images, val=images.test), how, protocols=((5, 0.07),)))
    assert not any("Warning" in sentence for sentence in said)


def test_a_look_for_copies_is_bounded(images, monkeypatch) -> None:
    monkeypatch.setattr(copies, "LOOKED_AT", 20)
    monkeypatch.setattr(copies, "MOST_READ", 10)
    how, said = listening()
    found = copies.copies(images.train, images.train, how)
    assert found["test_images_compared"] == 20
    assert 0 < found["test_images_in_train"] < 20
    assert " of 20 test images that were looked at are among" in said[0]
    assert said[0].startswith("Warning: at least ")
    monkeypatch.setattr(copies, "MOST_KNOWN", 59)
    assert copies.copies(images.train, images.train, how) == {}


def test_a_set_that_was_asked_for_and_not_measured_is_exit_code_2(capsys, parted, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LOGO_DATA", str(tmp_path / "none"))
    code, out, err = shell(
        capsys, *options("transfer", "mit67"), "--sets", "mit67", str(parted), "--out", str(tmp_path / "x.json")
    )
    assert (code, err) == (2, "logo-ssl: mit67 could not be measured; the sentences above say why.\n")
    assert "MIT67 is missing" in out
    assert (tmp_path / "x-parted.json").is_file()
    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size: _only("dtd", source, parted))
    assert shell(capsys, *options("transfer", "mit67")[:2], "--device", "cpu", "--workers", "0", "--size", "16")[0] == 0


def _only(there: str, source: str, parted: Path) -> ImageSet:
    if source != there:
        raise UserError("not here")
    return load_data(str(parted), 16)


@pytest.mark.parametrize("name", ["linear", "finetune"])
def test_a_test_without_labels_is_not_recorded_as_the_official_one(encoder, images, tmp_path, name) -> None:
    unlabelled = replace(images, test=Split(images.train.images, torch.full([len(images.train)], -1)))
    for data, official in ((unlabelled, False), (replace(images, test=images.train), True)):
        evaluated(name, encoder, data, listening()[0], tmp_path / "r.json")
        assert json.loads((tmp_path / "r.json").read_text())["official_test"] is official


@pytest.mark.parametrize("name", ["knn", "linear", "finetune"])
def test_a_result_of_another_protocol_or_encoder_stays_in_python_too(encoder, parted, tmp_path, name) -> None:
    data, out, how = load_data(str(parted), encoder.size), tmp_path / "r.json", listening()[0]
    evaluated(name, encoder, data, how, out)
    before, other = out.read_bytes(), "linear" if name == "knn" else "knn"
    with pytest.raises(UserError, match=rf"was made by {name}.*, not by {other}"):
        evaluated(other, encoder, data, how, out)
    with pytest.raises(UserError, match=f"was made by {encoder.name}, not by another"):
        evaluated(name, replace(encoder, name="another"), data, how, out)
    assert out.read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("name", CLASSIFYING)
def test_a_device_that_is_not_there_is_refused_before_anything_is_read(capsys, monkeypatch, name) -> None:
    monkeypatch.setattr("logo_ssl.eval.subject.Subject.load", lambda self: pytest.fail("an encoder was read"))
    code, _, err = shell(capsys, *options(name, "scenes"), "--device", "cuda")
    assert code == 2
    assert "device is 'cuda', which this machine does not have" in err


def test_without_a_terminal_progress_is_a_line_now_and_then(monkeypatch) -> None:
    said, clock = Console(file=io.StringIO()), iter([0, 10, 31, 31, 40, 62, 62])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with terminal.progress_bars(said) as progress:
        for done in (1, 2000, 3000, 4000):
            progress("features", done, 5000)
    assert said.file.getvalue() == "features: 2,000 of 5,000\nfeatures: 4,000 of 5,000\n"


def test_on_a_terminal_a_finished_bar_makes_room_for_another(monkeypatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    with terminal.progress_bars(screen) as progress:
        for what in ("reading", "features"):
            progress(what, 1, 2)
            progress(what, 2, 2)
            assert not screen._live_stack  # or a training's own bar would be refused, or drawn into ours
            with Progress(console=screen) as other:
                other.add_task("training")
    assert "reading" in screen.file.getvalue()
    assert "features" in screen.file.getvalue()


@pytest.mark.parametrize("name", ["finetune", "semi"])
def test_reading_and_testing_show_how_far_they_are(capsys, parted, monkeypatch, name) -> None:
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 0)
    code, out, err = shell(capsys, *options(name, parted))
    assert code == 0, err
    for line in ("reading training images: 30 of 30", "features of test images: 15 of 15", "epoch 1/"):
        assert line in out


@pytest.mark.parametrize("name", CLASSIFYING)
def test_help_has_an_example(capsys, name) -> None:
    assert f"example: logo-ssl eval {name} runs/first" in " ".join(shell(capsys, name, "--help")[1].split())
    assert name in PROTOCOLS


def test_a_folder_as_on_the_hub_is_an_encoder(encoder, tmp_path) -> None:
    source = load_encoder("random/resnet18", size=32)
    export(source, "hf", tmp_path / "encoder-hf")
    found = load_encoder(str(tmp_path / "encoder-hf"))
    assert (found.fingerprint, found.size, found.mean) == (source.fingerprint, source.size, source.mean)


def test_a_small_folder_is_measured_by_the_protocol_that_fits_and_refused_what_is_asked(capsys, parted) -> None:
    command = ["knn", "random/tiny", "--data", str(parted), "--size", "16", "--workers", "0"]
    code, out, err = shell(capsys, *command)
    assert code == 0, err
    assert "k=200 is left out: there are only 30 training images of parted to compare with, and all would vote." in out
    assert "knn top-1, k=20, tau=0.07" in out
    code, _, err = shell(capsys, *command, "--protocols", "20", "0.07", "200", "0.1")  # the usual ones, asked for
    assert code == 2
    assert "k=200 needs more than 200 images to compare with, or all would vote, and parted has 30" in err
