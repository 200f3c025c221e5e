"""How long a table takes: by which passes, how well that does, and how it is told."""

import re
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import tyro

from logo_ssl.arguments import parse
from logo_ssl.chosen import recipe_of
from logo_ssl.recipes import find_recipe
from logo_ssl.reproduce import estimate
from logo_ssl.reproduce.benched import Speed, benched, benchmarks, cost, measured_recipe, network_of
from logo_ssl.reproduce.estimate import _roughly, _time
from logo_ssl.reproduce.plan import Place, Task
from logo_ssl.reproduce.sources import Images

PIXELS = 32**2


@pytest.fixture
def _with_gpu(monkeypatch):
    """Whatever this machine has, it passes for one with a GPU that nothing was measured on."""
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cuda"))
    monkeypatch.setattr(estimate, "hardware", lambda device: "a GPU")


@pytest.mark.parametrize(
    ("recipe", "pairs", "units"),
    [
        ("cifar10-moco", "paper", 3 + 1),
        ("cifar10-moco", "mean", 2 * 3 + 2),
        ("cifar10-moco-logo", "mean", 4 * 3 + 2),
        ("cifar10-moco-logo", "paper", 3 * 3 + 2),
        ("cifar10-simsiam", "paper", 2 * 3),
        ("cifar10-simsiam-logo", "mean", 4 * 3),
    ],
)
def test_a_step_costs_what_passes_forward_and_thrice_what_comes_back(recipe, pairs, units):
    recipe = find_recipe(recipe)
    assert cost(replace(recipe, strategy=replace(recipe.strategy, pairs=pairs))) == units * PIXELS


def test_a_measured_row_is_predicted_from_the_others_of_its_network():
    """How well it does: within 4 % for SimSiam and 12 % for MoCo, where pixels alone are wrong by a factor of 1.6.

    Each row is predicted from its like, of its own batch where there is one. Small local crops take more than their
    passes tell, by a third, and smaller batches than were measured by half, which is told as "at least".
    """
    errors = {"about": {}, "at least": {}}
    for bench in benchmarks():
        recipe = measured_recipe(bench)
        others = [line for line in benchmarks() if line["recipe"] != recipe.name]
        others = [line for line in others if network_of(measured_recipe(line)) == network_of(recipe)]
        others = [line for line in others if line["batch_size"] == recipe.batch_size] or others
        if others:
            predicted = benched(recipe, others)
            error = 100 * (predicted.images_per_s / bench["images_per_s"]["whole_step"] - 1)
            errors[predicted.bound][recipe.name] = error
    alike = {"cifar10-simsiam-logo": 3.6, "cifar10-moco-logo": -10.8, "cifar10-simsiam": -3.5, "cifar10-moco": 12.1}
    small = {"cifar10-tuned-moco-logo": 31.3, "cifar10-tuned-moco": -23.9}
    assert errors["about"] == pytest.approx(alike | small, abs=0.1)
    assert errors["at least"] == pytest.approx({"cifar10-tuned-simsiam-logo": 53.7}, abs=0.1)


def test_a_measured_row_is_predicted_nearly_as_well_from_another_framework():
    """Within 13 %: passes tell the cost, whoever makes them; each row from those of the other framework."""
    errors = {}
    for bench in benchmarks()[:4]:
        recipe = measured_recipe(bench)
        others = [b for b in benchmarks() if type(measured_recipe(b).framework) is not type(recipe.framework)]
        errors[recipe.name] = 100 * (benched(recipe, others).images_per_s / bench["images_per_s"]["whole_step"] - 1)
    assert errors == pytest.approx(
        {"cifar10-simsiam-logo": 3.0, "cifar10-moco-logo": -2.9, "cifar10-simsiam": -11.3, "cifar10-moco": 12.7},
        abs=0.1,
    )


def test_a_row_that_waited_for_images_promises_no_more_to_those_with_fewer_passes():
    (bench,) = (line for line in benchmarks() if line["backbone"] == "resnet34")
    measured, faster = measured_recipe(bench), find_recipe("imagenet100-moco")
    told = benched(faster, [bench])
    assert cost(faster) < cost(measured)
    assert told.images_per_s == bench["images_per_s"]["whole_step"]
    assert told.source.endswith(f"commit {bench['commit']}, not scaled, since it waited for images")
    more = benched(measured.changed(crops__local_size=224), [bench])
    assert more.images_per_s < told.images_per_s
    assert more.source.endswith("scaled by the passes of the crops")
    quick = benched(faster, [bench | {"ratio": 0.9}])
    assert quick.images_per_s == pytest.approx(told.images_per_s * cost(measured) / cost(faster))


