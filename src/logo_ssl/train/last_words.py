"""What is there to say at the end of a run? Whether it helped; without labels whether it collapsed, and what next."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ..data import ImageSet
from ..run import Run
from ..text import counted
from .knn_verdict import knn_verdict
from .module import Pretraining
from .monitors import directions

FEW = 1000  # images; docs/how-to/hardware-and-data-size.md


def last_words(
    run: Run, module: Pretraining, data: ImageSet, latest: Mapping[str, Any], advises: bool = True
) -> Iterator[str]:
    """What kNN tells, or without labels the latents, and, if it `advises`, what to try where images are few."""
    if data.for_knn() is None:
        yield _without_labels(run, module, latest)
    elif sentence := knn_verdict(run.metrics()):
        yield sentence
    recipe = module.recipe
    if advises and len(data.train) < FEW and recipe.init is None and data.channels == 3:
        compare = f"logo-ssl embed torchvision/resnet50 --data {shlex.quote(recipe.data)} --out others.npz"
        yield (
            f"{counted(len(data.train), 'image')} are few to learn from. Compare with what others trained ({compare}), "
            "or start from such weights (--backbone resnet18 --stem imagenet --init pretrained)."
        )


def _without_labels(run: Run, module: Pretraining, latest: Mapping[str, Any]) -> str:
    """What was last measured; nothing that needs no labels tells quality (docs/decisions/0027)."""
    tells = "nothing here tells how good the features are"
    if "z_std" in latest:
        most = directions(module.batch_size, module.recipe.framework.dim)
        tells += (
            f": a spread of {latest['z_std']:.2f} (0 is a collapse, 1 is even) in about {latest['z_rank']:.0f} of "
            f"{most} directions tells no more than whether the latents collapsed"
        )
    look = f"logo-ssl report {shlex.quote(str(run.path))}"
    return f"Without labels {tells}. To see which images are taken to be alike: {look}"
