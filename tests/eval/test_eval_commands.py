"""`logo-ssl eval` measures, records, says what it left out, and refuses what cannot work."""

import json
import math
import os
import re
import signal

import numpy as np
import pytest
import torch

from logo_ssl import cli
from logo_ssl.eval import PROTOCOLS
from logo_ssl.eval.protocol import Measurement, judge
from logo_ssl.train import Pretraining

CLASSIFYING = ("knn", "linear", "transfer", "finetune", "semi")


def shell(capsys, *words: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `logo-ssl eval`."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["eval", *map(str, words)])
    told = capsys.readouterr()
    return stop.value.code or 0, told.out, told.err


def quick(name: str, data: object, *more: object, compared: bool = False) -> list[object]:
    """A quick command line."""
    more = more if compared or name == "finetune" else (*more, "--no-baselines")
    own = {
        "knn": ["--protocols", "5", "0.07"],
        "linear": ["--epochs", "1"],
        "finetune": ["--epochs", "2", "--batch-size", "10"],
        "semi": ["--epochs", "1"],
    }
    shared = ["--device", "cpu", "--workers", "0", "--size", "16"]
    return [name, "random/tiny", "--sets" if name == "transfer" else "--data", data, *shared, *own.get(name, []), *more]


@pytest.mark.parametrize("name", CLASSIFYING)
def test_every_protocol_records_its_figures_chance_and_what_it_compared(capsys, parted, tmp_path, name) -> None:
    code, out, err = shell(capsys, *quick(name, parted, "--out", tmp_path / "x.json"))
    assert code == 0, err
    assert "chance 33.33 %" in out
    assert "top-5" not in out  # five guesses name all three classes
    record = json.loads(next(tmp_path.glob("x*.json")).read_text())
    told = record["results"][0] if name in ("finetune", "semi") else record
    assert (told["chance"], told["commonest"]) == (33.33, 33.33)
    assert (record["test_images"], record["classes"]) == (15, 3)
    assert (record["test_images_compared"], record["test_images_in_train"]) == (15, 0)


COMPARED = ("knn", "linear", "transfer", "semi")


@pytest.mark.parametrize("name", COMPARED)
def test_a_table_compares_with_the_untrained_network_and_pixels_and_ends_with_a_verdict(
    capsys, run, parted, tmp_path, name
) -> None:
    words = quick(name, parted, "--out", tmp_path / "x.json", compared=True)
    line = [word if word != "random/tiny" else run.path for word in words]
    code, out, err = shell(capsys, *line)
    assert code == 0, err
    (file,) = tmp_path.glob("x*.json")
    record = json.loads(file.read_text())
    assert [*record["baselines"]] == ["untrained", "raw pixels", "pixels and colours"]
    for told in (record, *record["baselines"].values()):
        for value, error in zip(top1s(told), told["standard_errors"].values(), strict=True):
            assert f"{value:.2f} ± {error:.2f}" in out
            if 0 < value < 100 and name != "transfer":
                assert error == pytest.approx(math.sqrt(value * (100 - value) / 15), abs=0.01)
    assert len(re.findall(r"│ (untrained|raw pixels|pixels and colours) +│", out)) == 3 * len(top1s(record))
    assert len(re.findall(r"^Verdict: (better|level|worse) ", out, re.MULTILINE)) == 1
    if name == "knn":
        file.unlink()
        out = shell(capsys, *line, "--no-baselines")[1]
        assert ("Verdict" in out, json.loads(file.read_text())["baselines"]) == (False, {})


def top1s(record) -> list[float]:
    """The figures of three classes, which have no top-5."""
    if "value" in record:
        return [record["value"]]
    results = record["results"]
    return [results["top-1"]] if isinstance(results, dict) else [row["top1"] for row in results]


@pytest.mark.parametrize("name", ["knn", "linear"])
def test_pixels_are_an_encoder(capsys, parted, tmp_path, name) -> None:
    words = quick(name, parted, "--out", tmp_path / "x.json", compared=True)
    line = [word if word != "random/tiny" else "pixels" for word in words]
    code, out, err = shell(capsys, *line)
    assert (code, "Verdict" in out) == (0, False), err
    record = json.loads((tmp_path / "x.json").read_text())
    assert (record["encoder"], record["size"], record["baselines"]) == ("pixels", 16, {})


def test_linear_by_lbfgs_and_transfer_are_the_same_on_the_same_images(capsys, parted, tmp_path) -> None:
    """For few images the L2 weight is chosen over folds of all of them."""
    found = []
    for line in (quick("linear", parted, "--protocol", "lbfgs"), quick("transfer", parted)):
        code, _, err = shell(capsys, *line, "--out", tmp_path / f"{line[0]}.json")
        assert code == 0, err
        (file,) = tmp_path.glob(f"{line[0]}*.json")
        found.append(json.loads(file.read_text()))
    linear, transfer = found
    assert linear["results"]["top-1"] == transfer["value"]
    assert (linear["l2_weight"], linear["validation"]) == (transfer["l2_weight"], transfer["validation"])
    assert all("5-fold cross-validation, then trained on all of train" in record["protocol"] for record in found)


def test_a_verdict_needs_more_than_two_errors_of_the_difference() -> None:
    def found(value: float, error: float, metric: str = "top-1") -> Measurement:
        errors = {metric: error, "top-5": 1.0}
        return Measurement("knn", {metric: value, "top-5": 0.0}, {"standard_errors": errors}, {})

    ours = {"run": found(50.0, 3.0)}
    assert judge([ours]) == ""
    assert judge([ours | {"untrained": found(39.9, 4.0)}]).startswith("Verdict: better than untrained (+10.1 points).")
    assert judge([ours | {"untrained": found(40.1, 4.0)}]).startswith("Verdict: level with untrained (+9.9 points).")
    assert judge([ours | {"untrained": found(60.1, 4.0)}]).startswith("Verdict: worse than untrained (-10.1 points).")
    others = {"untrained": 30.0, "pixels": 50.0}
    both = [ours | {name: found(value + 20 * i, 4.0) for name, value in others.items()} for i in range(2)]
    assert "better in 1 of 2 figures than untrained (+10.0 points), level with pixels" in judge(both)


@pytest.mark.parametrize("name", ["knn", "linear", "finetune"])
def test_images_that_cannot_be_read_are_named_and_recorded(capsys, parted, tmp_path, name) -> None:
    broken = ["train/a/0.png", "train/a/3.png", "train/b/4.png", "train/c/5.png", "test/c/2.png"]
    for file in broken:
        (parted / file).write_bytes(b"")
    code, out, err = shell(capsys, *quick(name, parted, "--out", tmp_path / "x.json"))
    assert code == 0, err
    assert "4 of 30 training images cannot be read" in out
    assert str(parted / broken[0]) in out
    record = json.loads((tmp_path / "x.json").read_text())
    assert (record["unreadable_count"], record["unreadable_images"]) == (5, broken)


@pytest.mark.parametrize(("step", "name", "code"), [(5, "SIGTERM", 143), (1, "SIGINT", 130)])
def test_an_interrupted_tuning_keeps_nothing_and_says_so(capsys, parted, monkeypatch, step, name, code) -> None:
    """Also in the last of its six steps, after which the epoch ends as it would have."""
    original = Pretraining.training_step

    def interrupted(self, *arguments):
        if self.trainer.global_step == step:
            os.kill(os.getpid(), getattr(signal, name))
        return original(self, *arguments)

    monkeypatch.setattr(Pretraining, "training_step", interrupted)
    ended, _, err = shell(capsys, *quick("finetune", parted))
    assert (ended, "nothing of the fine-tuning is kept" in err) == (code, True)


@pytest.mark.parametrize("name", ["knn", "transfer", "finetune"])
def test_a_run_that_cannot_be_written_is_refused_before_the_work_unless_out_names_a_place(
    capsys, run, parted, tmp_path, name
) -> None:
    run.evaluation_file("x").parent.touch()  # in the folder's place: root may write anywhere else
    line = [word if word != "random/tiny" else run.path for word in quick(name, parted)]
    code, out, err = shell(capsys, *line)
    assert (code, "cannot be written" in err, "chance" in out) == (2, True, False)
    if name == "knn":
        assert shell(capsys, *line, "--out", tmp_path / "x.json")[0] == 0


@pytest.fixture
def sets(parted, tmp_path):
    """Sets that cannot serve."""
    images = np.zeros((40, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "unlabelled.npz", train_images=images)
    np.savez(tmp_path / "one.npz", train_images=images, train_labels=np.zeros(40, int))
    np.savez(tmp_path / "few.npz", train_images=images[:3], train_labels=np.arange(3))
    np.savez(tmp_path / "two.npz", train_images=images[..., :2], train_labels=np.arange(40) % 2)
    (tmp_path / "broken").mkdir()
    for i in range(4):
        file = tmp_path / "broken" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"")
    (tmp_path / "taken.json").write_text("precious")
    return {"parted": parted, "here": tmp_path}


REFUSED = [
    ("knn random/tiny", "--data"),
    ("knn random/tiny --data {parted} --size 4", "size=4"),
    ("knn random/tiny --data {parted} --mean 0.5 --std 1 1", "std"),
    ("knn random/tiny --data {parted} --stem solo-learn", "stem=solo-learn"),
    ("knn random/tiny --data {parted} --batch-size 0", "batch_size=0"),
    ("knn random/tiny --data {parted} --workers -2", "workers=-2"),
    ("knn random/tiny --data {parted} --max-bad 2", "max_bad=2"),
    ("knn random/tiny --data {parted} --protocols 0 0.1", "protocols=(0, 0.1)"),
    ("knn random/tiny --data {parted} --protocols 5 nan", "protocols=(5, nan)"),
    ("knn random/tiny --data {parted} --protocols 30 0.1", "k=30"),
    ("knn random/tiny --data {parted} --out {here}/x.txt", "out="),
    ("knn random/tiny --data {parted} --out {here}/taken.json", "--overwrite"),
    ("knn random/tiny --data {here}/unlabelled.npz", "no labels"),
    ("knn random/tiny --data {here}/one.npz", "one class"),
    ("knn random/tiny --data {here}/two.npz", "2"),
    ("knn random/tiny --data {here}/broken --max-bad 1", "broken"),
    ("linear random/tiny --data {parted} --epochs 0", "epochs=0"),
    ("linear random/tiny --data {parted} --rates 0 1", "rates=0.0 1.0"),
    ("linear random/tiny --data {parted} --rates nan", "rates=nan"),
    ("linear random/tiny --data {parted} --seed -1", "seed=-1"),
    ("linear random/tiny --data {here}/few.npz", "too few images"),
    ("transfer random/tiny --sets petz", "pets"),
    ("transfer random/tiny --sets {parted} --out {here}/x.txt", "out="),
    ("multilabel random/tiny --data {here}/one.npz", "train_labels"),
    ("multilabel random/tiny --data {parted}", "boxes"),
    ("finetune random/tiny --data {parted} --epochs 0", "epochs=0"),
    ("finetune random/tiny --data {parted} --lr nan", "lr=nan"),
    ("finetune random/tiny --data {parted} --batch-size 1", "batch_size=1"),
    ("finetune random/tiny --data {here}/few.npz", "too few images"),
    ("semi random/tiny --data {parted} --fractions 0.1 2", "fractions=0.1 2.0"),
]


@pytest.mark.parametrize(("line", "named"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_work_is_exit_code_2_and_named(capsys, sets, line, named) -> None:
    code, _, err = shell(capsys, *line.format(**sets).split(), "--device", "cpu")
    assert code == 2
    assert named in err
    assert "Traceback" not in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("name", ["knn", "transfer"])
def test_a_device_that_is_not_there_is_refused(capsys, parted, name) -> None:
    code, _, err = shell(capsys, *(word if word != "cpu" else "cuda" for word in quick(name, parted)))
    assert (code, "cuda" in err) == (2, True)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_of_the_registry_is_a_command_with_an_example(capsys, name) -> None:
    assert f"example: logo-ssl eval {name} " in " ".join(shell(capsys, name, "--help")[1].split())
