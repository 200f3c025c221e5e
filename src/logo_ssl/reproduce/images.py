"""On which images is a row trained and measured? Known before it is, so that no table mixes them or hides them."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ..data import NAMES, ImageSet, Split, data_identity, is_placed
from ..data.images import CALLED
from ..errors import DataMissing, UserError
from ..knn import PROTOCOLS
from ..recipes import Recipe, find_recipe
from ..text import counted
from .plan import Task
from .settings import name_of
from .sources import IMAGES, images_at
from .tables import WRITTEN, PaperTable

TESTS = {"cifar10": 10_000, "stl10": 8_000, "imagenet100": 5_000}  # to test on, in the paper's sets
CLASSES = {"cifar10": 10, "stl10": 10, "imagenet100": 100}
AMONG = {
    ("test", "train"): "so figures are too good",
    ("test", "val"): "so linear figures are too good",
    ("val", "train"): "so what linear chooses may be fitted too closely",
}
"""What comes of images of the first split that the second one has, too."""
Facts = dict[str, Any]
"""What is noted of the images beside a run."""


@cache
def facts_of(source: str, size: int) -> Facts:
    """What is noted of the images of a source."""
    return facts_about(images_at(source, size))


def facts_about(data: ImageSet) -> Facts:
    """How many images there are, by what they and their labels are known, and how many of a split are in another."""
    from ..eval.copies import copies  # slow to import: only where it is needed
    from ..eval.how import Extraction

    splits = {"train": data.train} | ({} if data.test is None else {"test": data.test})
    return {
        **data_identity(data),
        "labels": {part: _digest(split) for part, split in splits.items()},
        **copies(data.train, data.test, Extraction(), _chosen_by(data)),
    }


def _chosen_by(data: ImageSet) -> Split | None:
    """The images that `linear` chooses by; those that it refuses choose nothing."""
    from ..eval.labelled import labelled_val  # slow to import: only where it is needed

    try:
        return labelled_val(data)
    except UserError:
        return None


def refuse_unmeasurable(recipes: Iterable[Recipe], measured: Mapping[str, Sequence[str]]) -> None:
    """Tell at once of images whose figures could not be measured after all the training.

    `measured` says what is measured of each recipe on the images of its pretraining.
    """
    wanted: dict[tuple[str, int], set[str]] = {}
    for recipe in recipes:
        if recipe.name in measured and recipe.data not in NAMES:
            place = recipe.data, recipe.crops.global_size
            wanted.setdefault(place, set()).update(measured[recipe.name])
    for (source, size), figures in wanted.items():
        _refuse_unlabelled(images_at(source, size), figures)


def refuse_other_images(tasks: Iterable[Task]) -> None:
    """Refuse to go on with, or to show, runs on other images than those that lie there now, or than each other's."""
    first: dict[str, Task] = {}
    for task in tasks:
        known = task.place.images()
        if not known:
            continue
        source, there = task.recipe.data, images_there(task.recipe)
        if differ(known, there):
            compared = _compared(known, there)
            told = f"{task.place.run.path} was begun on other images than {source} has now ({compared})"
            raise UserError(f"{told}; choose another --out, or give those images.")
        other = first.setdefault(name_of(source), task)
        if differ(known, other.place.images()):
            told = f"{task.place.run.path} and {other.place.run.path} were begun on different images"
            raise UserError(f"{told} ({_compared(known, other.place.images())}); make a table of each with --rows.")


def other_sets(tables: Iterable[PaperTable]) -> list[str]:
    """What to say, before anything runs, of images that are not the set on which the paper has a row."""
    places = {
        (find_recipe(row.recipe.name).data, row.recipe.data): row.recipe.crops.global_size
        for table in tables
        for row in table.rows
    }
    told = []
    for (papers, source), size in places.items():
        if source != papers and (why := _otherwise(papers, source, size)):
            who = WRITTEN.get(papers, papers)
            told.append(f"{source} is not the paper's {who} ({why}); the paper's figures are of other images.")
    return told


def _otherwise(papers: str, source: str, size: int) -> str:
    """By what a source is seen not to be a set: its name or, where that can be looked up, how much it holds."""
    if source in NAMES:
        return "by its name"
    data = images_at(source, size)
    labels, n_test = data.train.labels, 0 if data.test is None else len(data.test)
    n_classes = 0 if labels is None else len(labels[labels >= 0].unique())
    return _unlike(papers, len(data.train), n_test, n_classes)


