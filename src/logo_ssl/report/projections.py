"""How do features become places on a map? By PCA always, and by t-SNE where there are images enough."""

import math
import warnings

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LEAST_FOR_TSNE = 10
PERPLEXITY = 30.0


def projections(unit: Float[Tensor, "N F"], seed: int) -> tuple[dict[str, Float[np.ndarray, "N 2"]], dict[str, str]]:
    """Places of unit vectors on each map, and what to know about it."""
    places, share = pca(unit)
    maps, notes = {"PCA": places}, {"PCA": f"{100 * share:.0f} % of the variance"}
    if len(unit) >= LEAST_FOR_TSNE and (drawn := tsne(unit, seed)) is not None:
        maps["t-SNE"] = drawn
        notes["t-SNE"] = "neighbours stay near, distances say nothing"
    return maps, notes


def pca(unit: Float[Tensor, "N F"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """The two directions of largest variance, each with its largest weight positive, and their share of it."""
    centred = unit.double() - unit.double().mean(dim=0)
    _, singular, directions = torch.linalg.svd(centred, full_matrices=False)
    first = torch.zeros(2, centred.shape[1], dtype=centred.dtype)
    first[: len(directions)] = directions[:2]
    signs = first.gather(1, first.abs().argmax(dim=1, keepdim=True)).sign()
    total = singular.square().sum()
    share = float(singular[:2].square().sum() / total) if total > 0 else 1.0
    return (centred @ (signs * first).T).numpy(), share


def tsne(unit: Float[Tensor, "N F"], seed: int) -> Float[np.ndarray, "N 2"] | None:
    """scikit-learn's t-SNE from PCA's places; None where all vectors are equal."""
    from sklearn.manifold import TSNE  # slow to import
    from threadpoolctl import threadpool_limits

    if float(unit.std(dim=0).max()) < 1e-6:
        return None
    perplexity = min(PERPLEXITY, (len(unit) - 1) / 3)
    # One thread: of several, each waits busily for the others in every step, ten times as long beside a training.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(unit.double().numpy())
    return drawn.astype(float) if math.isfinite(float(np.abs(drawn).max())) else None
