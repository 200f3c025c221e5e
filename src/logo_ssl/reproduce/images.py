"""On which images is a row trained and measured? Known before it is, so that no table mixes them or hides them."""

from collections.abc import Iterable
from typing import Any

from ..data import load_data
from ..data.sources import NAMES
from ..errors import DataMissing, UserError
from ..recipes import Recipe
from ..terminal import counted
from .plan import Task
from .settings import name_of
from .sources import IMAGES, is_placed
from .tables import KNN

TESTS = {"cifar10": 10_000, "stl10": 8_000, "imagenet100": 5_000}  # to test on, in the paper's sets
Facts = dict[str, Any]
"""What is noted of the images beside a run."""


def facts_of(source: str, size: int) -> Facts:
    """How many images there are, by what they are known, and what spoils figures; UserError where none can be told."""
    from ..evaluate.copies import copies  # slow to import: only where it is needed
    from ..evaluate.fingerprints import data_fingerprint
    from ..evaluate.how import Extraction
    from ..evaluate.labelled import labelled

    data = load_data(source, size)
    train, test = labelled(data)
    most, n = max(k for k, _ in KNN), len(train) - (test is None)
    if n < most:
        raise UserError(
            f"{source} has {counted(n, 'labelled image')} to compare with, and kNN with k={most} needs as many "
            "neighbours; give more images."
        )
    splits = {"train": data.train, "test": data.test}
    return {
        "train_images": len(data.train),
        "test_images": 0 if test is None else len(test),
        "fingerprint": {part: data_fingerprint(split.images) for part, split in splits.items() if split is not None},
        **copies(train, test, Extraction()),
    }


def refuse_unmeasurable(recipes: Iterable[Recipe]) -> None:
    """Tell at once of images whose figures could not be measured after all the training."""
    for source, size in _places(recipes):
        if source not in NAMES:
            facts_of(source, size)


def refuse_other_images(tasks: Iterable[Task]) -> None:
    """Refuse to go on with, or to show, a run on other images than those that lie there now."""
    noted = [task for task in tasks if _noted(task)]
    now = {place: _there(*place) for place in _places(task.recipe for task in noted)}
    for task in noted:
        there, known = now[task.recipe.data, task.recipe.crops.global_size], _noted(task)
        if there and there["fingerprint"] != known["fingerprint"]:
            raise UserError(
                f"{task.place.run.path} was begun on other images ({_counts(known)}) than {task.recipe.data} has now "
                f"({_counts(there)}); choose another --out, or give the same images."
            )


def remarks_on(data: str, facts: Facts) -> list[str]:
    """What a reader of figures must know of their images."""
    if not facts:
        return []
    name = name_of(data)
    told = [f"{name}: {facts['train_images']:,} images to train on, {facts['test_images']:,} to test on"]
    official = IMAGES.get(name), TESTS.get(name)
    if None not in official and (facts["train_images"], facts["test_images"]) != official:
        told.append(f"not the {official[0]:,} and {official[1]:,} of the paper's {name}")
    if not facts["test_images"]:
        told.append("so kNN leaves each training image out in turn, and linear holds some of them out")
    if found := facts.get("test_images_in_train"):
        compared = facts["test_images_compared"]
        told.append(
            f"{found:,} of {compared:,} test images that were looked at are training images, so figures are too good"
        )
    return ["; ".join(told)]


def _places(recipes: Iterable[Recipe]) -> list[tuple[str, int]]:
    return list(dict.fromkeys((recipe.data, recipe.crops.global_size) for recipe in recipes))


def _noted(task: Task) -> Facts:
    return task.place.record().get("images", {}) if task.place.begun or task.place.finished else {}


def _there(source: str, size: int) -> Facts:
    """The images as they are; nothing where they are missing, of which others tell."""
    try:
        return facts_of(source, size) if is_placed(source) else {}
    except DataMissing:
        return {}


def _counts(facts: Facts) -> str:
    return f"{facts['train_images']:,} + {facts['test_images']:,}"
