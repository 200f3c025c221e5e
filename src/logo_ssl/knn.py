"""Which class do an image's nearest neighbours have? Weighted kNN on features, as pure tensor functions."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


@torch.no_grad()
def knn_scores(
    queries: Float[Tensor, "Q F"],
    bank: Float[Tensor, "N F"],
    labels: Int[Tensor, " N"],
    n_classes: int,
    k: int,
    tau: float,
    chunk: int = 4096,
) -> Float[Tensor, "Q classes"]:
    """Votes of the k most similar features (cosine), each with weight exp(cosine / tau); memory is bounded by chunk."""
    bank = F.normalize(bank, dim=-1)
    k = min(k, len(bank))
    rows = []
    for part in F.normalize(queries, dim=-1).split(chunk):
        cosine, neighbour = (part @ bank.T).topk(k, dim=1)  # [q k]
        # relative to the nearest, which no ranking notices and float32 cannot overflow
        weight = torch.exp((cosine - cosine[:, :1]) / tau)
        rows.append(weight.new_zeros(len(part), n_classes).scatter_add_(1, labels[neighbour], weight))
    return torch.cat(rows)


@torch.no_grad()
def knn_accuracy(
    queries: Float[Tensor, "Q F"],
    query_labels: Int[Tensor, " Q"],
    bank: Float[Tensor, "N F"],
    bank_labels: Int[Tensor, " N"],
    k: int,
    tau: float,
) -> float:
    """Top-1 accuracy in percent."""
    n_classes = int(torch.maximum(query_labels.max(), bank_labels.max())) + 1
    predicted = knn_scores(queries, bank, bank_labels, n_classes, k, tau).argmax(dim=1)
    return 100 * (predicted == query_labels).float().mean().item()
