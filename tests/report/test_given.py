"""Which runs a page is about, where folders of runs and files beside them are given."""

import json
import os

import pytest

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.given import Begun, runs_at
from logo_ssl.run import Run


@pytest.fixture
def out(tmp_path):
    """What `reproduce` leaves: two rows of two seeds, one of which is not finished, and what lies beside them."""
    for row in ("cifar10-moco", "cifar10-moco-logo"):
        for seed in (0, 1):
            run = Run(tmp_path / "out" / row / f"seed{seed}")
            write(run.recipe_file, find_recipe(row).changed(seed=seed).to_json())
            write(run.path.with_suffix(".json"), "{}")
            write(run.path.with_suffix(".log"), "epoch 1/1\n")
            if (row, seed) != ("cifar10-moco", 1):
                write(run.provenance_file, json.dumps({"commit": "abc", "seconds": 1.0}))
    write(tmp_path / "out" / "table1.md", "# Table 1\n")
    return tmp_path / "out"


def names(runs, out):
    return [str(run.path.relative_to(out)) for run in runs]


FINISHED = ["cifar10-moco/seed0", "cifar10-moco-logo/seed0", "cifar10-moco-logo/seed1"]


def test_a_folder_of_runs_stands_for_those_that_are_finished_and_names_them(out):
    runs, said = runs_at([out])
    assert names(runs, out) == FINISHED
    left = "1 is not finished and left out unless you name it"
    assert said == [f"{out} has 3 finished runs: {', '.join(FINISHED)}; {left}."]
    runs, (told,) = runs_at([out / "cifar10-moco" / "seed1", out])
    assert names(runs, out) == ["cifar10-moco/seed1", *FINISHED]
    assert "left out" not in told
    runs, said = runs_at([out / FINISHED[0], out / FINISHED[0]])
    assert (names(runs, out), said) == (FINISHED[:1], [])


def test_a_run_that_a_link_leads_to_is_shown_once_by_its_own_name(out):
    row = out / "cifar10-moco-logo"
    link = row / "latest"
    link.symlink_to("seed1")
    for paths in ([row], [row, row / "seed1"], [row, link]):
        assert names(runs_at(paths)[0], row) == ["seed0", "seed1"]
    assert names(runs_at([link, row])[0], row) == ["seed1", "seed0"]
    assert names(runs_at([link])[0], row) == ["latest"]
    link.unlink()
    link.symlink_to(out / "cifar10-moco" / "seed1")
    runs, (told,) = runs_at([link, out])
    assert names(runs, out) == ["cifar10-moco-logo/latest", *FINISHED]
    assert "left out" not in told


def test_runs_that_lie_deeper_are_found_with_those_above_them(out, tmp_path):
    above = Run(tmp_path / "top" / "few")
    write(above.recipe_file, find_recipe("tiny").to_json())
    write(above.provenance_file, "{}")
    out.rename(tmp_path / "top" / "tuned")
    runs, _ = runs_at([tmp_path])
    assert names(runs, tmp_path) == ["top/few", *(f"top/tuned/{name}" for name in FINISHED)]


@pytest.mark.parametrize("pattern", ["*", "*/seed*"])
def test_files_that_a_pattern_catches_beside_runs_are_left_out(out, pattern):
    paths = sorted(out.glob(pattern))
    runs, said = runs_at(paths)
    assert set(names(runs, out)) >= set(FINISHED)
    files = [path for path in paths if path.is_file()]
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    assert said[-1] == f"Files are no runs, and are left out: {', '.join(map(str, files[:3]))}{more}."


def test_what_holds_no_finished_run_is_refused(out):
    with pytest.raises(UserError, match=r"seed0\.json holds no run"):
        runs_at([out / "cifar10-moco" / "seed0.json"])
    for run in runs_at([out])[0]:
        run.provenance_file.unlink()
    with pytest.raises(UserError, match="but runs lie below it; name one"):
        runs_at([out])


def report(*runs_and_page, code=0):
    *runs, page = map(str, runs_and_page)
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", *runs, "--out", page, "--no-crops", "--images", "0"])
    assert (stop.value.code or 0) == code


def test_too_many_runs_are_told_with_the_folder_that_they_are_in(out, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.report.MOST_RUNS", 2)
    report(out, tmp_path / "page.html", code=2)
    told = " ".join(capsys.readouterr().err.split())
    assert f"With those below {out} there are 3 runs; give 1 to 2." in told
    report(*(out / name for name in FINISHED), tmp_path / "page.html", code=2)
    assert "3 runs were given; give 1 to 2." in capsys.readouterr().err
    with pytest.raises(UserError, match=r"^3 runs were given; give 1 to 2\.$"):
        cli.parse(["watch", *[str(out)] * 3]).run()


def test_of_more_runs_than_a_page_shows_the_newest_are_watched_and_those_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.given.MOST_RUNS", 2)
    out, said = tmp_path / "out", []

    def begin(name, at):
        write(Run(out / name).recipe_file, "{}")
        os.utime(Run(out / name).recipe_file, (at, at))

    begin("b", 3)
    begin("c", 1)
    folder, both = Begun([out], said.append), Begun([out, out / "c"], said.append)
    assert names(folder.runs(), out) == names(both.runs(), out) == ["b", "c"]
    assert said == []
    for name, at in (("a", 2), ("d", 4)):
        begin(name, at)
        folder.until = both.until = 0
        assert names(folder.runs(), out) == {"a": ["a", "b"], "d": ["b", "d"]}[name]
        assert names(both.runs(), out) == {"a": ["b", "c"], "d": ["c", "d"]}[name]
    sentence = f"With those below {out} there are 3 runs; a page shows 2: those that you name, and the newest."
    assert said == [sentence, sentence]  # one of each


def test_a_page_of_a_reproduced_table_has_its_runs_and_a_short_heading(out, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.page.plotly", lambda: "")
    page = tmp_path / "page.html"
    report(out, page)
    assert "has 3 finished runs: cifar10-moco/seed0, " in capsys.readouterr().out
    text = page.read_text()
    assert "<title>LoGo: cifar10-moco/seed0, cifar10-moco-logo/seed0, cifar10-moco-logo/seed1</title>" in text
    unfinished = out / "cifar10-moco" / "seed1"
    extra = out / "cifar10-simsiam" / "seed0"
    write(Run(extra).recipe_file, find_recipe("cifar10-simsiam").to_json())
    report(out, unfinished, extra, page)
    assert "<title>LoGo: 5 runs</title>" in page.read_text()


def test_a_run_with_a_part_of_ones_own_is_named_and_left_out_where_others_can_be_shown(
    out, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("logo_ssl.report.page.plotly", lambda: "")
    page, own = tmp_path / "page.html", Run(out / FINISHED[0])
    own.recipe_file.write_text(own.recipe_file.read_text().replace('"kind": "moco"', '"kind": "mine"'))
    told = f"{own.recipe_file} cannot be used: The recipe's framework is 'mine', and there are moco, simsiam"
    cure = "where the file that registers it runs the command: `python FILE {} ...`."
    report(out, page)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count(f"Left out: {told}") == 1
    assert cure.format("report") in said
    assert "<title>LoGo: seed0, seed1</title>" in page.read_text()
    report(own.path, page, code=2)
    assert told in capsys.readouterr().err
    for line in (["resume", str(own.path)], ["watch", str(own.path), "--port", "0"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(line)
        err = capsys.readouterr().err
        assert (stop.value.code, told in err, cure.format(line[0]) in err) == (2, True, True)
