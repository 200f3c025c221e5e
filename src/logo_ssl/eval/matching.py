"""Which weight of a checkpoint belongs where? Matched by key and shape, and what is left over is said."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor

from ..errors import UserError
from ..text import counted

MOST_NAMED = 5
PREFIX_DEPTH = 4  # parts of a key, as in module.model.encoder_q.
COUNTER = "num_batches_tracked"
LEFT_OUT = {
    "momentum copies": ("encoder_k", "momentum", "teacher", "ema", "target"),
    "queues": ("queue", "bank"),
    "heads (projector, predictor, classifier)": (
        "proj",
        "pred",
        "fc",
        "head",
        "mlp",
        "classifier",
        "linear",
        "prototypes",
    ),
}
"""What a checkpoint may hold beside the backbone, by what its names contain; the first that fits counts."""


def _numbered(*children: str, shortcut: str = "downsample") -> Callable[[str], str]:
    places = {name: str(place) for place, name in enumerate(children)}

    def rename(key: str) -> str:
        first, dot, rest = key.partition(".")
        return places.get(first, first) + dot + rest.replace("downsample", shortcut)

    return rename


LAYERS = ("layer1", "layer2", "layer3", "layer4")
NAMINGS: tuple[Callable[[str], str], ...] = (
    lambda key: key,  # torchvision, timm, MoCo, SimSiam, solo-learn
    _numbered("conv1", "bn1", "relu", "maxpool", *LAYERS),  # lightly: nn.Sequential(*resnet.children())
    _numbered("conv1", "bn1", *LAYERS, shortcut="shortcut"),  # lightly's own ResNetGenerator, in the same way
)


class Match(NamedTuple):
    """Weights for a backbone, where they were, and what is left over on either side."""

    weights: dict[str, Tensor]
    prefix: str
    missing: list[str]
    """Counters of batches that the checkpoint does not have."""
    unused: list[str]
    """Keys of the checkpoint that found no place."""


def matched(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], what: str) -> Match:
    """The weights that fit a backbone under one prefix, the one where most do; UserError when any is missing there.

    Only counters of batches may be, which evaluation does not read and old checkpoints do not have.
    """
    prefixes = _prefixes(weights)
    trained = [prefix for prefix in prefixes if not _is_copy(prefix)]
    needed = [key for key in own if not key.endswith(COUNTER)]
    lacking: list[str] = needed
    for among in (trained, prefixes):  # a momentum copy serves only where nothing else does
        places, prefix = _best(own, weights, among)
        missing = [key for key in needed if key not in places]
        if not missing:
            found = {key: weights[place] for key, place in places.items()}
            unused = weights.keys() - places.values()
            return Match(found, prefix, sorted(own.keys() - found.keys()), sorted(unused))
        lacking = min(lacking, missing, key=len)
    raise UserError(
        f"The checkpoint lacks {len(lacking)} of {len(needed)} weights of {what} by name and "
        f"shape ({named(lacking)}; it has {', '.join(list(weights)[:3])}, ...); name its network with --backbone "
        "and --stem."
    )


def sentences(found: Match) -> list[str]:
    """What was matched and what was not: every key is counted, or named if it is a strange one that stands alone."""
    where = f" under {found.prefix!r}" if found.prefix else ""
    said = [f"{len(found.weights)} tensors of the checkpoint{where} fit the backbone by name and shape."]
    if found.missing:
        counters = counted(len(found.missing), "counter")
        said.append(f"Not in the checkpoint: {counters} of batches, which evaluation does not read.")
    groups: dict[str, list[str]] = {}
    for key in found.unused:
        groups.setdefault(_group(key, found.prefix), []).append(key)
    said += [f"Left out: {counted(len(groups[group]), 'key')} of {group}." for group in LEFT_OUT if group in groups]
    if "" in groups:
        said.append(f"Found no place in the backbone: {_by_part(groups[''], found.prefix)}.")
    return said


def named(keys: list[str]) -> str:
    """The first few keys, and how many more there are."""
    more = len(keys) - MOST_NAMED
    return ", ".join(keys[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _best(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], prefixes: list[str]) -> tuple[dict[str, str], str]:
    """Where in the checkpoint the backbone's weights are, and under which prefix."""
    best, where = dict[str, str](), ""
    for prefix in prefixes:
        for naming in NAMINGS:
            places = {key: prefix + naming(key) for key in own}
            fitting = {k: p for k, p in places.items() if p in weights and weights[p].shape == own[k].shape}
            if len(fitting) > len(best):
                best, where = fitting, prefix
    return best, where


def _prefixes(weights: Mapping[str, Tensor]) -> list[str]:
    """Every way in which keys begin, in their order."""
    found = {"": None}
    for key in weights:
        parts = key.split(".")[:-1][:PREFIX_DEPTH]
        found |= {".".join(parts[: n + 1]) + ".": None for n in range(len(parts))}
    return list(found)


def _is_copy(prefix: str) -> bool:
    return any(word in prefix for word in LEFT_OUT["momentum copies"])


def _by_part(keys: list[str], prefix: str) -> str:
    """Keys as what they are parts of, with how many there are; one that stands alone by its own name."""
    parts: dict[str, list[str]] = {}
    for key in keys:
        below = _below(key, prefix)
        parts.setdefault(key.removesuffix(below) + below.split(".")[0], []).append(key)
    return ", ".join(f"{len(held)} keys of {part}" if len(held) > 1 else held[0] for part, held in parts.items())


def _below(key: str, prefix: str) -> str:
    """What a key is called below the backbone, or below what wraps everything."""
    return key.removeprefix(prefix).removeprefix("module.").removeprefix("model.")


def _group(key: str, prefix: str) -> str:
    """What a key belongs to, by its first part."""
    first = _below(key, prefix).split(".")[0]
    return next((group for group, words in LEFT_OUT.items() if any(word in first for word in words)), "")
