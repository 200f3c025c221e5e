"""The page is whole by itself, shows every run's numbers, and takes nobody's name for HTML."""

import json
import math
import re
from html.parser import HTMLParser

import pytest

from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector, signs_of_collapse
from logo_ssl.report.commands import Report
from logo_ssl.report.page import MOST_POINTS, page, plots
from logo_ssl.run import Run

HOSTILE = "<img src=x onerror=alert(1)>&\"'"
VOID = {"meta", "link", "img", "input", "br"}


class Reader(HTMLParser):
    """Elements, text and tags that were not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.elements, self.words, self.code = [], [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

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

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def make(tmp_path):
    """A run of the paper's recipe with a log."""

    def make(name="first", lines=60, **changes) -> Run:
        run = Run(tmp_path / "runs" / name.replace("/", "_"))
        run.path.mkdir(parents=True)
        run.recipe_file.write_text(find_recipe("cifar10-moco-logo").changed(**{"epochs": 6} | changes).to_json())
        logged = [{"step": i, "loss": 5 - i / lines, "lr": 0.1, "epoch": 6 * i // lines} for i in range(1, lines)]
        logged.append({"step": lines, "z_std": 0.9, "z_rank": 30.0, "epoch": 5})
        logged.append({"step": lines, "knn": 61.25, "knn_k": 20, "knn_tau": 0.07, "epochs_done": 6})
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in logged))
        batches = {"train_images": lines // 6 * 512, "test_images": 0, "fingerprint": {}}
        run.images_file.write_text(json.dumps(batches))
        run.provenance_file.write_text(json.dumps({"commit": "abc123", "seconds": 1.0, "versions": {"torch": "2"}}))
        return run

    return make


def summaries(*runs, **options):
    return RunCollector(crops=False, images=0, **options).collect(runs)


def read(*runs):
    return Reader(page(summaries(*runs)))


def evaluate(run):
    raw, knn = ([{"k": 20, "tau": 0.07, "top1": top1}] for top1 in (43.21, 56.78))
    record = {"data": "cifar10", "results": knn, "baselines": {"raw pixels": {"results": raw}}}
    write(run.evaluation_file("knn"), json.dumps({"protocol": "weighted kNN"} | record))
    linear = {"protocol": "MoCo's SGD", "data": "cifar10", "results": {"top-1": 71.11, "top-5": 99.5}}
    write(run.evaluation_file("linear-sgd-cifar10-0"), json.dumps(linear))
    row = {"task": "same image", "metric": "AUC", "references": 9, "chance": 0.5}
    row |= {key: {"mean": 0.7654, "low": 0.7, "high": 0.8} for key in ("learned", "cosine")}
    write(run.evaluation_file("affinity-x-0"), json.dumps({"protocol": "crops", "data": HOSTILE, "results": [row]}))
    run.evaluation_file("torn").write_text("{")


def test_the_page_shows_every_number_with_its_protocol(make):
    run = make()
    evaluate(run)
    text = read(run).text
    for number in ("61.25", "56.78", "71.11", "0.765", "0.700 to 0.800", "43.21", "99.50", "84.44", "abc123"):
        assert number in text, number
    for words in (
        "after the last epoch, k=20, tau=0.07",
        "MoCo's SGD",
        "the paper's MoCo+LoGo, Table 1",
        "optimiser.lr",
    ):
        assert words in text, words


def test_existing_outputs_are_kept_without_overwrite(make, tmp_path):
    run, out = make(), tmp_path / "r.html"
    out.write_text("precious")
    (tmp_path / "f").mkdir()
    for options in ({"out": out}, {"out": tmp_path / "new.html", "figures": tmp_path / "f"}):
        with pytest.raises(UserError, match="exists"):
            Report((run.path,), crops=False, images=0, **options).run()
    assert out.read_text() == "precious"


def test_nothing_is_loaded_from_outside(make):
    found = read(make())
    for _, attributes in found.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
        assert not any(name.startswith("on") for name in attributes)
    policy = next(m["content"] for m in found.all("meta") if m.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert not re.search(r"url\(|@import|https?:", found.code["style"])


def test_hostile_names_are_shown_as_text(make):
    run = make(HOSTILE, data=f"/{HOSTILE}")
    evaluate(run)
    run.bad_images_file.write_text("image,reason\r\n<script>x.jpg,torn\r\n")
    other = make("</script><script>alert(2)</script>")
    found = read(run, other)
    assert HOSTILE in found.text
    assert not any(attributes.get("src") == "x" for attributes in found.all("img"))
    assert len(found.all("script")) == 3
    assert other.path.name in found.text
    assert "<script>x.jpg" in found.text
    assert "<" not in found.code["plots"]


def test_long_curves_are_thinned_and_keep_their_end(make):
    curve = next(plot for plot in plots(summaries(make(lines=5000))) if plot["name"] == "loss")["traces"][0]
    assert len(curve["x"]) <= MOST_POINTS + 1
    assert curve["x"][-1] == pytest.approx(6.0, abs=0.01)


def test_a_run_that_diverged_has_a_page_without_what_is_not_finite(make):
    run = make(epochs=2)
    lines = [{"step": 1, "loss": 1.5}, {"step": 9, "loss": math.nan, "z_std": math.inf, "z_rank": math.nan, "epoch": 1}]
    lines.append({"step": 9, "knn": math.nan, "knn_k": 20, "knn_tau": 0.07, "knn_images": 10, "epochs_done": 2})
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    write(run.evaluation_file("linear-x-0"), json.dumps({"results": {"top-1": math.nan}, "test_images": 10}))
    run.evaluation_file("torn").write_text("{")
    found = read(run)
    assert "nan %" not in found.text
    loss = next(plot for plot in json.loads(found.code["plots"]) if plot["name"] == "loss")
    assert loss["traces"][0]["y"] == [1.5, None]


def test_a_run_that_has_only_begun_has_a_page(make):
    run = make()
    run.metrics_file.unlink()
    run.provenance_file.unlink()
    text = read(run).text
    assert "stopped, 0.0 of 6 epochs" in text
    assert "Nothing was logged yet" in text
    assert "No accuracy was measured" in text


def test_a_run_whose_data_are_elsewhere_has_a_page_without_images(make_run, tmp_path, capsys):
    run = make_run(data="/nowhere/at/all")
    Report((run.path,), tmp_path / "r.html").run()
    found = Reader((tmp_path / "r.html").read_text())
    assert found.all("img") == []
    for text in (found.text, capsys.readouterr().out):
        assert "neighbours, maps and affinities: /nowhere/at/all is not there." in text
    there = tmp_path / "there"
    there.mkdir()
    Report((run.path,), tmp_path / "r.html", data=str(there), overwrite=True).run()
    assert "Not shown" not in capsys.readouterr().out
    assert Reader((tmp_path / "r.html").read_text()).all("img")


@pytest.mark.parametrize(("first", "shown"), [(100, True), (200, False), (None, False)])
def test_a_run_that_was_made_longer_says_that_one_command_gives_another(make, first, shown):
    run = make(epochs=200)
    run.provenance_file.write_text(json.dumps({"epochs": 200, "epochs_first_planned": first}))
    assert ("planned for 100 at first" in read(run).text) is shown


RECIPE = find_recipe("tiny")


def latents(epoch, std, rank=20.0, **more):
    return {"step": 10 * epoch, "z_std": std, "z_rank": rank, "epoch": epoch - 1, **more}


SIGNS = [
    ([latents(1, 0.4), latents(2, 0.9)], []),
    ([latents(1, 0.9), latents(2, 0.01, 1.2)], ["spread 0.010"]),
    ([latents(1, 0.9), latents(2, 0.01, 1.2), latents(3, 0.9)], []),  # over again
    ([latents(1, 0.02, z_std_widest=0.3), latents(2, 0.02)], ["spread 0.020"]),
    ([latents(1, 0.58, 2.3), latents(2, 0.91, 2.5)], ["rank 2.5"]),
    ([{"step": 1, "ratio": 1.5}, latents(1, 0.9), latents(2, 0.001)], ["spread 0.001"]),
]


@pytest.mark.parametrize(("lines", "words"), SIGNS, ids=str)
def test_signs_of_collapse_are_those_at_the_last_measurement(lines, words):
    found = signs_of_collapse(lines, RECIPE)
    assert len(found) == len(words)
    assert all(word in sign for word, sign in zip(words, found, strict=True))
