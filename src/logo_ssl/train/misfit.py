"""Can a backbone take the crops, where it is trained and in the precision of training?"""

import torch
from torch import Tensor, nn

from ..errors import UserError
from .module import Pretraining


@torch.no_grad()
def refuse_misfit(module: Pretraining, channels: int, device: torch.device) -> None:
    """Refuse a backbone that cannot take the crops: some transformers want a certain size."""
    recipe, backbone = module.recipe, module.framework.encoder.backbone
    crops = recipe.crops
    backbone.eval()
    for size in {crops.global_size, crops.local_size if crops.n_local else crops.global_size}:
        try:
            met, features = _convolved(backbone, torch.zeros(1, channels, size, size))
        except (RuntimeError, AssertionError, ValueError) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"{recipe.backbone} cannot take crops of {size} px ({first_line}); "
                "change crops.global_size or crops.local_size, or choose another backbone."
            ) from error
        shape, width = tuple(getattr(features, "shape", ())), getattr(backbone, "num_features", None)
        if len(shape) != 2 or shape[1] != (width or shape[1]):
            raise UserError(
                f"Backbone {recipe.backbone} gives features of shape {shape} for 1 image of {size} px; give "
                f"(1, {width or 'n_features'}): one vector for each image, of the width that it was registered with."
            )
        garbled = [side for conv, side in met if is_garbled(conv, side)]
        if garbled and recipe.precision == "bf16" and device.type == "cpu":
            raise UserError(
                f"precision=bf16: a CPU gets gradients wrong where {recipe.backbone} convolves maps of "
                f"{garbled[0]} px, as of a crop of {size} px; use precision=fp32, or larger crops."
            )
    backbone.train()


def is_garbled(conv: nn.Conv2d, side: int) -> bool:
    """Whether a CPU takes some of the weights' gradient in bf16 from memory that it never wrote (decision 0014)."""
    padding = conv.kernel_size[0] // 2 if isinstance(conv.padding, str) else conv.padding[0]
    return padding > 0 and conv.weight.shape[1] > 1 and side < max(conv.stride[0], padding)


def _convolved(backbone: nn.Module, images: Tensor) -> tuple[list[tuple[nn.Conv2d, int]], Tensor]:
    """Every convolution, and the side of the maps that it makes others of; and the features."""
    met: list[tuple[nn.Conv2d, int]] = []

    def note(part: nn.Module, seen: tuple[Tensor, ...]) -> None:
        if isinstance(part, nn.Conv2d):
            met.append((part, seen[0].shape[-1]))

    hooks = [part.register_forward_pre_hook(note) for part in backbone.modules()]
    features = backbone(images)
    for hook in hooks:
        hook.remove()
    return met, features
