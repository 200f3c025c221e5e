"""The encoder f_theta_e (backbone and projector, on whole stacks of crops) and its heads."""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..types import CropStack, Latents
from .batch_norm import BatchNorm, fitting_splits, set_groups


def per_crop(net: nn.Module, stack: Float[Tensor, "V B *rest"], splits: int = 1) -> Float[Tensor, "V B D"]:
    """Run `net` on a stack of crops as one batch, with batch-norm statistics per crop (and per split of it).

    What comes out has at least 32 bits, whatever the precision of the forward pass: losses need them.
    """
    n_crops, n_images = stack.shape[:2]
    set_groups(net, n_crops * fitting_splits(n_images, splits))
    batch = stack.flatten(0, 1)
    if batch.is_cuda and batch.dim() == 4:
        batch = batch.contiguous(memory_format=torch.channels_last)  # what tensor cores want
    out = net(batch).unflatten(0, (n_crops, n_images))
    return out.float() if out.dtype in (torch.bfloat16, torch.float16) else out


def pick(stack: Float[Tensor, "V *rest"], rows: Sequence[int]) -> Float[Tensor, "n *rest"]:
    """Some crops of a stack; neighbours as a view. (A list as an index would make a GPU wait for it.)"""
    first = rows[0]
    if list(rows) == list(range(first, first + len(rows))):
        return stack[first : first + len(rows)]
    return torch.stack([stack[row] for row in rows])


class Encoder(nn.Module):
    """f_theta_e: `backbone` makes features, `projector` makes latents of them."""

    def __init__(self, backbone: nn.Module, projector: nn.Module, splits: int = 1) -> None:
        super().__init__()
        self.net = nn.Sequential()
        self.net.add_module("backbone", backbone)
        self.net.add_module("projector", projector)
        self.splits = splits
        self.keeps_features = False
        """Whether features of the latest crops are kept, for objectives other than the framework's."""
        self.features_g: Float[Tensor, "G B F"] | None = None
        self.features_l: Float[Tensor, "L B F"] | None = None
        self.maps_g: Float[Tensor, "G B C H W"] | None = None
        self.maps_l: Float[Tensor, "L B C h w"] | None = None
        self._map: Tensor | None = None

    @property
    def backbone(self) -> nn.Module:
        """What remains after pretraining."""
        return self.net.get_submodule("backbone")

    @property
    def projector(self) -> nn.Module:
        """What the loss needs and nobody else."""
        return self.net.get_submodule("projector")

    def keep_maps(self, layer: str) -> None:
        """Keep what a layer of the backbone gives for the latest crops, as `maps_g` and `maps_l`.

        By a hook, which compiled networks follow: what calls a backbone alone still gets features.
        """

        def keep(layer: nn.Module, inputs: object, output: Tensor) -> None:
            self._map = output

        self.backbone.get_submodule(layer).register_forward_hook(keep)

    def forward(self, x: CropStack) -> Latents:
        """Latents z = f_theta_e(x~)."""
        if self.keeps_features:
            self.features_g = per_crop(self.backbone, x, self.splits)
            z = per_crop(self.projector, self.features_g, self.splits)
        else:
            z = per_crop(self.net, x, self.splits)
        if self._map is not None:
            self.maps_g, self._map = self._map.to(z.dtype).unflatten(0, x.shape[:2]), None
        return z

    def encode(
        self, x_g: Float[Tensor, "G B C H W"], x_l: Float[Tensor, "L B C h w"]
    ) -> tuple[Float[Tensor, "G B D"], Float[Tensor, "L B D"]]:
        """z^g and z^l. Crops of one size share a pass; latents are the same either way (docs/decisions/0007)."""
        n_global = len(x_g)
        if len(x_l) and x_g.shape[2:] != x_l.shape[2:]:
            z_g, features_g, maps_g = self(x_g), self.features_g, self.maps_g
            z_l, self.features_l, self.maps_l = self(x_l), self.features_g, self.maps_g
            self.features_g, self.maps_g = features_g, maps_g
            return z_g, z_l
        if len(x_l):  # as one batch: in four dimensions torch keeps the channels last, in five it does not
            x_g = torch.cat([x_g.flatten(0, 1), x_l.flatten(0, 1)]).unflatten(0, (-1, x_g.shape[1]))
        z = self(x_g)
        if self.features_g is not None:
            self.features_g, self.features_l = self.features_g[:n_global], self.features_g[n_global:]
        if self.maps_g is not None:
            self.maps_g, self.maps_l = self.maps_g[:n_global], self.maps_g[n_global:]
        return z[:n_global], z[n_global:]


class Prototypes(nn.Module):
    """Unit vectors to which latents are compared: logits [.. P] of latents [.. D]. They may be frozen at first."""

    frozen: Bool[Tensor, ""]

    def __init__(self, n: int, dim: int, freeze: float = 0.0) -> None:
        super().__init__()
        self.freeze = freeze
        self.weight = nn.Parameter(F.normalize(torch.randn(n, dim), dim=-1))
        self.register_buffer("frozen", torch.tensor(freeze > 0))  # a tensor, which a recorded step follows

    def forward(self, z: Float[Tensor, "*rest D"]) -> Float[Tensor, "*rest P"]:
        """Cosines to every prototype, in full precision: temperatures magnify their errors."""
        weight = torch.where(self.frozen, self.weight.detach(), self.weight)
        with torch.autocast(z.device.type, enabled=False):
            return F.linear(F.normalize(z, dim=-1), F.normalize(weight, dim=-1))

    def after_step(self, progress: float) -> None:
        """Free them after a share of training."""
        self.frozen.fill_(progress < self.freeze)


def mlp(
    widths: Sequence[int], *, norm: bool = True, last_norm: bool = False, activation: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """A head: linear layers, (batch norm and) ReLU between them; `last_norm` adds a norm without affine."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths[:-1]):
        layers.append(nn.Linear(n_in, n_out, bias=not norm))  # batch norm makes a bias superfluous
        if norm:
            layers.append(BatchNorm(n_out))
        layers.append(activation())
    layers.append(nn.Linear(widths[-2], widths[-1], bias=not last_norm))
    if last_norm:
        layers.append(BatchNorm(widths[-1], affine=False))
    return nn.Sequential(*layers)
