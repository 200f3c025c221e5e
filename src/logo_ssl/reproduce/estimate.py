"""How long will it take? By the speed that was measured: of the row itself, as the user says, or on our machine."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

from ..hardware import best_device, hardware
from ..recipes import FEW_STEPS, advised_batch, differences, find_recipe
from ..show.rerun import options
from ..text import counted, listed
from .abroad import detections, transfers
from .benched import Speed, benched, benchmarks
from .plan import Task
from .settings import changes, name_of
from .sources import Images, look

UNTIMED = ("seed", "epochs")
"""Fields that a speed does not depend on."""
FASTEST = 0.95  # quantile
LONG = 12 * 60  # minutes: a row that takes longer on a CPU comes with advice
FEW_EPOCHS = 2  # what is advised then: enough to see a row run
DAY = 24 * 60  # minutes


class Estimate(NamedTuple):
    """A task, its images, and how many minutes it would take by which speed, where that is known."""

    task: Task
    images: Images
    speed: Speed | None
    left: float | None
    on_cpu: Speed | None = None
    """The most that was measured of such a row on a CPU, where there is nothing else and no speed is known of it."""

    @property
    def here(self) -> float | None:
        """Minutes that it takes on a CPU like that which was measured, where only that is known of it."""
        return minutes_left(self.task, self.images, self.on_cpu) if self.on_cpu else None


def describe(tasks: Sequence[Task], jobs: int, images_per_s: float | None = None) -> Iterator[str]:
    """What is changed; a line for each row: what would be done, how long, and by which measurement; then the sum."""
    estimates, lines = _estimates(tasks, images_per_s), dict[tuple[str, str], list[str]]()
    for estimate in estimates:
        recipe = estimate.task.recipe
        lines.setdefault((recipe.name, _line(estimate)), []).append(str(recipe.seed))
    yield from changes([task.recipe for task in tasks])
    for (row, line), seeds in lines.items():
        yield f"{row}, {'seed' if len(seeds) == 1 else 'each of seeds'} {listed(seeds)}: {line}"
    yield from _unlike(estimates)
    yield from few_steps(tasks)
    yield from dict.fromkeys(e.images.remark for e in estimates if e.images.remark and not e.task.place.finished)
    measurements = [measurement for task in tasks for measurement in task.unmeasured]
    yield from (*transfers(measurements), *detections(measurements))
    yield from _without_gpu(estimates)
    yield from ["Nothing is left to run."] if all(task.done for task in tasks) else _sums(estimates, jobs)


def days_on_a_cpu(tasks: Sequence[Task]) -> Iterator[str]:
    """How long rows take without a GPU, and what to do instead; nothing where that is no matter of days."""
    if any(best_device(task.recipe.device).type == "cpu" for task in tasks):
        estimates = _estimates([task for task in tasks if not task.place.finished])
        yield from _without_gpu([e for e in estimates if e.here and e.here > LONG])


def _estimates(tasks: Sequence[Task], images_per_s: float | None = None) -> list[Estimate]:
    known = {
        data: look(data, size) for data, size in {t.recipe.data: t.recipe.crops.global_size for t in tasks}.items()
    }
    found = []
    for task in tasks:
        images, speed = known[task.recipe.data], known_speed(task, tasks, images_per_s)
        left = minutes_left(task, images, speed)
        found.append(Estimate(task, images, speed, left, _on_cpu(task, images, speed)))
    return found


def _unlike(estimates: Iterable[Estimate]) -> Iterator[str]:
    """What measures rows like none that was measured: the whole command for one of them, and how others differ."""
    unknown = [e.task.recipe for e in estimates if e.speed is None and not (e.here or e.task.place.finished)]
    names = list(dict.fromkeys(recipe.name for recipe in unknown))
    if names:
        first, those = unknown[0], "it" if len(names) == 1 else f"these {len(names)} rows"
        changed = {
            field: of for field, of in differences(find_recipe(first.name), first).items() if field not in UNTIMED
        }
        words = shlex.join(["bench", first.name, *options(changed)])
        others = "" if len(names) == 1 else f" (others by their names in place of {first.name})"
        yield (
            f"Time unknown: nothing like {those} was measured. `logo-ssl {words}` does it{others}; --images-per-s "
            "takes its whole_step."
        )


def few_steps(tasks: Iterable[Task]) -> Iterator[str]:
    """What batches that are too large for the data come to."""
    rows = dict[tuple[int, int, int], list[str]]()
    for recipe in (task.recipe for task in tasks if not task.place.finished):
        if (n := look(recipe.data, recipe.crops.global_size).n) and (smaller := advised_batch(recipe, n)):
            rows.setdefault((recipe.batch_size, n, smaller), []).append(recipe.name)
    for (batch, n, smaller), names in rows.items():
        if (steps := max(1, n // batch)) <= FEW_STEPS:
            cut = " cut to what there is" if batch > n else ""
            few = f"A batch of {batch:,}{cut} leaves {counted(steps, 'step')} in an epoch of {n:,} images"
            yield f"{few} ({listed(dict.fromkeys(names))}); take a smaller one, with --set batch_size={smaller}, say."


def _sums(estimates: Sequence[Estimate], jobs: int) -> Iterator[str]:
    """What all rows take; those that lack images by themselves."""
    left = [e for e in estimates if not e.task.place.finished]
    absent, here = ([e for e in left if e.images.missing is missing] for missing in (True, False))
    if absent and not here:
        yield "Nothing of it can run here."
    else:
        yield f"{'What can run here' if absent else 'In all'}: {_sum(here or estimates, jobs)}."
    if absent:
        yield f"With the images that are missing{', also' if here else ''}: {_sum(absent, jobs)}."


def _sum(estimates: Sequence[Estimate], jobs: int) -> str:
    unknown = sum(e.left is None for e in estimates)
    known_length = _known_length(estimates) if unknown < len(estimates) else ""
    unknown_length = f"{counted(unknown, 'run')} of unknown length" if unknown else ""
    n_left = sum(not e.task.place.finished for e in estimates)
    order = " if one runs after another," if n_left > 1 else ""
    at_once = min(jobs, n_left)
    beside = f"; {at_once} at a time end sooner if one alone leaves the device idle" if at_once > 1 else ""
    told = " and ".join(filter(None, (known_length, unknown_length)))
    return f"{told},{order} evaluation not counted{beside}"


def _known_length(estimates: Sequence[Estimate]) -> str:
    """What all rows take: here first, where their times are another machine's."""
    total = sum(e.left or 0.0 for e in estimates)
    speeds = [e.speed for e in estimates if e.speed and e.left]
    told = f"{_roughly(speeds)} {_time(total)}"
    machines = " and ".join(dict.fromkeys(speed.elsewhere for speed in speeds if speed.elsewhere))
    if not machines:
        return told
    here = hardware(best_device(estimates[0].task.recipe.device))
    minutes = [e.here for e in estimates if e.left]
    if not all(minutes):
        return f"{told} on {machines} (here: {here})"
    return f"about {_span(sum(filter(None, minutes)))} without a GPU (here: {here}); {told} on {machines}"


