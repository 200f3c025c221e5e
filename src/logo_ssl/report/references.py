"""Which reference crops can a reader of the report choose from? Some by chance, each with its company."""

import torch

from ..data import ImageSet
from ..eval.affinity import Measures, class_centres, gather_pool, reference_group
from ..randomness import stream
from .affinity import chosen_references, compared
from .affinity_bars import Comparison

REFERENCES = 6
IMAGES = 60  # among which company is chosen
CROPS = 2  # of each, whose features tell which class is near


def choices(measures: Measures, data: ImageSet, max_side: int, seed: int) -> list[Comparison]:
    """References of different classes, where there are any, with how alike other crops are by both measures."""
    pool = gather_pool(data, measures.encoder, IMAGES, max_side, stream(seed, "affinity images"))
    features = [
        measures.encode(image, measures.draw(image, CROPS, stream(seed, "report crops", i))).features
        for i, image in enumerate(pool.images)
    ]
    centres = class_centres(pool, torch.cat(features), CROPS)
    companies = [
        reference_group(reference, pool, centres, data.classes, measures, stream(seed, "affinity company", i))
        for i, reference in enumerate(chosen_references(pool, REFERENCES))
    ]
    return [compared(company, measures, data) for company in companies]
