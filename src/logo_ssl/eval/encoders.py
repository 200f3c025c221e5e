"""Which encoder is evaluated? A run's, a library's, an untrained one, or one from somebody else's checkpoint."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor, nn

from ..encoder_names import is_checkpoint_name, refuse_no_encoder
from ..errors import UserError
from ..run import Run
from ..text import counted
from ..train.weights import Unfinished, load_backbone, newest_encoder, read_backbone
from .fingerprints import weights_fingerprint
from .foreign import checkpoint_encoder
from .libraries import (
    EncoderStem,
    FoundEncoder,
    seeded_backbone,
    timm_encoder,
    torchvision_encoder,
    untrained_encoder,
)

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what public checkpoints were trained with
UNKNOWN_MEAN, UNKNOWN_STD = 0.5, 0.25  # for channels that are not colours
SMALLEST = 8  # pixels
HUB_WEIGHTS = "model.safetensors"  # in a folder as on the Hugging Face Hub


@dataclass(frozen=True)
class FrozenEncoder:
    """A backbone in eval mode that gives features [B F], and what its input needs."""

    name: str
    """The source that was asked for."""
    backbone: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    """Images are squares of so many pixels."""
    fingerprint: str
    """sha256 of architecture and weights, the same on every machine."""
    says: tuple[str, ...] = ()
    """Sentences about what was matched and what was not, and what its images are."""
    run: Run | None = None
    """The run it comes from, if it does."""
    missing: tuple[str, ...] = ()
    """Keys of the backbone that its checkpoint does not have: at most counters of batches."""
    unused: tuple[str, ...] = ()
    """Keys of its checkpoint that found no place."""
    architecture: tuple[str, ...] = ()
    """Backbone and stem, or the library and its name for it."""
    unfinished: str | None = None
    """How far its run has come, where that is not finished: epoch 12 of 200."""
    heads: dict[str, Tensor] | None = field(default=None, compare=False, repr=False)
    """The weights of projector and regressor then, from the same checkpoint."""
    options: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """What was said of it beside its name, as a shell takes it: --size 32."""

    @property
    def channels(self) -> int:
        """Channels of the images that it sees."""
        return len(self.mean)

    @property
    def network(self) -> tuple[str, str]:
        """What its network is called, and its stem: tiny and cifar; torchvision/vgg16, whose stem is its own affair."""
        match self.architecture:
            case ("torchvision" | "timm" as library, name):
                return f"{library}/{name}", ""
            case (name, stem):
                return name, stem
            case _:
                return "", ""


def load_encoder(
    source: str,
    *,
    backbone: str | None = None,
    stem: EncoderStem | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> FrozenEncoder:
    """The encoder of a run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.

    `backbone` and `stem` name what a checkpoint holds where its shapes do not tell; random/NAME takes a stem, too, and
    has a channel for each value of `mean`. A run that is unfinished gives its newest checkpoint's encoder.
    """
    options = words_of({"backbone": backbone, "stem": stem, "size": size, "mean": mean, "std": std})
    if size is not None and size < SMALLEST:
        raise UserError(f"size={size}: must be {SMALLEST} px or more.")
    found = _find(source, backbone, stem, size, len(mean or IMAGENET_MEAN))
    colours = found.channels == len(IMAGENET_MEAN)
    custom = f", {'the custom on ImageNet' if colours else 'a guess'}; --mean and --std set others"
    told = "" if mean or found.mean else custom
    mean = mean or found.mean or (IMAGENET_MEAN if colours else [UNKNOWN_MEAN] * found.channels)
    std = std or found.std or (IMAGENET_STD if colours else [UNKNOWN_STD] * found.channels)
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != found.channels:
            sees = f"{source} sees {counted(found.channels, 'channel')}"
            raise UserError(f"{name}={values}: {sees}; give one for every channel.")
    if not all(value > 0 for value in std):
        raise UserError(f"std={' '.join(map(str, std))}: give values above 0.")
    network, size = found.backbone.eval().requires_grad_(False), found.size if size is None else size
    shown = f"The encoder takes images of {size} px, with mean {_listed(mean)} and std {_listed(std)}{told}."
    return FrozenEncoder(
        source,
        network,
        tuple(mean),
        tuple(std),
        size,
        weights_fingerprint(network.state_dict(), *found.architecture),
        says=(*found.says, shown),
        run=found.run,
        missing=found.missing,
        unused=found.unused,
        architecture=found.architecture,
        unfinished=found.unfinished,
        heads=found.heads,
        options=options,
    )


def words_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options that are given, as words of a command line."""
    words = list[str]()
    for name, value in options.items():
        if value is not None:
            several = isinstance(value, Iterable) and not isinstance(value, str)
            words += [f"--{name}", *map(str, value if several else [value])]
    return tuple(words)