@pytest.mark.usefixtures("_with_gpu")
def test_a_row_whose_images_are_missing_tells_what_it_would_take_with_them(reproduce):
    _, out, _ = reproduce("table4 --dry-run", small=False)
    told = dict(line.split(": ", 1) for line in out.splitlines() if ", seed 0: " in line)
    assert told["imagenet100-moco, seed 0"] == (
        "200 epochs of 126,689 images, up to 2 h 31 min (2,810 images/s as imagenet100-simsiam-logo with other images "
        "on NVIDIA H200, commit 044e26273c51, not scaled, since it waited for images); cannot run here, imagenet100 is "
        "missing"
    )
    assert out.splitlines()[-2:] == [
        "Nothing of it can run here.",
        "With the images that are missing: up to 5 h 2 min on NVIDIA H200 (here: a GPU) and 2 runs of unknown length, "
        "if one runs after another, evaluation not counted.",
    ]
    _, out, _ = reproduce("table4 --dry-run --rows *resnet50-moco --images-per-s 1000", small=False)
    assert "of 126,689 images, about 7 h 2 min (1,000 images/s as --images-per-s says); cannot run here" in out


def test_rows_like_none_that_was_measured_name_once_the_whole_command_that_measures_them(reproduce, data):
    def told(line, **how):
        return reproduce(f"{line} --dry-run", **how)[1]

    bench = "`logo-ssl bench stl10-moco` does it (others by their names in place of stl10-moco); --images-per-s takes"
    out = told("table2 --epochs 3", small=False)
    assert out.count(f"Time unknown: nothing like these 4 rows was measured. {bench} its whole_step.\n") == 1
    assert out.count("stl10-simsiam, seed 0: 3 epochs of 105,000 images, time unknown\n") == 1
    assert "time unknown; cannot run here" in told("table4", small=False)
    (line,) = re.findall(r"nothing like it was measured. `logo-ssl (.*)` does it; --im", told("table1 --rows *-moco"))
    assert line.startswith(f"bench cifar10-moco --data {data} --backbone tiny --batch-size 64 --crops.global-size 16")
    chosen, rest = recipe_of("bench", shlex.split(line)[1:])
    options = tyro.conf.OmitArgPrefixes[type(chosen)]
    assert parse(options, rest, prog="bench", default=chosen).crops.global_size == 16  # it can be typed


@pytest.mark.usefixtures("_with_gpu")
def test_a_dry_run_runs_nothing_and_says_where_its_estimate_comes_from(reproduce, performed, tmp_path):
    code, out, _ = reproduce("table1 table3 table2 fig1b --dry-run --jobs 2", small=False)
    assert (code, performed) == (0, [])
    assert not (tmp_path / "out").exists()
    told = dict(line.split(": ", 1) for line in out.splitlines() if ", seed 0: " in line)
    assert told["cifar10-moco-logo, seed 0"] == (
        "200 epochs of 50,000 images, about 8.1 min (23,458 images/s as cifar10-moco-logo on NVIDIA H200, "
        "commit a5b794e6a836, scaled by the passes of the crops)"  # it averaged pairs, both ways
    )
    assert told["cifar10-moco, seed 0"].endswith(
        "about 3.7 min (57,567 images/s as cifar10-moco on NVIDIA H200, commit a5b794e6a836)"
    )
    assert "time unknown" in told["stl10-moco, seed 0"]
    assert told["imagenet100-moco, seed 0"].endswith("; cannot run here, imagenet100 is missing")
    assert out.count("place ImageNet as") == 1
    here, missing = out.splitlines()[-2:]
    assert here.startswith(
        "What can run here: about 25.5 min on NVIDIA H200 (here: a GPU) and 4 runs of unknown length,"
    )
    assert missing.startswith("With the images that are missing, also: up to 10 h 3 min on NVIDIA H200")
    _, out, _ = reproduce("table1 table7 --tuned --dry-run --rows cifar10-tuned-moco", small=False)
    assert "about 6.4 min (27,521 images/s as cifar10-tuned-moco on NVIDIA H200, commit 2ea6ff9980e7)" in out
    assert "No row of table7 matches --rows, so it is left out." in out
    _, out, _ = reproduce("table2 --dry-run --rows stl10-moco", small=False)
    assert out.splitlines()[-1].startswith("In all: 1 run of unknown length, evaluation not counted")
    _, out, _ = reproduce("table2 --dry-run --images-per-s 5000", small=False)
    assert "stl10-moco, seed 0: 200 epochs of 105,000 images, about 1 h 10 min (5,000 images/s as --images-per-s" in out


