"""The registry of backbones: one function per family, found by name; each gives features [B F]. Their weights."""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UserError, nearest
from .batch_norm import with_our_batch_norm

Stem = Literal["imagenet", "cifar"]
Pooling = Literal["default", "token", "mean"]
POOLINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "token": {"global_pool": "token"},
    "mean": {"global_pool": "avg", "fc_norm": False},  # the last norm stays where it is: the same weights serve both
}
"""What timm calls the features of a vision transformer."""
POSITIONS = "pos_embed"
"""What timm calls a transformer's position embeddings."""
LENGTH = 8
"""Bytes that tell how long the head of a safetensors file is, and what its length is a multiple of."""


if TYPE_CHECKING:

    class Backbone(nn.Module):
        """A network that gives features; `num_features` is their width. State-dict keys are its library's."""

        num_features: int
else:
    Backbone = nn.Module


def tiny(channels: int, stem: Stem) -> tuple[nn.Module, int]:
    """Four 3x3 convolutions, 0.4 M parameters: trains on a CPU in minutes."""
    widths = [channels, 32, 64, 128, 256]
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        stride = 1 if n_in == channels and stem == "cifar" else 2
        layers += [nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), widths[-1]


def small_alexnet(channels: int, stem: Stem) -> tuple[nn.Module, int]:
    """The small AlexNet of the STL-10 table (after Wang & Isola, 2020): 64-px crops, 4096 features."""

    def conv(n_in: int, n_out: int, *pool: nn.Module) -> list[nn.Module]:
        return [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True), *pool]

    def full(n_in: int) -> list[nn.Module]:
        return [nn.Linear(n_in, 4096, bias=False), nn.BatchNorm1d(4096), nn.ReLU(inplace=True)]

    layers = [
        *conv(channels, 96, nn.MaxPool2d(3, 2)),
        *conv(96, 192, nn.MaxPool2d(3, 2)),
        *conv(192, 384),
        *conv(384, 384),
        *conv(384, 192, nn.MaxPool2d(3, 2)),
        nn.AdaptiveAvgPool2d(7),  # changes nothing at 64 px; lets local crops be smaller
        nn.Flatten(),
        *full(192 * 7 * 7),
        *full(4096),
    ]
    return nn.Sequential(*layers), 4096


def resnet(name: str) -> Callable[[int, Stem], tuple[nn.Module, int]]:
    """A torchvision ResNet; the CIFAR stem is a 3x3 convolution of stride 1 and no max-pool."""

    def build(channels: int, stem: Stem) -> tuple[nn.Module, int]:
        import torchvision  # slow to import: only where it is needed

        net: Any = torchvision.models.get_model(name, weights=None)
        width = net.conv1.out_channels
        if stem == "cifar":
            net.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
            net.maxpool = nn.Identity()
        elif channels != 3:
            net.conv1 = nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        if channels != 3 or stem == "cifar":
            nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        n_features = net.fc.in_features
        net.fc = nn.Identity()
        return net, n_features

    return build


RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2")
FAMILIES: dict[str, Callable[[int, Stem], tuple[nn.Module, int]]] = {
    "tiny": tiny,
    "small-alexnet": small_alexnet,
    **{name: resnet(name) for name in RESNETS},
}


def refuse_unknown_backbone(name: str) -> None:
    """UserError for a name that `build_backbone` does not know."""
    if name.startswith("timm/"):
        import timm  # slow to import: only where it is needed

        model = name.removeprefix("timm/")
        if not timm.is_model(model.split(".")[0]):
            raise UserError(f"timm has no model {model!r}.{nearest(model, timm.list_models())}")
    elif name not in FAMILIES:
        raise UserError(
            f"No backbone is called {name!r}; choose {', '.join(FAMILIES)} or timm/NAME.{nearest(name, FAMILIES)} One "
            "of your own is known where the file that registers it runs the command."
        )


def build_backbone(
    name: str,
    stem: Stem = "imagenet",
    channels: int = 3,
    size: int | None = None,
    pooling: Pooling = "default",
    drop_path: float = 0.0,
) -> Backbone:
    """The named network without classifier, with our batch norm."""
    refuse_unknown_backbone(name)
    if name not in FAMILIES:
        net, n_features = _timm(name.removeprefix("timm/"), channels, size, pooling, drop_path)
    elif pooling != "default" or drop_path:
        raise UserError(f"backbone={name}: pooling and drop_path are for timm/NAME.")
    else:
        net, n_features = FAMILIES[name](channels, stem)
    backbone = cast(Backbone, with_our_batch_norm(net))
    backbone.num_features = n_features
    return backbone


def draw_as_torch_does(backbone: nn.Module) -> None:
    """Convolutions anew by torch's default: with a square norm of C_out / 3, where torchvision's ResNets have 2 C_in.

    So mostly with a sixth, and more in the first. Where batch norm follows, the norm decides no output, only how far a
    step of the optimiser turns the weights.
    """
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            module.reset_parameters()


def transformer_options(size: int | None, pooling: Pooling = "default") -> dict[str, Any]:
    """What builds a vision transformer of timm: its size, to take smaller crops as well, and its features."""
    return {"img_size": size, "dynamic_img_size": True, "dynamic_img_pad": True} | POOLINGS[pooling]