def _find(source: str, backbone: str | None, stem: EncoderStem | None, size: int | None, channels: int) -> FoundEncoder:
    refuse_no_encoder(source)
    path = Path(source).expanduser()
    kind = source.split("/", 1)
    foreign = is_checkpoint_name(path) and not path.is_dir() and not _is_ours(path)
    if (backbone and not foreign) or (stem and not foreign and kind[0] != "random"):
        raise UserError(
            f"{source} says itself what it is; --backbone is for checkpoint files, --stem for these and random/NAME."
        )
    match kind:
        case ["torchvision", name]:
            return torchvision_encoder(name)
        case ["timm", name]:
            return timm_encoder(name, size)
        case ["random", name]:
            return untrained_encoder(name, stem or "imagenet", channels, size)
    if path.is_dir():
        exported = path / HUB_WEIGHTS
        return _of_export(exported) if _is_ours(exported) else _of_run(Run.existing(path), unfinished=True)
    if _is_ours(path):
        beside = Run(path.parent)
        return _of_run(beside, unfinished=False) if path.name == beside.backbone_file.name else _of_export(path)
    return checkpoint_encoder(path, backbone, stem, size)


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _of_run(run: Run, *, unfinished: bool) -> FoundEncoder:
    newest = _of_checkpoint(run) if unfinished else None
    backbone, needs = _of_file(run) if newest is None else newest[:2]
    mean, architecture = needs["mean"], (needs["backbone"], needs["stem"])
    known = run if run.recipe_file.is_file() else None
    found = FoundEncoder(backbone, architecture, len(mean), mean, needs["std"], needs["size"], run=known)
    if newest is None:
        return found
    state = f"without {run.backbone_file.name}" if newest.ended else "unfinished"
    said = f"{run.path}: {newest.progress}, {state}; this is the encoder of its newest checkpoint."
    return found._replace(says=(said,), unfinished=None if newest.ended else newest.progress, heads=newest.heads)


def _of_checkpoint(run: Run) -> Unfinished | None:
    try:
        newest = newest_encoder(run)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"The newest of {run.checkpoints} holds no encoder that fits its recipe ({error}); go on with "
            f"`logo-ssl resume {run.path}`."
        ) from error
    if newest is None and not run.backbone_file.is_file():
        if run.provenance_file.is_file():
            raise UserError(
                f"{run.path} is finished, but {run.backbone_file.name} and its checkpoints are gone; place that file "
                "back, or train it again in a new folder."
            )
        raise UserError(
            f"{run.path} has no encoder yet, since it has no checkpoint; wait for the first, or go on with "
            f"`logo-ssl resume {run.path}`."
        )
    return newest


def _of_file(run: Run) -> tuple[nn.Module, dict[str, Any]]:
    try:
        return load_backbone(run)
    except (safetensors.SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(f"{run.backbone_file} is no whole encoder ({error}); train it or copy it again.") from error


def _of_export(path: Path) -> FoundEncoder:
    """What `logo-ssl export --to safetensors` or `--to hf` wrote."""
    try:
        weights, needs = read_backbone(path)
        mean, name, stem, size = needs["mean"], needs["backbone"], needs["stem"], needs["size"]
        backbone = seeded_backbone(name, stem, len(mean), size)
        backbone.load_state_dict(weights)
    except (safetensors.SafetensorError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} is no whole encoder ({error}); export or copy it again.") from error
    return FoundEncoder(backbone, (name, stem), len(mean), mean, needs["std"], size)


def _is_ours(path: Path) -> bool:
    """Whether a file is a backbone that we wrote: it says what it is and what its input needs."""
    if path.suffix != ".safetensors" or not path.is_file():
        return False
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return set(file.metadata() or {}) >= {"backbone", "stem", "size", "mean", "std"}
    except safetensors.SafetensorError:
        return False
