"""Eqs. 3-6 of the paper and the gradient ratio that balances Eq. 9, as pure functions of global and local crops.

Sums run over pairs of crops, means over images: Eqs. 3 and 4 give the sum over their pairs, as the paper writes them.
"""

from collections.abc import Sequence
from itertools import combinations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from .system.distributed import all_gather, all_mean, permute_across_ranks
from .types import Affinity, Latents, Scalar, Similarity

Pairs = tuple[Float[Tensor, "N D"], Float[Tensor, "N D"]]


def global_to_global(
    l_s: Similarity, q_g: Float[Tensor, "Q B P"], t_g: Float[Tensor, "T B P"], pairs: Sequence[tuple[int, int]]
) -> Scalar:
    """L_gg: global crops look alike. No stop-gradient here: the framework's targets decide."""
    return torch.stack([l_s(q_g[i], t_g[j]).mean() for i, j in pairs]).sum()  # Eq. 3


def local_to_global(l_s: Similarity, q_l: Float[Tensor, "L B P"], t_g: Float[Tensor, "T B P"]) -> Scalar:
    """L_lg: each local crop looks like the global crops of its image, which act as fixed anchors."""
    anchors = t_g.detach()  # sg(z^g)
    return torch.stack([l_s(z_l, z_g).mean() for z_l in q_l for z_g in anchors]).sum()  # Eq. 4


def local_to_local(l_a: Affinity, z_l: Latents, partner: Int[Tensor, " images"]) -> Scalar:
    """L_ll: how alike l_a finds two local crops of one image, and so what the encoder must lower."""
    return local_affinities(l_a, z_l, partner).mean()  # Eq. 5


def local_affinities(l_a: Affinity, z_l: Latents, partner: Int[Tensor, " images"]) -> Float[Tensor, "pairs B"]:
    """How alike l_a finds every two local crops of each image, in the order of `itertools.combinations`."""
    # Pairs of other images only keep l_a's batch norm company; they are constants, or the encoder could lower L_ll by
    # moving them. What same-image pairs do to the statistics still takes some of the push back (docs/decisions/0006).
    same, _ = _affinities(l_a, same_image_pairs(z_l), other_image_pairs(z_l.detach(), partner))
    return same.unflatten(0, (-1, z_l.shape[1]))


def omega(f_d: Affinity, same: Pairs, other: Pairs) -> Scalar:
    """Omega: the mean affinity of same-image pairs above that of other-image pairs."""
    f_same, f_other = _affinities(f_d, same, other)
    return f_same.mean() - f_other.mean()  # Eq. 6


def omega_logistic(score: Affinity, same: Pairs, other: Pairs) -> Scalar:
    """Omega bounded from above by 0: the log-likelihood of telling the pairs apart by the score before softplus."""
    s_same, s_other = _affinities(score, same, other)
    return -(F.softplus(-s_same).mean() + F.softplus(s_other).mean())


def same_image_pairs(z_l: Latents) -> Pairs:
    """Every two local crops of each image: z_1^l(j), z_2^l(j)."""
    return _paired(z_l, z_l)


def other_image_pairs(z_l: Latents, partner: Int[Tensor, " images"]) -> Pairs:
    """The same crops, the second taken from the image's partner, whichever process holds it: z_1^l(j), z_2^l(k)."""
    return _paired(z_l, permute_across_ranks(z_l, partner))


def draw_partners(n_images: int, generator: torch.Generator) -> Int[Tensor, " B"]:
    """Another image for each image of the batch: all shift by one random offset, so that never k = j."""
    offset = int(torch.randint(1, n_images, (), generator=generator))
    return torch.arange(n_images).roll(offset)


def gradient_ratio(l_similar: Scalar, l_ll: Scalar, at: Sequence[Tensor], each_its_own: bool = True) -> Scalar:
    """The norm of the similarity gradient over that of the L2L gradient, both measured at the same tensors.

    Of several processes, each has its own latents, whose gradients lie side by side; of weights all have copies, whose
    gradient is the mean of theirs.
    """
    pull, push = (_gradient_norm(loss, at, each_its_own) for loss in (l_similar, l_ll))
    return pull / push.clamp_min(1e-12)


def _gradient_norm(loss: Scalar, at: Sequence[Tensor], each_its_own: bool) -> Scalar:
    found = torch.autograd.grad(loss, at, retain_graph=True, allow_unused=True)
    gradients = [gradient for gradient in found if gradient is not None]
    norms = torch.stack(torch._foreach_norm(gradients if each_its_own else all_mean(gradients)))
    return torch.linalg.vector_norm(all_gather(norms) if each_its_own else norms)


def _paired(first: Latents, second: Latents) -> Pairs:
    rows = list(combinations(range(len(first)), 2))
    return torch.cat([first[i] for i, _ in rows]), torch.cat([second[j] for _, j in rows])


def _affinities(f: Affinity, same: Pairs, other: Pairs) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """`f` on both kinds of pairs in ONE batch: batch norm over either kind alone would hide their difference."""
    first, second = (torch.cat(side) for side in zip(same, other, strict=True))
    f_same, f_other = f(first, second).chunk(2)
    return f_same, f_other