def _without_gpu(estimates: Iterable[Estimate]) -> Iterator[str]:
    """How long rows take on a CPU, where only that is known of it, by whose measurement, and what to do instead."""
    found = [(e.here, e.on_cpu, name_of(e.task.recipe.data)) for e in estimates if e.on_cpu and e.here]
    if not found:
        return
    minutes, speeds, sets = zip(*found, strict=True)
    images_per_s = [speed.images_per_s for speed in speeds]
    most = " to ".join(dict.fromkeys(f"{speed:.0f}" for speed in (min(images_per_s), max(images_per_s))))
    yield (
        f"Without a GPU a row on {listed(sets)} takes about {_span(min(minutes), max(minutes))}, by the most that "
        f"was measured ({most} images/s on {speeds[0].elsewhere}, commit {listed(speed.commit for speed in speeds)}; "
        "more cores are faster)."
    )
    if max(minutes) > LONG:
        gpu = "Use a machine with one" if best_device("auto").type == "cpu" else "Leave out --device cpu"
        fewer = f"or fewer epochs (--epochs {FEW_EPOCHS})"
        yield f"{gpu}, {fewer}, or see a small encoder learn in minutes: `logo-ssl pretrain tiny`."


def _on_cpu(task: Task, images: Images, speed: Speed | None) -> Speed | None:
    known_here = speed is not None and not speed.elsewhere
    if known_here or images.missing or best_device(task.recipe.device).type != "cpu":
        return None
    return benched(task.recipe, benchmarks("speed-cpu.jsonl"))


