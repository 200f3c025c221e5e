"""How often is a classifier right? In percent, from the scores of each class."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def top1(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Images whose highest score is that of their class."""
    return 100 * (scores.argmax(dim=1) == labels).sum().item() / len(labels)


def top_k(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"], k: int = 5) -> float:
    """Images whose class is among the k highest scores."""
    if k == 1:
        return top1(scores, labels)  # of equal scores, the first
    highest = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return 100 * (highest == labels[:, None]).any(dim=1).sum().item() / len(labels)


def mean_per_class(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Top-1 of each class alone, averaged; classes that no label names are left out."""
    right = (scores.argmax(dim=1) == labels).double()
    images = torch.bincount(labels, minlength=scores.shape[1])
    hits = torch.zeros_like(images, dtype=torch.float64).index_add_(0, labels, right)
    present = images > 0
    return 100 * (hits[present] / images[present]).mean().item()