def _timm(name: str, channels: int, size: int | None, pooling: Pooling, drop_path: float) -> tuple[nn.Module, int]:
    import timm  # slow to import: only where it is needed

    options: dict[str, Any] = {"pretrained": False, "num_classes": 0, "in_chans": channels}
    if drop_path:
        options["drop_path_rate"] = drop_path
    net: Any
    try:
        try:
            net = timm.create_model(name, **options, **transformer_options(size, pooling))
        except TypeError:  # networks of convolutions take no size
            if pooling != "default":
                raise
            net = timm.create_model(name, **options)
    except (TypeError, AssertionError) as error:
        raise UserError(f"timm/{name} does not take pooling={pooling} and drop_path={drop_path}.") from error
    # Some networks widen their features once more before the classifier, which then counts.
    return net, int(getattr(net, "head_hidden_size", None) or net.num_features)


def with_our_positions(backbone: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, with a transformer's position embeddings resampled for the grid of patches of this backbone."""
    own, grid = getattr(backbone, POSITIONS, None), getattr(getattr(backbone, "patch_embed", None), "grid_size", None)
    if not isinstance(own, Tensor) or grid is None:
        return dict(weights)
    from timm.layers import resample_abs_pos_embed  # slow to import: only where it is needed

    prefix = own.shape[1] - grid[0] * grid[1]  # the class token's
    return {
        key: resample_abs_pos_embed(value, grid, num_prefix_tokens=prefix)
        if key.endswith(POSITIONS) and value.dim() == 3 and value.shape[1] != own.shape[1]
        else value
        for key, value in weights.items()
    }


def first_convolution(backbone: nn.Module) -> tuple[str, nn.Conv2d] | None:
    """A network's first convolution and the name of its weights: a stem or a patch embedding."""
    modules = ((f"{name}.weight", module) for name, module in backbone.named_modules())
    return next(((name, module) for name, module in modules if isinstance(module, nn.Conv2d)), None)


def with_our_first_layer(backbone: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, with the first layer's for the channels of this backbone and, of a patch embedding, for its size.

    Channels take those of the weights in turn, or their sum, so that an image without colours gives what it gave.
    """
    found = first_convolution(backbone)
    if found is None or (theirs := weights.get(found[0])) is None or theirs.dim() != found[1].weight.dim():
        return dict(weights)
    (name, conv), n = found, theirs.shape[1]
    own: Tensor = conv.weight
    if own.shape[1] != n:
        place = torch.arange(max(n, own.shape[1]))
        parts = (theirs / torch.bincount(place % n).view(-1, 1, 1))[:, place % n]
        theirs = theirs.new_zeros(len(theirs), own.shape[1], *theirs.shape[2:])
        theirs.index_add_(1, place % own.shape[1], parts)
    if conv.stride == conv.kernel_size:
        from timm.layers import resample_patch_embed  # slow to import: only where it is needed

        theirs = resample_patch_embed(theirs, list(own.shape[2:]))
    return {**weights, name: theirs}


def has_class_attention(backbone: nn.Module) -> bool:
    """Whether a network is a vision transformer of timm whose features are what its class token saw in patches."""
    net: Any = backbone
    return getattr(net, "global_pool", "") == "token" and hasattr(getattr(net.blocks[-1], "attn", None), "q_norm")


@torch.no_grad()
def class_attention(backbone: nn.Module, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B heads h w"]:
    """How much each head of the last block looks from the class token at each patch, as shares."""
    net: Any = backbone
    attn, kept = net.blocks[-1].attn, list[Tensor]()
    hook = attn.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
    net(x)
    hook.remove()
    q, k, _ = attn.qkv(kept[0]).unflatten(-1, (3, attn.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [B heads tokens D]
    looks = (attn.q_norm(q[:, :, :1]) @ attn.k_norm(k).mT * attn.scale).softmax(dim=-1)[:, :, 0]
    return looks[..., net.num_prefix_tokens :].unflatten(-1, net.patch_embed.dynamic_feat_size(x.shape[-2:]))


def set_size(backbone: nn.Module, size: int) -> None:
    """Resample a transformer's own position embeddings for images of another size; other networks take any."""
    net: Any = backbone
    if hasattr(net, "set_input_size"):
        net.set_input_size(img_size=size)


def load_weights(backbone: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Load what fits by name and shape; give back the names that were missing."""
    own = backbone.state_dict()
    weights = with_our_first_layer(backbone, with_our_positions(backbone, weights))
    fitting = {k: v for k, v in weights.items() if k in own and own[k].shape == v.shape}
    backbone.load_state_dict(fitting, strict=False)
    return sorted(own.keys() - fitting.keys())


def plain_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of a network, or some of it, as a file takes it."""
    return {name: value.detach().cpu().contiguous() for name, value in weights.items()}


def weight_bytes(weights: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file, always the same: what it tells of itself is sorted, where the library shuffles it."""
    content = safetensors.torch.save(dict(weights), dict(metadata))
    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    head = json.loads(content[LENGTH:end]) | {"__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH)
    return b"".join((len(text).to_bytes(LENGTH, "little"), text, memoryview(content)[end:]))