def test_days_on_a_cpu_are_told_with_what_to_do_instead(reproduce, monkeypatch):
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cpu"))
    _, out, _ = reproduce("table1 table2 --dry-run", small=False)
    advice = ", or fewer epochs (--epochs 2), or see a small encoder learn in minutes: `logo-ssl pretrain tiny`."
    assert (
        "Without a GPU a row on cifar10 takes about 4 to 11 days, by the most that was measured (11 to 30 images/s "
        f"on CPU, 2 threads, commit 1ada8f4d8974; more cores are faster).\nUse a machine with one{advice}\n"
    ) in out
    _, out, _ = reproduce("table1 --rows cifar10-simsiam --epochs 2 --dry-run", small=False)
    assert "Without a GPU a row on cifar10 takes about 1 h 7 min, by the most that was measured (25 images" in out
    assert "pretrain tiny" not in out
    assert "Without" not in reproduce("table2 --dry-run", small=False)[1]  # nothing like it was measured
    assert "Without" not in reproduce("table1 --dry-run --images-per-s 9", small=False)[1]  # somebody knows better
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cuda" if wish == "auto" else wish))
    monkeypatch.setattr(estimate, "hardware", lambda device: "a GPU")
    assert f"\nLeave out --device cpu{advice}\n" in reproduce("table1 --dry-run --device cpu", small=False)[1]
    assert "Without" not in reproduce("table1 --dry-run", small=False)[1]


@pytest.mark.parametrize(
    ("least", "most", "told"),
    [
        (5, 20, "5.0 min to 20.0 min"),
        (69, 69.3, "1 h 9 min"),
        (56.2, 153, "56.2 min to 2 h 33 min"),
        (5_500, 15_000, "4 to 10 days"),
        (5_500, 5_600, "4 days"),
    ],
)
def test_a_span_is_told_in_days_or_as_other_times_are(least, most, told):
    assert estimate._span(least, most) == told


@pytest.mark.parametrize("file", ["speed.jsonl", "speed-cpu.jsonl"])
def test_a_speed_is_of_the_batches_that_were_measured(file):
    for bench in benchmarks(file):
        assert measured_recipe(bench).batch_size == bench["batch_size"]
        other = find_recipe(bench["recipe"]).changed(batch_size=bench["batch_size"] * 2)
        assert f" in batches of {bench['batch_size']} on " in benched(other, [bench]).source


def test_a_row_is_predicted_from_what_is_nearest_in_cost_and_batch():
    tuned, paper = find_recipe("cifar10-tuned-simsiam"), find_recipe("cifar10-simsiam")
    assert benched(tuned, benchmarks()).source.startswith("as cifar10-tuned-simsiam-logo on")  # alike in its batch
    assert benched(paper, benchmarks()).source.startswith("as cifar10-simsiam on")


def test_speeds_are_told_from_low_to_high_whatever_the_epochs(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cpu"))
    epochs = {"cifar10-moco": 100, "cifar10-moco-logo": 1}  # the faster one takes longer
    tasks = [Task(find_recipe(name).changed(epochs=n), Place(tmp_path / name), ()) for name, n in epochs.items()]
    estimates = [
        estimate.Estimate(task, Images(50_000), None, None, estimate._on_cpu(task, Images(50_000), None))
        for task in tasks
    ]
    told, _ = estimate._without_gpu(estimates)
    assert "(11 to 30 images/s on" in told


def test_without_a_gpu_each_row_tells_first_what_it_takes_here(reproduce, monkeypatch):
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cpu"))
    monkeypatch.setattr(estimate, "hardware", lambda device: "an abacus")
    _, out, _ = reproduce("table1 --dry-run", small=False)
    assert (
        "cifar10-moco, seed 0: 200 epochs of 50,000 images, about 4 days without a GPU; elsewhere about "
        "3.7 min (57,567 images/s as cifar10-moco on NVIDIA H200, "
    ) in out
    assert out.splitlines()[-1].startswith(
        "In all: about 28 days without a GPU (here: an abacus); about 25.5 min on NVIDIA H200, "
    )
    _, out, _ = reproduce("table1 --dry-run --set backbone=resnet34 --rows cifar10-moco", small=False)
    assert "days" not in out  # nothing like it was measured on a CPU


def test_rows_that_take_days_on_a_cpu_are_told_before_they_begin_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "look", lambda data, size: Images(50_000))
    tasks = [Task(find_recipe("cifar10-moco").changed(epochs=n), Place(tmp_path / str(n)), ()) for n in (200, 2)]
    for device, n_told in (("cpu", 2), ("cuda", 0)):
        monkeypatch.setattr(estimate, "best_device", lambda wish, device=device: torch.device(device))
        assert len(list(estimate.days_on_a_cpu(tasks))) == n_told
    monkeypatch.setattr(estimate, "best_device", lambda wish: torch.device("cpu"))
    told, _ = estimate.days_on_a_cpu(tasks)
    assert told.startswith("Without a GPU a row on cifar10 takes about 4 days, by the most that was measured")
    assert not list(estimate.days_on_a_cpu(tasks[1:]))


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (["about", "at least"], "at least"),
        (["about", "up to"], "up to"),
        (["at least", "up to"], "about"),
        (["about", "at least", "up to"], "about"),
        (["about"], "about"),
    ],
)
def test_a_sum_errs_as_its_terms_do(bounds, told):
    assert _roughly(Speed(1.0, "", bound=bound) for bound in bounds) == told


