"""What lies near what in a run's feature space? Neighbours of some held-out images, and maps of many."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from ..augment.preview import visible
from ..data import BadImages, ImageSet, Split, squared
from ..errors import UserError
from ..eval.affinity import class_name, image_name, rows_by_class, test_or_train
from ..eval.encoder import FrozenEncoder
from ..eval.features import exact_convolutions, in_channels
from ..features import extract
from ..hardware import best_device
from ..knn import nearest_neighbours
from ..randomness import stream
from .feature_map import FeatureMap
from .neighbours import Neighbour, Neighbourhood, Pictured, Query
from .projections import projections

QUERIES, NEAR = 6, 6
LEAST = 4  # images on each side


class Sample(NamedTuple):
    """Some images with their unit features."""

    pixels: UInt8[Tensor, "N C H W"]
    names: list[str]
    labels: list[int] | None
    unit: Float[Tensor, "N F"]

    def pictured(self, i: int, classes: tuple[str, ...]) -> Pictured:
        """Image i as the page shows it."""
        label = None if self.labels is None or self.labels[i] < 0 else class_name(classes, self.labels[i])
        return Pictured(visible(self.pixels[i].permute(1, 2, 0).numpy()), self.names[i], label)


def look_around(
    encoder: FrozenEncoder, data: ImageSet, n: int, seed: int, device: str = "auto"
) -> tuple[Neighbourhood, FeatureMap]:
    """Neighbours among training images, and maps, of n held-out images by seed; too few are refused.

    Without a test split these are training images, and each is asked among the others.
    """
    part, asked = test_or_train(data, encoder)
    alone = part == "train"
    known = in_channels(encoder, data.train)
    queries_rows = torch.tensor(rows_by_class(asked, n, stream(seed, "report queries"))[:n])
    bank_rows = queries_rows if alone else torch.tensor(rows_by_class(known, n, stream(seed, "report bank"))[:n])
    drawn = len(queries_rows), len(bank_rows) - alone
    _refuse_few(data, part, drawn, drawn)
    queries = _sample(encoder, data, asked, queries_rows, part, device)
    bank = queries if alone else _sample(encoder, data, known, bank_rows, "train", device)
    _refuse_few(data, part, drawn, (len(queries.names), len(bank.names) - alone))
    return _neighbourhood(queries, bank, data.classes, alone), _map(queries, part, data, seed)


def _refuse_few(data: ImageSet, part: str, drawn: tuple[int, int], readable: tuple[int, int]) -> None:
    """Raise a UserError where too few images to ask about, or to look among, were drawn or can be read."""
    if min(readable) >= LEAST:
        return
    both = f"the test and training images of {data.name}"
    of = both if part == "test" else f"the training images of {data.name}, which has no test images"
    read = "" if readable == drawn else f", and {readable[0]} and {readable[1]} of these can be read"
    raise UserError(
        f"Neighbours and maps need {LEAST} images to ask about and {LEAST} others to look among; {drawn[0]} and "
        f"{drawn[1]} were drawn from {of}{read}."
    )


def _sample(encoder: FrozenEncoder, data: ImageSet, split: Split, rows: Tensor, part: str, device: str) -> Sample:
    """The images of these rows that can be read, as squares, and their features."""
    shown = squared(Split(split.images[rows], rows), encoder.size, BadImages(len(rows), math.inf), workers=0)
    kept = rows if shown.labels is None else shown.labels
    backbone = encoder.backbone.to(best_device(device))
    with exact_convolutions():
        features = extract(backbone, shown.array, encoder.mean, encoder.std, encoder.size).cpu()
    names = [image_name(split, row, part, data) for row in kept.tolist()]
    labels = split.labels[kept].tolist() if split.labels is not None and split.has_labels else None
    return Sample(shown.array, names, labels, F.normalize(features, dim=1))


def _neighbourhood(queries: Sample, bank: Sample, classes: tuple[str, ...], alone: bool) -> Neighbourhood:
    near = nearest_neighbours(queries.unit, bank.unit, NEAR, leave_one_out=alone)
    asked = [
        Query(
            queries.pictured(i, classes),
            [
                Neighbour(bank.pictured(row, classes), cosine)
                for row, cosine in zip(near.row[i].tolist(), near.cosine[i].tolist(), strict=True)
            ],
        )
        for i in range(min(QUERIES, len(queries.names)))
    ]
    right = None
    if queries.labels is not None and bank.labels is not None and set(queries.labels) <= set(bank.labels):
        hits = torch.tensor(bank.labels)[near.row[:, 0]] == torch.tensor(queries.labels)
        right = 100 * float(hits.double().mean())
    why = " (there are no test images, so each of these is asked among the others)" if alone else ""
    return Neighbourhood(asked, f"{len(bank.names)} training images{why}", len(queries.names), right)


def _map(queries: Sample, part: str, data: ImageSet, seed: int) -> FeatureMap:
    images = [queries.pictured(i, data.classes) for i in range(len(queries.names))]
    kind = "held-out images" if part == "test" else "training images"
    return FeatureMap(images, *projections(queries.unit, seed), f"{kind} of {data.name}")
