"""Is the page whole by itself, does it show every run's numbers, and is nobody's name taken for HTML?"""

import itertools
import json
import math
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from shown_runs import SMALL

from logo_ssl import cli
from logo_ssl.data import load_data
from logo_ssl.data.decode import DatasetInfo
from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.recipes import Machine, choose, find_recipe, read_recipe
from logo_ssl.report.alarms import alarms
from logo_ssl.report.gaps import Gap, by_reason
from logo_ssl.report.page import LARGEST, page, write_report
from logo_ssl.report.plots import MOST_POINTS, plots
from logo_ssl.report.reading import Told
from logo_ssl.report.report import Report
from logo_ssl.report.rerun import departures, rerun
from logo_ssl.report.sections import ABOUT_AFFINITY
from logo_ssl.report.telling import Teller, names_of
from logo_ssl.run import Run
from logo_ssl.strategies import LoGoConfig, TwoViewConfig

HOSTILE = "<img src=x onerror=alert(1)>&\"'"
VOID = {"meta", "link", "img", "input", "br"}
PLOTLY = "/* plotly */ 'https://nowhere.example'"


class Reader(HTMLParser):
    """Elements, text and tags that were not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.elements, self.words, self.code = [], [], [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open or "style" in self.open:
            self.code[self.elements[-1][1].get("id", self.elements[-1][0])] = data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def make_told(tmp_path):
    """Run folders made of files alone."""

    def make(name="first", lines=60, **changes) -> Told:
        run = Run(tmp_path / re.sub(r"\W", "", name))
        run.path.mkdir(parents=True)
        run.recipe_file.write_text(find_recipe("cifar10-moco-logo").changed(**changes).to_json())
        metrics = [
            {"step": 10 * i, "loss": 6 - i / lines, "omega": -1.0, "lr": 0.06, "epoch": i // 10} for i in range(lines)
        ]
        metrics.append({"step": 10 * lines, "knn": 61.25, "knn_k": 20, "knn_tau": 0.07, "epochs_done": lines // 10})
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"torn')
        run.provenance_file.write_text(json.dumps({"commit": "abc123", "seconds": 12.5, "versions": {"torch": "2.15"}}))
        return Told(run, name)

    return make


@pytest.fixture
def light(monkeypatch):
    """A page without the five megabytes of its library."""
    monkeypatch.setattr("logo_ssl.report.page.plotly", lambda: PLOTLY)


def evaluate(told: Told) -> None:
    knn = [
        {"features": "raw pixels", "k": 20, "tau": 0.07, "top1": 43.21},
        {"features": "trained encoder", "k": 20, "tau": 0.07, "top1": 56.78},
    ]
    told.run.write_evaluation("knn", {"protocol": "weighted kNN", "data": "cifar10", "results": knn})
    linear = {"protocol": "MoCo's SGD", "data": "cifar10", "results": {"top-1": 71.11, "top-5": 99.5}}
    told.run.write_evaluation("linear-sgd-cifar10-0", linear)
    interval = {"mean": 0.7654, "low": 0.7, "high": 0.8}
    row = {"task": "same image", "metric": "AUC", "references": 9, "chance": 0.5}
    row |= dict.fromkeys(("learned", "cosine", "difference"), interval)
    told.run.write_evaluation("affinity-x-0", {"protocol": "crops", "data": HOSTILE, "results": [row]})
    told.run.evaluation_file("torn").write_text("{")


def test_the_page_parses_and_shows_every_number_with_its_protocol(make_told, light):
    told = make_told()
    evaluate(told)
    read = Reader(page([told]))
    assert read.open == []
    for number in (
        "61.25 %",
        "56.78 %",
        "71.11 %",
        "0.765 [0.700, 0.800]",
        "43.21",
        "99.50",
        "84.44",
        "85.59",
        "abc123",
    ):
        assert number in read.text, number
    for words in ("after epoch 6 of 200, k=20, tau=0.07", "MoCo's SGD", "Table 1: MoCo+LoGo", "optimiser.lr"):
        assert words in read.text, words


def test_nothing_is_loaded_from_outside(make_told, light):
    read = Reader(page([make_told()]))
    for _, attributes in read.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
        assert not any(name.startswith("on") for name in attributes)
    policy = next(m["content"] for m in read.all("meta") if m.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert not re.search(r"url\(|@import", read.code["style"])


def test_hostile_names_are_shown_as_text(make_told, light):
    told = make_told(HOSTILE, data=f"/{HOSTILE}")
    evaluate(told)
    read = Reader(page([told, make_told("</script><script>alert(2)</script>")]))
    assert read.open == []
    assert HOSTILE in read.text
    assert not any(attributes.get("src") == "x" for attributes in read.all("img"))
    assert len(read.all("script")) == 3
    assert "</script><script>alert(2)</script>" in read.text
    assert "<" not in read.code["plots"]


def test_every_plot_and_picture_has_words_for_those_who_do_not_see_it(make_told, light, tmp_path):
    told = make_told()
    Image.new("RGB", (8, 8)).save(tmp_path / "crops.png")
    read = Reader(page([Told(told.run, told.name, (tmp_path / "crops.png").read_bytes())]))
    drawn = [attributes for attributes in read.all("div") if attributes.get("class") == "plot"]
    assert len(drawn) == 4
    assert drawn[0]["aria-label"] == ("kNN top-1 while training, k=20, tau=0.07 (%) over epochs; last first: 61.25 %")
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawn)
    assert [attributes["alt"] for attributes in read.all("img")] == [
        "first: Crops as the network sees them, and their boxes on the originals"
    ]
    assert {attributes["scope"] for attributes in read.all("th")} == {"col", "row"}
    assert read.all("html") == [{"lang": "en-GB"}]


def test_several_runs_share_each_plot_and_what_differs_is_said(make_told, light):
    runs = [make_told("first"), make_told("second", optimiser__lr=0.125, strategy=TwoViewConfig())]
    for plot in plots(runs):
        assert [trace["run"] for trace in plot["traces"]] == [0, 1]
    one, other = plots(runs)[0]["traces"]
    assert (one["x"], one["y"]) == ([6.0], [61.25])
    assert one["line"] != other["line"]
    read = Reader(page(runs))
    assert [box["data-run"] for box in read.all("input")] == ["0", "1"]
    text = re.sub(r"\s+", " ", read.text)
    assert "optimiser.lr 0.06 0.125" in text
    assert "strategy.kind logo two-view" in text
    assert "strategy.lam 0.0005 absent" in text
    assert "optimiser.momentum 0.9 0.9" not in text.split("Settings that differ")[1].split("Recipe and provenance")[0]


def test_bad_images_are_listed_as_text(make_told, light):
    told = make_told()
    rows = "".join(f"b{i}.jpg,empty file\r\n" for i in range(60))
    told.run.bad_images_file.write_text(f"image,reason\r\n<script>x.jpg,torn\r\n{rows}")
    read = Reader(page([told]))
    assert "first: 61 images could not be read; the first 50" in read.text
    assert "<script>x.jpg" in read.text
    assert "b48.jpg" in read.text
    assert "b49.jpg" not in read.text


def test_a_single_bad_image_is_one_image(make_told, light):
    told = make_told()
    told.run.bad_images_file.write_text("image,reason\r\nx.jpg,torn\r\n")
    assert "first: 1 image could not be read" in Reader(page([told])).text


def test_curves_say_that_epoch_0_is_the_untrained_encoder(make_told, light):
    assert (
        "kNN top-1 while training, k=20, tau=0.07 (%); epoch 0 is the untrained encoder"
        in Reader(page([make_told()])).text
    )


def test_the_picture_of_affinity_says_that_it_shows_other_company_than_the_section(make_told, light):
    told = make_told()
    (told.run.path / "figures").mkdir()
    Image.new("RGB", (8, 8)).save(told.run.path / "figures" / "affinity.png")
    assert "the section Affinity draws other images beside the same reference" in Reader(page([told])).text
    assert "has other company there" in ABOUT_AFFINITY


def test_a_small_report_has_a_size_in_kilobytes(make_told, light, tmp_path, capsys):
    Report((make_told().run.path,), tmp_path / "r.html", crops=False, images=0).run()
    assert re.search(r"\(\d+ kB\)", " ".join(capsys.readouterr().out.split()))


def test_long_curves_are_thinned_and_keep_their_end(make_told):
    curve = next(plot for plot in plots([make_told(lines=5000)]) if plot["name"] == "loss")["traces"][0]
    assert len(curve["x"]) <= MOST_POINTS + 1
    assert curve["x"][-1] == pytest.approx(499.9)


def test_values_that_are_not_finite_leave_a_gap(make_told, light):
    told = make_told()
    told.run.metrics_file.write_text('{"step": 1, "loss": NaN}\n{"step": 2, "loss": 1.5}\n')
    (plot,) = json.loads(Reader(page([told])).code["plots"])
    assert plot["traces"][0]["y"] == [None, 1.5]


STRANGE = ["x", None, True, [], [[1]], {}, {"a": 1}, -1, math.inf, math.nan, 10**400]
"""What JSON may hold where another type is expected."""


@pytest.mark.parametrize(("first", "said"), [(100, True), (200, False), (None, False)])
def test_a_run_that_was_made_longer_says_that_one_command_gives_another(make_told, light, first, said):
    told = make_told()
    made = json.loads(told.run.provenance_file.read_text())
    write(told.run.provenance_file, json.dumps(made | {"epochs": 200, "epochs_first_planned": first}))
    told = Told(told.run, "first", rerun="logo-ssl pretrain")
    assert ("To run it again, all 200 epochs in one (it was planned for 100 at first" in page([told])) is said
    assert ("To run it again:" in page([told])) is not said


def test_values_of_another_type_are_left_out(make_told, light):
    told, end = make_told(epochs=2), {"step": 9, "z_std": 0.5, "z_rank": 3.0, "epoch": 1}
    knn = {"step": 9, "knn": 50.0, "knn_k": 20, "knn_tau": 0.07, "knn_images": 10, "epochs_done": 2}
    for line in (end, knn):
        for key, value in itertools.product(line, STRANGE):
            told.run.metrics_file.write_text("".join(json.dumps(each) + "\n" for each in (line | {key: value}, end)))
            page([Told(told.run, "first")])
            alarms(told.run.metrics(), SMALL)
    made = json.loads(told.run.provenance_file.read_text())
    for key, value in itertools.product(("versions", "seconds", "hardware", "epochs_first_planned"), STRANGE):
        told.run.provenance_file.write_text(json.dumps(made | {key: value}))
        page([Told(told.run, "first")])
    for value in STRANGE:
        write(told.run.images_file, json.dumps({"train_images": 1, "test_images": 1, "fingerprint": value}))
        assert Told(told.run, "first").images is None


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: str(value)[:9])
def test_evaluations_of_another_type_leave_a_page(make_told, light, value):
    told = make_told()
    mean = {"mean": value, "low": 0.1, "high": 0.2}
    for results in (value, [value], [{"k": value, "tau": value, "top1": value, "features": value, "cosine": mean}]):
        told.run.write_evaluation("knn", {"evaluation": "knn", "results": results, "test_images": value})
        page([Told(told.run, "first")])


def test_curves_of_a_run_without_labels_know_their_epochs_while_it_runs(make_told):
    told, loss, end = make_told(), {"loss": 1.5}, {"z_std": 0.9}
    lines = [loss | {"step": 9, "epoch": 0}, end | {"step": 9, "epoch": 0}, loss | {"step": 12, "epoch": 1}]
    told.run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = next(plot for plot in plots([told]) if plot["name"] == "loss")["traces"][0]
    assert curve["x"] == [1.0, pytest.approx(12 / 9, abs=1e-4)]


def test_damaged_metrics_are_told_on_the_page_and_on_the_terminal(make_told, light, tmp_path, capsys):
    told = make_told(epochs=6)
    whole = told.run.metrics_file.read_text().removesuffix('{"torn')
    told.run.metrics_file.write_text(whole)
    assert told.damages == []
    lines = whole.splitlines(keepends=True)
    cut = '{"step": 9, "z_std": 0.5, "epoch": 1}\n'
    for damaged, sentence in (
        ("".join(["garbage\n", '"step"\n', *lines]), "2 lines of metrics.jsonl cannot be read and are left out."),
        (whole + '{"torn', "1 line of metrics.jsonl cannot be read and is left out."),
        ("".join([*lines[:20], cut]), "metrics.jsonl ends after epoch 2 of 6, though the run is finished"),
        ("", "metrics.jsonl tells nothing, though the run is finished"),
        (None, "metrics.jsonl is missing"),
    ):
        told.run.metrics_file.write_text(damaged) if damaged is not None else told.run.metrics_file.unlink()
        Report((told.run.path,), tmp_path / "r.html", crops=False, images=0).run()
        assert f"first: {sentence}" in " ".join(capsys.readouterr().out.split())
        text = Reader((tmp_path / "r.html").read_text()).text
        assert f"first: {sentence}" in text
        assert "damaged" in text
        assert "measured yet" not in text


def test_the_line_that_is_just_being_written_is_no_damage(make_told):
    told = make_told()
    told.run.provenance_file.unlink()
    assert told.damages == []
    told.run.metrics_file.write_text('{"torn\n' + told.run.metrics_file.read_text())
    assert Told(told.run, "first").damages == ["1 line of metrics.jsonl cannot be read and is left out."]


def test_a_run_that_has_only_begun_has_a_page(make_told, light):
    told = make_told()
    told.run.metrics_file.unlink()
    told.run.provenance_file.unlink()
    text = Reader(page([told])).text
    assert "not finished" in text
    assert "Nothing was logged yet" in text
    assert "Nothing was evaluated yet" in text


def test_the_whole_page_with_its_library_is_small_enough_and_a_larger_one_is_refused(make_told, tmp_path, monkeypatch):
    told, out = make_told(lines=10_000), tmp_path / "report.html"
    assert 4_000_000 < write_report([told], out).stat().st_size < LARGEST
    read = Reader(out.read_text())
    assert read.open == []
    assert "Plotly, Inc." in read.code["script"] or "Plotly" in out.read_text()
    monkeypatch.setattr("logo_ssl.report.page.LARGEST", 1000)
    with pytest.raises(UserError, match="give fewer runs"):
        write_report([told], out)


def test_the_command_shows_crops_and_says_where_the_page_is(make_run, tmp_path, capsys, light):
    run = make_run()
    cli.parse(["report", str(run.path), "--out", str(tmp_path / "r.html")]).run()
    assert "r.html" in capsys.readouterr().out
    read = Reader((tmp_path / "r.html").read_text())
    assert any(attributes["alt"].startswith("run: Crops") for attributes in read.all("img"))
    assert "logo-ssl pretrain tiny" in read.text


def test_a_run_whose_data_are_elsewhere_has_a_page_without_crops(make_run, tmp_path, capsys, light):
    run = make_run(data="/nowhere/at/all")
    Report((run.path,), tmp_path / "r.html").run()
    out = capsys.readouterr().out
    assert out.count("/nowhere/at/all is not there") == 1
    assert "crops, neighbours, maps and affinities: /nowhere" in " ".join(out.split())
    read = Reader((tmp_path / "r.html").read_text())
    assert read.all("img") == []
    assert "run: crops, neighbours, maps and affinities: /nowhere/at/all is not there." in read.text


def test_data_that_have_moved_are_found_where_data_says(make_run, tmp_path, monkeypatch, capsys, light):
    run, there = make_run(data="/nowhere/at/all"), tmp_path / "there"
    there.mkdir()
    Report((run.path,), tmp_path / "r.html", data=str(there)).run()
    assert "Not shown" not in capsys.readouterr().out
    assert Reader((tmp_path / "r.html").read_text()).all("img")
    monkeypatch.setattr("logo_ssl.report.telling.load_data", load_data)
    Report((run.path,), tmp_path / "r.html").run()
    assert capsys.readouterr().out.count("no data are at /nowhere/at/all; say with --data") == 1
    with pytest.raises(UserError, match=r"No data are at .*moved-again; say with --data"):
        Report((run.path,), tmp_path / "r.html", data=str(tmp_path / "moved-again")).run()


def test_what_is_missing_of_several_runs_is_said_once(make_run, tmp_path, capsys, light):
    runs = [make_run(name, data=data) for name, data in (("a", "/nowhere"), ("b", "/nowhere"), ("c", "blobs"))]
    for run in runs:
        run.backbone_file.unlink()
        write(run.provenance_file, "{}")
    Report(tuple(run.path for run in runs), tmp_path / "r.html").run()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Not shown")]
    gone = "neighbours, maps and affinities: each is finished, but backbone.safetensors and its checkpoints are gone;"
    assert said[0] == f"Not shown of {runs[0].path} and {runs[1].path}: crops: /nowhere is not there."
    assert said[1].startswith(f"Not shown of all 3 runs: {gone}")
    assert len(said) == 2
    text = Reader((tmp_path / "r.html").read_text()).text
    assert "a and b: crops: /nowhere is not there." in text
    assert text.count("checkpoints are gone") == 1


def test_a_reason_of_one_run_names_it_and_one_of_several_names_none():
    sentence = "maps: {0} has no encoder yet; go on with `logo-ssl resume {0}`."
    gaps = [Gap(name, Path(name), sentence.format(name)) for name in ("a", "runs/b")]
    assert by_reason(gaps[:1]) == [(["a"], "maps: a has no encoder yet; go on with `logo-ssl resume a`.")]
    assert by_reason(gaps) == [(["a", "runs/b"], "maps: each has no encoder yet; go on with `logo-ssl resume RUN`.")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"epochs": 7, "data": "/a folder/with spaces", "optimiser__lr": 0.125, "deterministic": True},
        {"framework": SimSiamConfig(dim=64), "crops__jitter": (0.1, 0.2, 0.3, 0.0), "loggers": ()},
        {"strategy": TwoViewConfig(), "crops__n_local": 0},
        {"strategy": LoGoConfig(lam=0.3, bound="mean-difference"), "loading__max_side": 100},
    ],
)
def test_the_command_to_run_it_again_gives_the_same_recipe(changes, monkeypatch, tmp_path):
    recipe = find_recipe("tiny").changed(**changes)
    program, command, *arguments = shlex.split(rerun(recipe, "somewhere/first"))
    assert (program, command, arguments[-1]) == ("logo-ssl", "pretrain", "runs/first-again")
    seen = []
    monkeypatch.setattr("logo_ssl.train.pretrain", lambda recipe, out: seen.append(recipe) or Run(out))
    cli.parse(["pretrain", *arguments]).run()
    assert seen == [recipe]


@pytest.mark.parametrize(
    ("recipe", "rows"),
    [
        ("cifar10-moco-logo", ["Table 1: MoCo+LoGo", "Table 7: MoCo-LoGo full, CIFAR10"]),
        (
            "cifar10-tuned-moco-logo",
            [
                "Table 1: MoCo+LoGo, with settings of our choice, not the paper's",
                "Table 7: MoCo-LoGo full, CIFAR10, with settings of our choice, not the paper's",
            ],
        ),
        ("cifar10-best", []),
        ("imagenette-moco-logo", []),
        ("auto", []),
    ],
)
def test_rows_stand_beside_the_papers_and_say_whose_settings_they_have(tmp_path, light, recipe, rows):
    run = Run(tmp_path / "mine")
    chosen = choose(DatasetInfo(50_000, 32, 3, True), Machine("cuda", "a GPU", 10**11))
    write(run.recipe_file, (chosen if recipe == "auto" else find_recipe(recipe)).changed(epochs=3).to_json())
    told = Teller(crops=False, images=0).tell([run])
    read = Reader(page(told))
    assert [word for word in read.words if re.match(r"Table \d: ", word)] == rows
    assert ("Beside the paper" in read.text) == bool(rows)
    if rows:
        assert {"84.44", "85.59"} <= set(read.words)
        assert "epochs (200 -> 3)" in read.text
        assert ("batch_size (512 -> 256)" in read.text) == ("tuned" in recipe)


def test_departures_name_what_was_changed(make_run):
    found = departures(read_recipe(make_run(epochs=3)))
    assert "epochs (20 -> 3)" in found
    assert departures(find_recipe("tiny")) == []
    assert rerun(find_recipe("tiny").changed(name="unknown"), "x") is None


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [Run(tmp_path / "a" / "demo"), Run(tmp_path / "b" / "demo"), Run(tmp_path / "b" / "demo")]
    assert names_of(runs) == ["a/demo", "b/demo", "b/demo (3)"]
    assert names_of(runs[:1]) == ["demo"]


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--out", "x.html"],
        ["nowhere"],
        ["{run}", "--out", "report.pdf"],
        ["{run}", "--images", "-1"],
        ["{run}", "--images", "3"],
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(line, make_run):
    run = make_run()
    with pytest.raises(UserError):
        cli.parse(["report", *(word.format(run=run.path) for word in line)]).run()
