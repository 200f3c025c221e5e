"""One batch norm for stacks of crops: statistics per group (crop and split), synchronised when asked.

`nn.BatchNorm` would mix the crops of a stack; `nn.SyncBatchNorm` refuses CPU tensors. This one keeps torch's
parameter names, so weights load from and into torchvision and timm.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UserError
from ..system.distributed import all_mean, all_sum, world_size


class BatchNorm(nn.Module):
    """Batch norm over `groups` equal, consecutive parts of the batch; any number of trailing dimensions."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.groups = 1
        self.synchronised = True
        self.uneven = False
        self.weight = nn.Parameter(torch.ones(num_features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(num_features)) if affine else None
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.drop: nn.Module = nn.Identity()  # timm fuses these two into its batch norms
        self.act: nn.Module = nn.Identity()
        self.replaced: type[nn.Module] | None = None
        """The library's norm that this one stands for."""

    def forward(self, x: Float[Tensor, "N C *pixels"]) -> Float[Tensor, "N C *pixels"]:
        """Normalise with the statistics of each group, or with the running ones in eval mode."""
        ranks = world_size() if self.synchronised else 1
        if not self.training:
            out = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        elif ranks > 1 or torch.compiler.is_compiling():
            out = self._all_groups_at_once(x, ranks)
        else:
            out = self._group_by_group(x)
        return self.act(self.drop(out))

    def _group_by_group(self, x: Tensor) -> Tensor:
        """torch's own kernel on each group: about twice as fast as the formula unless that is compiled."""
        means, variances = self.running_mean.new_zeros(2, self.groups, self.num_features)
        parts = [
            F.batch_norm(part, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
            for part, mean, variance in zip(x.chunk(self.groups), means, variances, strict=True)
        ]
        self._track(means, variances)
        return torch.cat(parts) if self.groups > 1 else parts[0]

    def _all_groups_at_once(self, x: Tensor, ranks: int) -> Tensor:
        """The formula: one pass of sums however many groups, which a compiler fuses and processes can add up."""
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x  # sums want 32 bits
        grouped = wide.unflatten(0, (self.groups, -1))  # [G n C *pixels]
        over = [1, *range(3, grouped.dim())]
        # E[x^2] - E[x]^2 needs one pass where the exact order needs two: 3 % of a whole step (docs/decisions/0007).
        sums = torch.stack((grouped.sum(over, keepdim=True), grouped.square().sum(over, keepdim=True)))
        sums, count = self._of_all(sums, grouped[0, :, 0].numel(), ranks)
        mean, square = sums / count
        variance = (square - mean.square()).clamp_min(0)
        unbiased = count / (count - 1).clamp_min(1) if isinstance(count, Tensor) else count / max(count - 1, 1)
        self._track(mean.flatten(1), variance.flatten(1) * unbiased)
        scale, shift = torch.rsqrt(variance + self.eps), torch.zeros_like(mean)
        if self.weight is not None and self.bias is not None:
            per_channel = (1, 1, -1, *[1] * (x.dim() - 2))
            scale, shift = scale * self.weight.view(per_channel), self.bias.view(per_channel)
        return (grouped * scale + (shift - mean * scale)).flatten(0, 1).to(x.dtype)

    def _of_all(self, sums: Tensor, count: int, ranks: int) -> tuple[Tensor, int | Tensor]:
        """Sums and numbers of values over all processes, in one message."""
        if ranks == 1 or not self.uneven:
            return (all_sum(sums) if ranks > 1 else sums), count * ranks
        together = all_sum(torch.cat((sums.flatten(), sums.new_full((1,), count))))
        return together[:-1].view_as(sums), together[-1].detach()

    @torch.no_grad()
    def _track(self, means: Float[Tensor, "G C"], variances: Float[Tensor, "G C"]) -> None:
        """Move the running statistics once, towards the mean over groups."""
        self.running_mean.lerp_(means.mean(0).to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variances.mean(0).to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


def set_groups(module: nn.Module, groups: int) -> None:
    """Say how many equal parts the next batch of `module` has."""
    for child in module.modules():
        if isinstance(child, BatchNorm):
            child.groups = groups


def set_synchronised(module: nn.Module, synchronised: bool) -> None:
    """Say whether statistics are shared by all processes or kept per device."""
    for child in module.modules():
        if isinstance(child, BatchNorm):
            child.synchronised = synchronised


def set_uneven(module: nn.Module) -> None:
    """Say that processes may hold different numbers of values, as with pictures of many sizes."""
    for child in module.modules():
        if isinstance(child, BatchNorm):
            child.uneven = True


def average_statistics(module: nn.Module) -> None:
    """Give all processes the mean of the running statistics that each keeps of its own splits."""
    if world_size() == 1:
        return
    apart = [child for child in module.modules() if isinstance(child, BatchNorm) and not child.synchronised]
    if apart:
        statistics = [buffer for norm in apart for buffer in (norm.running_mean, norm.running_var)]
        torch._foreach_copy_(statistics, all_mean(statistics))


def fitting_splits(n_images: int, splits: int) -> int:
    """The most splits that part this process's images evenly and leave two or more in each.

    `splits` are those of the whole batch: of eight, two processes take four each. None takes less than one.
    """
    most = max(1, splits // world_size())
    fitting = (s for s in range(min(most, n_images // 2), 1, -1) if n_images % s == 0)
    return next(fitting, 1)


def fitting_batch(n_images: int, splits: int, processes: int = 1) -> int:
    """The largest batch of no more images that processes part evenly, and each of them into splits of two or more."""
    each = n_images // processes
    apart = max(1, min(splits // processes, each // 2))
    return max(1, (each - each % apart) * processes)


def with_our_batch_norm(module: nn.Module) -> nn.Module:
    """Replace every batch norm of a torchvision or timm network by ours, weights and all."""
    for name, child in module.named_children():
        if isinstance(child, nn.modules.batchnorm._BatchNorm):
            setattr(module, name, _converted(child))
        else:
            with_our_batch_norm(child)
    return module


def _converted(norm: nn.modules.batchnorm._BatchNorm) -> BatchNorm:
    from timm.layers import BatchNormAct2d  # slow to import: only where it is needed

    if type(norm) not in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, BatchNormAct2d):
        raise UserError(f"This backbone's {type(norm).__name__} cannot be grouped by crop; choose another backbone.")
    ours = BatchNorm(norm.num_features, norm.eps, 0.1 if norm.momentum is None else norm.momentum, norm.affine)
    ours.load_state_dict(norm.state_dict(), strict=norm.track_running_stats)
    if isinstance(norm, BatchNormAct2d):
        ours.drop, ours.act = norm.get_submodule("drop"), norm.get_submodule("act")
    ours.replaced = type(norm)
    return ours.train(norm.training)


def with_plain_batch_norm(module: nn.Module) -> nn.Module:
    """Give every batch norm of ours back as its library's, weights and all: what other code expects to find."""
    for name, child in module.named_children():
        if isinstance(child, BatchNorm):
            setattr(module, name, _plain(child))
        else:
            with_plain_batch_norm(child)
    return module


def _plain(ours: BatchNorm) -> nn.Module:
    from timm.layers import BatchNormAct2d  # slow to import: only where it is needed

    kind: Any = ours.replaced or nn.BatchNorm2d
    norm: nn.Module = kind(ours.num_features, eps=ours.eps, momentum=ours.momentum, affine=ours.weight is not None)
    norm.load_state_dict(ours.state_dict())
    if isinstance(norm, BatchNormAct2d):
        norm.drop, norm.act = ours.drop, ours.act
    return norm.train(ours.training).to(ours.running_mean.device)