@pytest.mark.parametrize(
    ("minutes", "told"),
    [
        (0.04, "2 s"),
        (1, "1.0 min"),
        (59.4, "59.4 min"),
        (60, "1 h 0 min"),
        (116.3, "1 h 56 min"),
        (143.7, "2 h 24 min"),
    ],
)
def test_what_takes_long_is_told_in_hours(minutes, told):
    assert _time(minutes) == told


@pytest.mark.usefixtures("_with_gpu")
def test_a_row_in_smaller_batches_than_were_measured_takes_at_least_as_long(reproduce, performed):
    _, out, _ = reproduce("table1 --tuned --dry-run --jobs 99 --seeds 8 --set batch_size=64", small=False)
    told = [line for line in out.splitlines() if " min (" in line]
    assert len(told) == 4
    assert all(", each of seeds 0, 1, 2, 3, 4, 5, 6 and 7: 200 epochs" in line and "at least" in line for line in told)
    assert re.search(
        r"In all: at least 4 h 45 min on .*, if one runs after another, evaluation not counted; 32 at", out
    )
    _, out, _ = reproduce("table1 --dry-run --rows cifar10-moco --jobs 99", small=False)
    assert re.search(r"In all: about 3.7 min on .*\), evaluation not counted\.$", out.strip())


def test_a_dry_run_names_what_is_changed_and_the_rows_that_it_reaches(reproduce):
    line = "table1 --dry-run --set strategy.lam=0.1 --set crops.global_scale=0.3,1 --set loggers= --epochs 3"
    _, out, _ = reproduce(line, small=False)
    everywhere, some = (line for line in out.splitlines() if line.startswith("Changed in "))
    assert everywhere == (
        "Changed in all rows: epochs 3 (recipe: 200), crops.global_scale 0.3 1.0 "
        "(recipe: 0.2 1.0 or 0.4 1.0), loggers none (recipe: tensorboard)."
    )
    assert some == "Changed in cifar10-moco-logo and cifar10-simsiam-logo: strategy.lam 0.1 (recipe: 0.0005 or 0.0001)."
    _, out, _ = reproduce("table1 --dry-run --rows cifar10-moco --set batch_size=64", small=False)
    assert "Changed in cifar10-moco: batch_size 64 (recipe: 512)." in out
    assert "Changed" not in reproduce("table1 --dry-run", small=False)[1]


def test_batches_that_leave_hardly_a_step_are_told_before_anything_runs(reproduce, data):
    row = f"table1 --dry-run --rows cifar10-moco --data {data}"
    _, out, _ = reproduce(f"{row} --set batch_size=5000", small=False)
    told = "A batch of 5,000 cut to what there is leaves 1 step in an epoch of"
    assert told in " ".join(out.split())
    (advised,) = re.findall(
        r"\(cifar10-moco\); take a smaller one, with --set batch_size=(\d+), say", " ".join(out.split())
    )
    assert "in an epoch of" not in reproduce(f"{row} --set batch_size={advised}", small=False)[1]
    assert "in an epoch of" not in reproduce(f"{row} --set batch_size=8", small=False)[1]


def test_what_a_dry_run_needs_is_soon_imported():
    code = "import sys, logo_ssl.reproduce.command; sys.exit(bool({'lightning', 'torchvision'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
