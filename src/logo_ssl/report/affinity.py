"""Crops compared with a reference crop by learned affinity and cosine: for the command affinity and for the page."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from ..augment.preview import visible
from ..data import ImageSet
from ..eval.affinity import (
    CROPS,
    MEASURES,
    Measures,
    Pool,
    Reference,
    ReferenceGroup,
    class_centres,
    class_name,
    compare_rankings,
    gather_pool,
    reference_group,
    rescale,
    slide,
)
from ..system.randomness import stream
from .gallery import Comparison, Group, Heat, HeatMap, Pixels

LONGEST = 24  # characters of a name
REFERENCES = 6  # on the page
IMAGES_OF_PAGE = 60  # among which the page chooses images to compare with
CROPS_FOR_CENTRES = 2  # of each, whose features tell which class is near

Centres = Mapping[int, Float[Tensor, " F"]]
"""The mean direction of each class's features."""


def rank(pool: Pool, measures: Measures, seed: int) -> tuple[list[dict[str, Any]], Centres]:
    """How well the measures rank ten crops of every image for a crop of each, and where the classes' features are."""
    seen = []
    for i, image in enumerate(pool.images):
        boxes = measures.draw(image, 1 + CROPS, stream(seed, "affinity crops", i))
        seen.append(measures.encode(image, boxes))
    references = torch.stack([crops.z[0] for crops in seen])
    others = torch.cat([crops.z[1:] for crops in seen])
    scores = measures.affinities(references, others)
    image = np.arange(len(pool.images)).repeat(CROPS)
    labels = None if pool.labels is None else np.array(pool.labels)
    centres = class_centres(pool, torch.cat([crops.features[1:] for crops in seen]), CROPS)
    return compare_rankings(scores, image, labels, seed), centres


def comparisons_for_page(measures: Measures, data: ImageSet, max_side: int, seed: int) -> list[Comparison]:
    """References of different classes, if there are any, with how alike other crops are by both measures."""
    pool = gather_pool(data, measures.encoder, IMAGES_OF_PAGE, max_side, stream(seed, "affinity images"))
    features = [
        measures.encode(image, measures.draw(image, CROPS_FOR_CENTRES, stream(seed, "report crops", i))).features
        for i, image in enumerate(pool.images)
    ]
    centres = class_centres(pool, torch.cat(features), CROPS_FOR_CENTRES)
    groups = reference_groups(first_references(pool, REFERENCES), pool, centres, data, measures, seed)
    return [compared(group, measures, data) for group in groups]


def first_references(pool: Pool, n: int) -> list[Reference]:
    """The first images of the pool, which is in random order; of different classes if there are any."""
    labels = pool.labels or [None] * len(pool.images)
    return [Reference(*each) for each in zip(pool.images, pool.names, labels, strict=True)][:n]


def reference_groups(
    references: Sequence[Reference], pool: Pool, centres: Centres, data: ImageSet, measures: Measures, seed: int
) -> list[ReferenceGroup]:
    """The images that each reference is compared with."""
    return [
        reference_group(reference, pool, dict(centres), data.classes, measures, stream(seed, "affinity company", i))
        for i, reference in enumerate(references)
    ]


def compared(group: ReferenceGroup, measures: Measures, data: ImageSet) -> Comparison:
    """A reference and its group as numbers and pixels; each measure from 0 to 1 over all crops of the group."""
    reference = group.reference
    z = measures.encode(reference.image, group.box).z
    others = torch.cat([measures.encode(member.image, member.boxes).z for member in group.members])
    counts = np.cumsum([len(member.boxes) for member in group.members])[:-1]
    found = {name: np.split(rescale(values[0]), counts) for name, values in measures.affinities(z, others).items()}
    groups = [
        Group(member.role, _pixels(member.image), _crops(measures, member.image, member.boxes), *values)
        for member, *values in zip(group.members, *(found[name] for name in MEASURES), strict=True)
    ]
    name = _short(reference.name)
    title = name if reference.label is None else f"{class_name(data.classes, reference.label)}, {name}"
    (crop,) = _crops(measures, reference.image, group.box)
    return Comparison(title, _pixels(reference.image), group.box[0].tolist(), crop, groups)


def heat_map(group: ReferenceGroup, measures: Measures) -> HeatMap:
    """Where in its group the reference is found; each measure from 0 to 1 over all images of the group."""
    reference, (_, _, tall, wide) = group.reference, group.box[0].tolist()
    z = measures.encode(reference.image, group.box).z
    window = tall / reference.image.shape[1], wide / reference.image.shape[2]
    heats = [slide(measures, z, member.image, window) for member in group.members]
    ends = np.cumsum([heat["learned"].size for heat in heats])[:-1]
    scaled = [np.split(rescale(np.concatenate([heat[name].ravel() for heat in heats])), ends) for name in MEASURES]
    images = [
        Heat(member.role, _pixels(member.image), *(part.reshape(heat["learned"].shape) for part in parts))
        for member, heat, *parts in zip(group.members, heats, *scaled, strict=True)
    ]
    (crop,) = _crops(measures, reference.image, group.box)
    return HeatMap(_short(reference.name), group.box[0].tolist(), crop, images)


def _short(name: str) -> str:
    """A file without its folders, and no longer than the image above which it is written."""
    last = name.rsplit("/", 1)[-1]
    return last if len(last) <= LONGEST else f"...{last[3 - LONGEST :]}"


def _pixels(image: UInt8[Tensor, "C H W"]) -> Pixels:
    return visible(image.permute(1, 2, 0).numpy())


def _crops(measures: Measures, image: UInt8[Tensor, "C H W"], boxes: Tensor) -> list[Pixels]:
    return [_pixels((crop * 255).round().byte()) for crop in measures.cut(image, boxes).clamp(0, 1)]
