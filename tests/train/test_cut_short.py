"""Is a run that is cut short one whose rate decays to its end, and is the time that it takes known beforehand?"""

import json
import re

import pytest
from small_runs import SMALL, assert_equal_runs, at_step, console, cut_short, stop, train

from logo_ssl import pretrain, resume
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.recipes import differences, find_recipe, is_harmless, read_recipe
from logo_ssl.run import Run
from logo_ssl.train.optim import learning_rate, planned_step, rate_at

LONG = {"epochs": 10, "log_every": 1}  # of three steps each


def rates(run):
    return {line["step"]: line["lr"] for line in run.metrics() if "lr" in line}


def test_fewer_epochs_than_planned_make_the_rate_decay_from_where_it_is_to_its_end(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=4, **LONG)
    said = console()
    run = resume(tmp_path / "run", console=said, epochs=4)
    planned = SMALL.changed(epochs=10)
    seen = rates(run)
    assert max(seen) == 12
    assert seen[6] == pytest.approx(rate_at(planned, 5, 3))  # the first step after the cut, at step 5
    assert seen[12] == pytest.approx(learning_rate(planned.optimiser, 5 + 6 * 25 / 7, 30, 0))  # of seven, six are done
    assert sorted(seen.values(), reverse=True) == list(seen.values())
    assert "Cut short" in said.file.getvalue()
    assert read_recipe(run).replans == ((5, 10),)
    assert [session["epochs"] for session in json.loads(run.sessions_file.read_text())] == [10, 4]
    other = {name for name in differences(read_recipe(run), planned.changed(epochs=4)) if not is_harmless(name)}
    assert other == {"replans"}  # not called the run that was planned so
    assert find_recipe(str(run.path)).replans == ()  # one that trains by it again is not cut short


def test_a_run_that_was_cut_short_resumes_exactly_and_may_be_cut_again(data, tmp_path):
    for name in ("whole", "again"):
        cut_short(data, tmp_path / name, before_step=4, **LONG)
    whole = resume(tmp_path / "whole", console=console(), epochs=5)
    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, lambda module: stop(), 8)
        with pytest.raises(Interrupted, match="saved at step 9"):
            resume(tmp_path / "again", console=console(), epochs=5)
    assert_equal_runs(whole, resume(tmp_path / "again", console=console()))
    with pytest.raises(UserError, match=r"epochs=3: must be 6 or more"):
        resume(whole.path, console=console(), epochs=3)
    twice = SMALL.changed(epochs=6).changed(replans=((5, 10), (8, 7)))
    assert [planned_step(twice, step, 3)[0] for step in (0, 5)] == [0, 5]
    assert planned_step(twice, 18, 3) == pytest.approx((30, 30))


@pytest.mark.parametrize(("time_left", "epochs"), [("0.01s", 2), ("1h", 10)])
def test_a_run_ends_in_about_the_time_that_it_is_given(data, tmp_path, time_left, epochs):
    cut_short(data, tmp_path / "run", before_step=4, **LONG)
    run = resume(tmp_path / "run", console=console(), finish_in=time_left)
    assert run.is_finished
    assert read_recipe(run).epochs == epochs
    fresh = pretrain(SMALL, tmp_path / "fresh", data=data, epochs=3, finish_in=time_left, console=console())
    assert read_recipe(fresh).epochs == (1 if epochs == 2 else 3)


def test_a_time_that_is_none_is_named(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=1)
    with pytest.raises(UserError, match="finish_in=soon"):
        resume(tmp_path / "run", console=console(), finish_in="soon")


@pytest.mark.parametrize("line", ["pretrain tiny --epochs 3 --batch-size 16 --dry-run", "doctor"])
def test_three_steps_tell_the_minutes_and_leave_nothing(shell, photos, tmp_path, line):
    before = set(tmp_path.rglob("*"))
    code, out, err = shell(f"{line} --data {photos} --device cpu")
    assert code == 0, err
    assert re.search(r"^Time: about \d+ min, at \d+ images/s", out, re.MULTILINE)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("side", [16, 64])
def test_few_photographs_are_compared_with_ready_made_weights_before_training(photos, data, tmp_path, side):
    recipe = SMALL.changed(crops__global_size=side, loading__workers=0, epochs=1)
    _, said = train(recipe, photos, tmp_path / "run")
    assert "48 images are few. Start from ready-made weights (--init torchvision/resnet18)" in said
    assert said.index(f"eval knn torchvision/resnet18 --data {photos}") < said.index("epoch 1")
    assert "are few" not in train(recipe, data, tmp_path / "array")[1]


def test_the_recipe_of_a_run_is_taken_without_its_cuts(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=4, **LONG)
    resume(tmp_path / "run", console=console(), epochs=3)
    taken = find_recipe(str(tmp_path / "run"))
    assert (taken.epochs, taken.replans) == (3, ())
    assert find_recipe(str(Run(tmp_path / "run").recipe_file)) == taken.changed(name="recipe")
