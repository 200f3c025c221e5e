"""What is there to say at the end of a run? Without labels whether it collapsed, and where to look next."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..command_name import command
from ..data import ImageSet
from ..run import Run
from ..wording import counted
from .module import Pretraining
from .monitors import directions, knn_loss

FEW = 1000  # images; docs/how-to/small-data.md


def last_words(
    run: Run, module: Pretraining, data: ImageSet, latest: Mapping[str, Any], advises: bool = True
) -> Iterator[str]:
    """What its latents tell, where there are no labels, and, if it `advises`, what to try where images are few."""
    if data.for_knn() is None:
        yield _without_labels(run, module, latest)
    elif sentence := _no_better(list(run.metrics())):
        yield sentence
    recipe = module.recipe
    if advises and len(data.train) < FEW and recipe.init is None and data.channels == 3:
        compare = f"{command()} embed torchvision/resnet50 --data {shlex.quote(recipe.data)} --out others.npz"
        yield (
            f"{counted(len(data.train), 'image')} are few to learn from. Compare with what others trained ({compare}), "
            "or start from such weights (--backbone resnet18 --stem imagenet --init pretrained)."
        )


def _no_better(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Where training ended below where it began; far below, it was said before."""
    measured = [line for line in lines if "knn" in line and "epochs_done" in line]
    if not measured or measured[0]["epochs_done"] != 0 or measured[0].get("knn_of") != measured[-1].get("knn_of"):
        return None
    before, after, n = measured[0]["knn"], measured[-1]["knn"], measured[-1].get("knn_images")
    if after >= before or knn_loss(before, after, n):
        return None
    on = f", on {counted(n, 'image')}" if n else ""
    told = f"kNN is {after:.1f} % after training and was {before:.1f} % before it{on}: training has not helped so far."
    return f"{told} More epochs may, or more images (docs/how-to/small-data.md)."


def _without_labels(run: Run, module: Pretraining, latest: Mapping[str, Any]) -> str:
    """What was last measured; nothing that needs no labels tells quality (docs/decisions/0027)."""
    tells = "nothing here tells how good the features are"
    if "z_std" in latest:
        most = directions(module.batch_size, module.recipe.framework.dim)
        tells += (
            f": a spread of {latest['z_std']:.2f} (0 is a collapse, 1 is even) in about {latest['z_rank']:.0f} of "
            f"{most} directions tells no more than whether the latents collapsed"
        )
    look = f"{command()} report {shlex.quote(str(run.path))}"
    return f"Without labels {tells}. To see which images are taken to be alike: {look}"
