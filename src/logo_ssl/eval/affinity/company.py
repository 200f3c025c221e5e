"""Which images stand beside a reference? Its own, one of its class, one of the nearest class, and another."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from .measures import Measures
from .pool import Pool, Reference, class_name

CROPS = 10  # of each image, as in the paper
OTHERS = 3  # images beside the reference's own


class Member(NamedTuple):
    """An image with some of its crops."""

    role: str
    image: UInt8[Tensor, "C H W"]
    boxes: Int[Tensor, "n 4"]


class Company(NamedTuple):
    """A reference crop and the images it is compared with, its own first."""

    reference: Reference
    box: Int[Tensor, "1 4"]
    members: tuple[Member, ...]


def company_of(
    reference: Reference,
    pool: Pool,
    centres: dict[int, Float[Tensor, " F"]],
    classes: Sequence[str],
    measures: Measures,
    generator: Generator,
) -> Company:
    """The four images of the paper's figure; without a label, the reference's own and three others."""
    box = measures.draw(reference.image, 1, generator) if reference.box is None else reference.box
    shown = [("own image", reference.image)]
    roles = _roles(reference, pool, centres, classes, generator)
    shown += [(role, pool.images[row]) for role, rows in roles for row in _one(rows, generator)]
    members = tuple(Member(role, image, measures.draw(image, CROPS, generator)) for role, image in shown)
    return Company(reference, box, members)


def class_centres(pool: Pool, features: Float[Tensor, "N F"], per_image: int) -> dict[int, Float[Tensor, " F"]]:
    """The mean direction of each class's backbone features: not what either measure is computed from."""
    if pool.labels is None:
        return {}
    labels = torch.tensor(pool.labels).repeat_interleave(per_image)
    directions = F.normalize(features - features.mean(dim=0), dim=1)
    return {int(c): F.normalize(directions[labels == c].mean(dim=0), dim=0) for c in labels.unique()}


def _roles(
    reference: Reference,
    pool: Pool,
    centres: dict[int, Float[Tensor, " F"]],
    classes: Sequence[str],
    generator: Generator,
) -> list[tuple[str, list[int]]]:
    """What each other image is to the reference, and the rows of the pool it may be."""
    rest = [i for i, image in enumerate(pool.images) if not _same(image, reference)]
    if pool.labels is None or reference.label is None or reference.label not in centres:
        order = [rest[i] for i in torch.randperm(len(rest), generator=generator).tolist()]
        return [("another image", [row]) for row in order[:OTHERS]]
    of_class: dict[int, list[int]] = {}
    for row in rest:
        of_class.setdefault(pool.labels[row], []).append(row)
    centre, found = centres[reference.label], []
    if same := of_class.pop(reference.label, []):
        found.append((f"same class: {class_name(classes, reference.label)}", same))
    nearest = sorted(of_class, key=lambda c: float(centres[c] @ centre), reverse=True)
    for role, label in zip(
        ("nearest class by features", "other class"), nearest[:1] + _one(nearest[1:], generator), strict=False
    ):
        found.append((f"{role}: {class_name(classes, label)}", of_class[label]))
    return found


def _same(image: UInt8[Tensor, "C h w"], reference: Reference) -> bool:
    return image.shape == reference.image.shape and torch.equal(image, reference.image)


def _one(choices: list[int], generator: Generator) -> list[int]:
    """One of them at random, if there are any."""
    return [choices[int(torch.randint(len(choices), (1,), generator=generator))]] if choices else []
