"""Checkpoints of other projects: read without running their code, recognised by shapes, matched by key."""

import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeAlias

import safetensors
import safetensors.torch
import torch
import torch._utils
from torch import Tensor

from ..errors import UserError
from ..files import read_json

SUFFIXES = (".pth", ".pth.tar", ".pt", ".ckpt", ".bin", ".safetensors")
"""What checkpoint files are called."""
EncoderStem: TypeAlias = Literal["imagenet", "cifar", "solo-learn", "lightly"]
"""Ours; solo-learn's for CIFAR, whose 3x3 convolution pads by 2 pixels; and lightly's for CIFAR, without the first
ReLU, which is not a child of its ResNetGenerator and so is lost in `nn.Sequential(*resnet.children())`."""
HOLDERS = ("state_dict", "model_state_dict", "model", "net", "backbone", "encoder", "teacher", "student")
"""Where training scripts put the weights."""
COUNTER = "num_batches_tracked"
TEACHER = "teacher"
"""DINO evaluates its teacher, which is named so."""
DINO = (TEACHER, "student")
"""The parts of its checkpoints."""
COPIES = ("encoder_k", "momentum", "ema", "target")
"""What names of other momentum copies contain; one serves only if nothing else in the checkpoint does."""
LAYERS = ("layer1", "layer2", "layer3", "layer4")
KNOWN_RESNETS: dict[tuple[int, tuple[int, ...]], str] = {
    (0, (2, 2, 2, 2)): "resnet18",
    (0, (3, 4, 6, 3)): "resnet34",
    (64, (3, 4, 6, 3)): "resnet50",
    (64, (3, 4, 23, 3)): "resnet101",
    (64, (3, 8, 36, 3)): "resnet152",
    (128, (3, 4, 6, 3)): "wide_resnet50_2",
}
"""By the inner width of the first bottleneck, 0 without bottlenecks, and how many blocks each layer has."""
SOLO_LEARN_NAME = re.compile(r"-ep=\d+\.ckpt$")  # solo/utils/checkpointer.py
MOST_NAMED = 5


# -- Reading: a pickle may call what rebuilds tensors, and nothing else.

REBUILT: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): torch._utils._rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    ("torch", "Size"): torch.Size,
}
"""All that a pickle may call; storages are torch's own to find."""


class Inert:
    """Stands for whatever is not read: it takes any argument, state and item, and does nothing."""

    def __call__(self, *_: Any, **__: Any) -> "Inert":
        """Nothing new."""
        return self

    def _ignore(self, *_: Any, **__: Any) -> None:
        pass

    __init__ = __setstate__ = __setitem__ = append = extend = add = _ignore


class SafeUnpickler(pickle.Unpickler):
    """Imports nothing, and calls only what rebuilds tensors."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """What stands for a name: nearly always an inert class."""
        name = (module_name, global_name)
        if name == ("collections", "OrderedDict"):
            return OrderedDict
        if name in REBUILT:  # wrapped, since a pickle may set attributes of what it finds
            return lambda *arguments: REBUILT[name](*arguments)
        return Inert


SAFE_PICKLE: Any = SimpleNamespace(
    __name__="safe_pickle", Unpickler=SafeUnpickler, load=lambda file, **options: SafeUnpickler(file, **options).load()
)
"""What `torch.load(pickle_module=...)` takes in place of Python's."""