def _span(least: float, most: float | None = None) -> str:
    """From so many minutes to so many: in days, where the shorter time has two, or as other times are told."""
    spans = least, least if most is None else most
    if least < 2 * DAY:
        return " to ".join(dict.fromkeys(map(_time, spans)))
    return f"{' to '.join(dict.fromkeys(f'{minutes / DAY:,.0f}' for minutes in spans))} days"


def known_speed(task: Task, tasks: Sequence[Task], images_per_s: float | None) -> Speed | None:
    """The best witness: the run's own log, the user, that of the row's seed with the least company, our measurements.

    The user comes before another seed, since only the user knows whether other commands slowed that one down.
    """
    same = [task] if images_per_s is not None else [other for other in tasks if other.recipe.name == task.recipe.name]
    for other in sorted(same, key=lambda other: (other is not task, _company(other))):
        if speeds := [line["images_per_s"] for line in other.place.run.metrics() if "images_per_s" in line]:
            return _witnessed(other, speeds)
    if images_per_s is not None:
        return Speed(images_per_s, "as --images-per-s says")
    return benched(task.recipe, benchmarks())


def _company(task: Task) -> int:
    return task.place.record().get("jobs", 1)


def _witnessed(task: Task, speeds: Sequence[float]) -> Speed:
    """The speed of a run's own log and where it ran; beside others, that of its fastest steps, which had the least."""
    at_once = _company(task)
    beside = f", the fastest steps of {at_once} rows at once" if at_once > 1 else ""
    images_per_s = sorted(speeds)[ceil(FASTEST * (len(speeds) - 1))] if at_once > 1 else median(speeds)
    there = (task.place.provenance() or {}).get("hardware", "")
    here = hardware(best_device(task.recipe.device))
    elsewhere = "" if there == here else there
    on = f" on {elsewhere}" if elsewhere else ""
    known = benched(task.recipe, benchmarks())  # tells how long such a row takes to start, and its kNN
    start_s, knn_s = (known.start_s, known.knn_s) if known and known.elsewhere == (there or here) else (0.0, 0.0)
    source = f"measured in {task.place.run.path}{on}{beside}"
    return Speed(images_per_s, source, start_s, knn_s, elsewhere, "up to" if at_once > 1 else "about")


def minutes_left(task: Task, images: Images, speed: Speed | None) -> float | None:
    """Minutes of training that are left, where that is known."""
    done = task.place.epochs_done(task.recipe)
    if task.place.finished:
        return 0.0
    if speed is None or images.n is None:
        return None
    learning_s = (task.recipe.epochs - done) * images.n / speed.images_per_s
    return (speed.start_s + learning_s + task.recipe.evaluations_after(done) * speed.knn_s) / 60


def _line(estimate: Estimate) -> str:
    task, images, *_ = estimate
    if task.done:
        return "finished"
    if task.place.finished:
        return f"trained; to measure: {', '.join(task.unmeasured)}"
    done, epochs = task.place.epochs_done(task.recipe), task.recipe.epochs
    goes_on = f"goes on after {done} of {epochs} epochs" if done else f"{epochs} {'epoch' if epochs == 1 else 'epochs'}"
    how_many = f"{images.n:,}" if images.n else "an unknown number of"
    absent = f"; cannot run here, {name_of(task.recipe.data)} is missing" if images.missing else ""
    return f"{goes_on} of {how_many} images, {_length(estimate)}{absent}"


def _length(estimate: Estimate) -> str:
    """How long a row takes, by which measurement: first here, where that is another machine's."""
    _, _, speed, left, _ = estimate
    here = f"about {_span(estimate.here)} without a GPU" if estimate.here else ""
    if speed is None:
        return here or "time unknown"
    told = f"{speed.images_per_s:,.0f} images/s {speed.source}"
    start = ", most of it to start" if left and speed.start_s > 60 * left / 2 else ""
    told = f"time unknown ({told})" if left is None else f"{speed.bound} {_time(left)}{start} ({told})"
    return f"{here}; elsewhere {told}" if here else told


def _roughly(speeds: Iterable[Speed]) -> str:
    """Which way a sum errs: as those of its terms that err one way; either way, where they do not agree."""
    bounds = {speed.bound for speed in speeds} - {"about"}
    return bounds.pop() if len(bounds) == 1 else "about"


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    hours, rest = divmod(round(minutes), 60)
    return f"{hours} h {rest} min" if hours else f"{minutes:.1f} min"
