"""What is a recipe for? Its row of the paper or its purpose, and what it learns from which crops, in two sentences."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from ..text import counted, listed
from .paper import RECIPES
from .parts import PARTS
from .recipe import Recipe

BEYOND = "The paper's settings with a framework that it does not try."
OURS = {
    "tiny": "A small encoder that learns made-up scenes in minutes on a CPU.",
    "cifar10-best": "Our highest kNN on CIFAR-10 (docs/results/cifar10.md): MoCo with all pairs of six large crops.",
    "imagenette-*": "For photographs of about 128 px (docs/results/imagenette.md).",
    "*-supervised": "Learns from labels, to compare with what is learned without any.",
    "imagenet100-resnet50-moco-augself": "MoCo that also learns what was done to its crops, MoCo+Aug* of Table 5.",
    "imagenet100-resnet50-moco-multicrop": "MoCo-LoGo w/o L2L of Table 5.",
    "cifar10-byol*": BEYOND,
    "cifar10-simclr*": BEYOND,
}
"""What recipes are for that stand for no row of Tables 1 to 4 and 7, by patterns of their names."""


def described(recipe: Recipe) -> str:
    """What a recipe is for, and its main settings."""
    crops = recipe.crops
    local = f" and {crops.n_local} local ones of {crops.local_size} px" if crops.n_local else ""
    settings = (
        f"{recipe.kind('framework')} with strategy {recipe.kind('strategy')} on {recipe.data}: "
        f"{counted(crops.n_global, 'global crop')} of {crops.global_size} px{local}, {recipe.backbone}, "
        f"{counted(recipe.epochs, 'epoch')} in batches of {recipe.batch_size}."
    )
    return " ".join((*_purpose(recipe), settings))


def _purpose(recipe: Recipe) -> Iterator[str]:
    own = RECIPES.get(recipe.name)
    if own is None or any(own.kind(part) != recipe.kind(part) for part in PARTS):  # then it is something else
        return
    book = RECIPES.get(own.name.replace("-tuned-", "-", 1), own)  # somebody's own may be called so, too
    if rows := [f"{row.row} of Table {row.table}" for row in book.paper]:
        whose = "the paper's settings" if recipe.paper else "settings of our choice (docs/decisions/0025)"
        yield f"The paper's {'row' if len(rows) == 1 else 'rows'} {listed(rows)}, with {whose}."
    else:
        yield from [about for pattern, about in OURS.items() if fnmatchcase(recipe.name, pattern)][:1]