def read_checkpoint(path: Path, key: str | None = None) -> dict[str, Tensor]:
    """The weights in a checkpoint, whatever is around them; only those under a `key`, if one is given."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}; give the path of a {', '.join(SUFFIXES)} file.")
    try:
        content = safetensors.torch.load_file(path) if path.suffix == ".safetensors" else _unpickle(path)
    except Exception as error:  # torch raises whatever torn bytes lead it to
        raise UserError(f"{path} is not a whole checkpoint ({type(error).__name__}); download it again.") from error
    held = {name: _tensors(content.get(name)) for name in HOLDERS} if isinstance(content, Mapping) else {}
    if key is not None and held.get(key):
        return _with_plain_statistics(held[key])
    if held.get(TEACHER):  # with their names before them, so that the teacher is found and named
        weights = {f"{part}.{name}": value for part in DINO for name, value in held[part].items()}
    else:  # scripts save a tensor or two next to the weights, such as an accuracy
        weights = max([*held.values(), _tensors(content)], key=len)
    if not weights:
        raise UserError(f"{path} has no weights; save a state_dict, plain or under the key 'state_dict'.")
    if key is not None:
        found = {name: value for name, value in weights.items() if name.startswith(f"{key}.") or f".{key}." in name}
        if not found:
            known = dict.fromkeys([*(name for name in held if held[name]), *(name.split(".")[0] for name in weights)])
            raise UserError(f"key={key!r}: must be one of {_few(list(known))}, which {path} has.")
        weights = found
    return _with_plain_statistics(weights)


def _with_plain_statistics(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Running statistics of lightly's SplitBatchNorm, a part for each split, as the mean that it evaluates with."""
    plain = dict(weights)
    for name, value in weights.items():
        scale = weights.get(f"{name.rpartition('.')[0]}.weight")
        if name.endswith(("running_mean", "running_var")) and scale is not None and len(value) > len(scale):
            plain[name] = value.view(-1, len(scale)).mean(dim=0)
    return plain


