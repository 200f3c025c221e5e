"""What does a detector take over from an encoder? A ResNet's stages, weights and all."""

from copy import deepcopy
from typing import Any

from torch import nn
from torchvision.ops import FrozenBatchNorm2d

from ..errors import UserError
from ..models.batch_norm import BatchNorm, with_our_batch_norm
from .recipe import Norm

STAGES = ("layer1", "layer2", "layer3", "layer4")
PARTS = ("conv1", "bn1", "relu", "maxpool", *STAGES)
COLOURS = 3


def refuse_other_networks(encoder: Any, called: str | None = None) -> None:
    """Raise a UserError for an encoder that cannot become a detector."""
    if not all(hasattr(encoder, part) for part in PARTS):
        raise UserError(
            f"The encoder is a {called or type(encoder).__name__}; detection takes ResNets as torchvision builds them "
            "(resnet18, resnet34, resnet50): pretrain one with --backbone resnet18."
        )
    if encoder.conv1.in_channels != COLOURS:
        raise UserError(f"The encoder sees {encoder.conv1.in_channels} channels; detection needs one for RGB pictures.")


def body_of(encoder: nn.Module, norm: Norm) -> Any:
    """A copy of a torchvision ResNet, ready to be trained; its batch norms too, or frozen as they are."""
    refuse_other_networks(encoder)
    body = with_our_batch_norm(deepcopy(encoder).cpu()).requires_grad_(True).train()
    return _frozen(body) if norm == "frozen" else body


def width(stage: Any) -> int:
    """Channels that a stage of basic blocks or bottlenecks gives."""
    last = stage[-1]
    return getattr(last, "conv3", last.conv2).out_channels


def stride_at_conv4(body: Any) -> int:
    """Pixels of the picture per pixel of conv4: 16, or 4 with a CIFAR stem."""
    pool = body.maxpool.stride if isinstance(body.maxpool, nn.MaxPool2d) else 1
    return body.conv1.stride[0] * pool * 4


def _frozen(module: nn.Module) -> nn.Module:
    for name, child in module.named_children():
        if isinstance(child, BatchNorm):
            fixed = FrozenBatchNorm2d(child.num_features, child.eps)
            fixed.load_state_dict({k: v for k, v in child.state_dict().items() if k != "num_batches_tracked"})
            setattr(module, name, fixed)
        else:
            _frozen(child)
    return module