def cut(data: str, facts: Facts) -> str:
    """By what the images of a run are seen not to be the whole of the paper's set that they are called after."""
    name = name_of(data)
    return _unlike(name, facts["train_images"], facts["test_images"]) if facts and name in IMAGES else ""


def _unlike(papers: str, n_train: int, n_test: int, n_classes: int | None = None) -> str:
    """The numbers that are not those of a set of the paper's; None: not known."""
    numbers = {
        "images to train on": (n_train, IMAGES[papers]),
        "images to test on": (n_test, TESTS[papers]),
        "classes": (n_classes, CLASSES[papers]),
    }
    return "; ".join(
        f"{n:,} {what}, not {theirs:,}" for what, (n, theirs) in numbers.items() if n not in (None, theirs)
    )


def remarks_on(data: str, facts: Facts, by_linear: bool) -> list[str]:
    """What a reader of figures must know of their images; those to choose by matter where any is `by_linear`."""
    name = name_of(data)
    if not facts:
        return [f"{name}: which images they were was not noted"]
    told = [f"{name}: {facts['train_images']:,} images to train on, {facts['test_images']:,} to test on"]
    official = IMAGES.get(name), TESTS.get(name)
    if None not in official and (facts["train_images"], facts["test_images"]) != official:
        told.append(f"not the {official[0]:,} and {official[1]:,} of the paper's {name}")
    if not facts["test_images"]:
        told.append("so kNN leaves each training image out in turn, and linear holds some of them out")
    for (part, other), therefore in AMONG.items():
        found = facts.get(f"{part}_images_in_{other}")
        if found and (by_linear or "val" not in (part, other)):
            looked_at = f"{found:,} of {facts[f'{part}_images_compared']:,} {CALLED[part]} that were looked at"
            told.append(f"{looked_at} also found among the {CALLED[other]}, {therefore}")
    return ["; ".join(told)]


def _refuse_unlabelled(data: ImageSet, figures: Collection[str]) -> None:
    from ..eval.labelled import labelled, labelled_val  # slow to import: only where it is needed

    train, test = labelled(data)
    if test is not None and any(figure != "knn" for figure in figures):
        labelled_val(data)  # which refuses classes that train lacks
    needed = min(k for k, _ in PROTOCOLS) + 1 + (test is None)  # or all would vote
    if "knn" in figures and len(train) < needed:
        why = "each of them is compared with the others" if test is None else "each test image is compared with them"
        raise UserError(
            f"{data.name} has {counted(len(train), 'labelled image')} to train on, and kNN needs {needed} or more "
            f"({why}); give more images."
        )


def _digest(split: Split) -> str:
    labels = b"" if split.labels is None else split.labels.cpu().contiguous().numpy().tobytes()
    return hashlib.sha256(labels).hexdigest()


def images_there(recipe: Recipe) -> Facts:
    """The images as they are; nothing where they are missing, of which others tell."""
    try:
        return facts_of(recipe.data, recipe.crops.global_size) if is_placed(recipe.data) else {}
    except DataMissing:
        return {}


def differ(one: Facts, other: Facts) -> bool:
    """Whether two sets are known to differ."""
    return bool(_differing(one, other, "fingerprint") or _differing(one, other, "labels"))


def _differing(one: Facts, other: Facts, what: str) -> list[str]:
    """The splits that are known to differ in their images (`fingerprint`) or their labels."""
    if what not in one or what not in other:
        return []
    return [part for part in ("train", "test") if one[what].get(part) != other[what].get(part)]


def _compared(one: Facts, other: Facts) -> str:
    """Which splits differ, and in what."""
    splits = _differing(one, other, "fingerprint")
    told = []
    for part in splits:
        n_one, n_other = one[f"{part}_images"], other[f"{part}_images"]
        same = f"{n_one:,} images of other names or contents"
        told.append(f"{part}: {f'{n_one:,} images and {n_other:,}' if n_one != n_other else same}")
    told += [f"{part}: other labels" for part in _differing(one, other, "labels") if part not in splits]
    return "; ".join(told)