def _unpickle(path: Path) -> Any:
    """What is in a pickle; objects beside the weights, such as settings, are inert."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # names that torch does not trust; TorchScript was refused by a RuntimeError
            return torch.load(path, map_location="cpu", weights_only=False, pickle_module=SAFE_PICKLE)


def _tensors(content: Any) -> dict[str, Tensor]:
    items = content.items() if isinstance(content, Mapping) else ()
    return {str(key): value for key, value in items if isinstance(value, Tensor)}


# -- Recognising: how projects call the parts of a ResNet, and which one it is.


class Naming(NamedTuple):
    """How a project calls the parts of a ResNet."""

    children: tuple[str, ...] = ()
    """Those that have numbers, in order, since an `nn.Sequential` was made of them."""
    shortcut: str = "downsample"
    loses_relu: bool = False
    """Whether the first ReLU is not a child, and so not in that `nn.Sequential`."""

    def __call__(self, key: str) -> str:
        """What a project calls what torchvision calls `key`."""
        first, dot, rest = key.partition(".")
        place = str(self.children.index(first)) if first in self.children else first
        return place + dot + rest.replace("downsample", self.shortcut)


NAMINGS = (
    Naming(),  # torchvision, timm, MoCo, SimSiam, solo-learn
    Naming(("conv1", "bn1", "relu", "maxpool", *LAYERS)),  # lightly: nn.Sequential(*resnet.children())
    Naming(shortcut="shortcut"),  # lightly's ResNetGenerator
    Naming(("conv1", "bn1", *LAYERS), "shortcut", loses_relu=True),  # the same as nn.Sequential
)


def guess_resnet(weights: Mapping[str, Tensor]) -> tuple[str | None, EncoderStem]:
    """The ResNet that a checkpoint holds by its shapes, None if it holds another network; and the stem."""
    guesses = list[tuple[str | None, EncoderStem]]()
    for naming in NAMINGS:
        anchor = naming("layer1.0.conv1.weight")
        for prefix in (key.removesuffix(anchor) for key in weights if key.endswith(anchor)):
            first = weights.get(prefix + naming("conv1.weight"))
            if first is not None:
                blocks = tuple(
                    next(n for n in count() if prefix + naming(f"{layer}.{n}.conv1.weight") not in weights)
                    for layer in LAYERS
                )
                deep = prefix + naming("layer1.0.conv3.weight") in weights
                width = len(weights[prefix + anchor]) if deep else 0
                stem = "lightly" if naming.loses_relu else "cifar" if first.shape[-1] == 3 else "imagenet"
                guesses.append((KNOWN_RESNETS.get((width, blocks)), stem))
    # a number may be a layer in one naming, another in the next
    return max(guesses, key=lambda guess: guess[0] is not None, default=(None, "imagenet"))


def recognise(
    path: Path, weights: Mapping[str, Tensor], name: str | None = None, stem: EncoderStem | None = None
) -> tuple[str | None, EncoderStem, int]:
    """Which network a checkpoint holds, as it was named or by its shapes (None: another), its stem and channels."""
    resnet, first_layers = guess_resnet(weights)
    if (
        resnet is not None and name in KNOWN_RESNETS.values() and name != resnet
    ):  # a larger ResNet has a smaller one's keys
        raise UserError(f"backbone={name}: {path} holds a {resnet} by its shapes.")
    if first_layers == "cifar" and _is_solo_learn(path):
        first_layers = "solo-learn"
    channels = next((value.shape[1] for value in weights.values() if value.dim() == 4), 3)
    return name or resnet, stem or first_layers, channels


def _is_solo_learn(path: Path) -> bool:
    """Whether a file is called as solo-learn calls its own, or has its args.json beside it."""
    settings = read_json(path.with_name("args.json"))
    return SOLO_LEARN_NAME.search(path.name) is not None or {"method", "backbone"} <= settings.keys()


# -- Matching: which weight of a checkpoint belongs where.


def match_keys(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], what: str) -> tuple[dict[str, Tensor], str]:
    """The weights that fit a backbone under one prefix, the one where most do, and a sentence about them.

    UserError if any is missing there. Only counters of batches may be, which evaluation does not read and old
    checkpoints do not have.
    """
    needed = [key for key in own if not key.endswith(COUNTER)]
    places, prefix = _best_places(own, weights)
    if missing := [key for key in needed if key not in places]:
        raise UserError(
            f"The checkpoint lacks {len(missing)} of {len(needed)} weights of {what} by name and shape "
            f"({_few(missing)}); name its network with --backbone and --stem."
        )
    unused = sorted(weights.keys() - places.values())
    under = f" under {prefix!r}" if prefix else ""
    rest = f"; not used: {_few(unused)}" if unused else ""
    about = f"{len(places)} tensors of the checkpoint{under} fit the backbone by name and shape{rest}."
    return {key: weights[place] for key, place in places.items()}, about


def matching_keys(
    own: Mapping[str, Tensor], weights: Mapping[str, Tensor], resized: Collection[str] = ()
) -> tuple[dict[str, Tensor], str]:
    """As many weights as fit a backbone under one prefix, which may be none; and the prefix.

    Those that are `resized` later may have any shape.
    """
    places, prefix = _best_places(own, weights, resized)
    return {key: weights[place] for key, place in places.items()}, prefix


def _best_places(
    own: Mapping[str, Tensor], weights: Mapping[str, Tensor], resized: Collection[str] = ()
) -> tuple[dict[str, str], str]:
    """Where a backbone's weights are, and under which prefix: all in a teacher, all in what is no copy, or most."""
    ends = {naming(key) for naming in NAMINGS for key in list(own)[:1]}
    found_prefixes = (key.removesuffix(end) for key in weights for end in ends if key.endswith(end))

    def rank(found: tuple[dict[str, str], str]) -> tuple[bool, bool, int]:
        places, prefix = found
        whole = all(key in places or key.endswith(COUNTER) for key in own)
        return whole and TEACHER in prefix, whole and not any(copy in prefix for copy in COPIES), len(places)

    found = list[tuple[dict[str, str], str]]()
    for prefix in dict.fromkeys(["", *found_prefixes]):
        for naming in NAMINGS if not prefix or prefix.endswith(".") else ():
            places = {k: p for k in own if (p := prefix + naming(k)) in weights}
            fitting = {k: p for k, p in places.items() if k in resized or weights[p].shape == own[k].shape}
            found.append((fitting, prefix))
    return max(found, key=rank)


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:MOST_NAMED]) + (", ..." if len(keys) > MOST_NAMED else "")
