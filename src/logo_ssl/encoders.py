"""Encoders to evaluate: a run's, a library's, an untrained one, an export, or one from another project's checkpoint."""

import hashlib
import json
import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import safetensors
import torch
import torch.nn.functional as F
import tyro
from jaxtyping import Float
from rich.console import Console
from torch import Tensor, nn

from . import __version__
from .errors import UserError, nearest
from .models import build_backbone
from .models.backbones import set_size, with_our_positions
from .models.external_checkpoints import SUFFIXES, EncoderStem, match_keys, read_checkpoint, recognise
from .models.teacher import Looks
from .ranges import Allowed, check_ranges
from .recipes import recipe_as_written
from .run import Run
from .system.terminal import plain_console
from .weights import MODEL, newest_encoder, read_backbone

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what public checkpoints were trained with
UNKNOWN_MEAN, UNKNOWN_STD = 0.5, 0.25  # for channels that are not colours
IMAGENET_SIZE, CIFAR_SIZE = 224, 32
SOLO_LEARN_PADDING = (2, 2)
SMALLEST = 8  # pixels
PIXELS, COLOURS, MOST_CHANNELS = 8, 64, 6
"""Of the baseline: pixels a side, colours in the histogram (of more than six channels, of the first six)."""
SEED = 0  # of untrained weights
BROKEN = (safetensors.SafetensorError, RuntimeError, KeyError, TypeError, ValueError)
"""What is raised for a file of ours that was torn or changed."""


class Architecture(NamedTuple):
    """What the weights of a network do not tell, as strides."""

    backbone: str = ""
    """A name of ours, torchvision/NAME, timm/NAME, or pixels."""
    stem: EncoderStem | Literal[""] = ""
    """Empty if a library built the network, and for pixels."""
    pooling: str = "default"


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
    fingerprint: str = ""
    """sha256 of architecture and weights, the same on every machine."""
    says: tuple[str, ...] = ()
    """Sentences about its weights and its images."""
    run: Run | None = None
    """The run it comes from, if it does."""
    architecture: Architecture = field(default_factory=Architecture)
    unfinished: str | None = None
    """How far its run has come, if that is not finished: epoch 12 of 200."""
    heads: dict[str, Tensor] | None = field(default=None, compare=False, repr=False)
    """The weights of projector and regressor then, from the same checkpoint."""
    head: nn.Linear | None = field(default=None, compare=False, repr=False)
    """What gives a score to each class, if it is that of a classifier."""
    classes: tuple[str, ...] = ()
    """Their names."""

    @property
    def channels(self) -> int:
        """Channels of the images that it sees."""
        return len(self.mean)

    @property
    def classifier(self) -> "FrozenEncoder":
        """The same with its head: what it gives of an image are the scores of classes."""
        if self.head is None:
            raise UserError(f"{self.name} is not a classifier; make one with `logo-ssl finetune`.")
        return replace(self, backbone=nn.Sequential(OrderedDict(backbone=self.backbone, head=self.head)).eval())


@dataclass(frozen=True)
class EncoderOptions:
    """Which encoder."""

    encoder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENCODER")]
    """A run folder, torchvision/NAME, timm/NAME, random/NAME, pixels, a checkpoint file, or an exported encoder."""
    backbone: str | None = None
    """The network in a checkpoint, if its shapes do not show it."""
    stem: EncoderStem | None = None
    """First layers of random/NAME, or of a checkpoint if its shapes do not show them."""
    key: str | None = None
    """Which weights of a checkpoint, such as student (default: of DINO the teacher, else not the momentum copy)."""
    size: Annotated[int | None, Allowed(lambda size: size is None or size >= SMALLEST, f"{SMALLEST} or more")] = None
    """Side of the images in pixels (default: as in training; else 32 for a CIFAR stem and 224 for others)."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, on a scale from 0 to 1 (default: as in training, or that of ImageNet)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, on the same scale."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def typed(self) -> str:
        """What names the same encoder in another command, as a shell takes it."""
        words = [self.encoder]
        for name in ("backbone", "stem", "key", "size", "mean", "std"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name}", *map(str, value if isinstance(value, tuple) else [value])]
        return shlex.join(words)

    def load(self) -> FrozenEncoder:
        """The encoder that these options name; of an unfinished run, that of its newest checkpoint."""
        found = _find(self)
        looks = {"mean": tuple(self.mean or found.mean), "std": tuple(self.std or found.std)}
        for name, values in looks.items():
            if len(values) != found.channels:
                raise UserError(
                    f"{name}={values}: must be one value for each of the {found.channels} channels of {self.encoder}."
                )
        if not all(value > 0 for value in looks["std"]):
            raise UserError(f"std={self.std}: must be above 0.")
        size = self.size or found.size
        if size != found.size:
            set_size(found.backbone, size)
        shown = " and ".join(f"{name} {' '.join(f'{value:.3f}' for value in values)}" for name, values in looks.items())
        return replace(
            found,
            name=self.encoder,
            backbone=found.backbone.eval().requires_grad_(False),
            size=size,
            fingerprint=weights_fingerprint(found.backbone.state_dict(), *found.architecture),
            says=(*found.says, f"Images are shown at {size} px, with {shown}."),
            **looks,
        )

    def open(self) -> tuple[FrozenEncoder, Console]:
        """The same, and a console on which all is printed that there is to say of it."""
        encoder, console = self.load(), plain_console()
        for sentence in encoder.says:
            console.print(sentence)
        return encoder, console


def load_encoder(
    source: str, *, mean: Sequence[float] | None = None, std: Sequence[float] | None = None, **options: Any
) -> FrozenEncoder:
    """The encoder of a source, with the options of `EncoderOptions`."""
    mean, std = (None if values is None else tuple(values) for values in (mean, std))
    return EncoderOptions(source, mean=mean, std=std, **options).load()


def weights_fingerprint(weights: Mapping[str, Tensor], *architecture: object) -> str:
    """sha256 over what the network is (strides have no weights), and the names, types, shapes and bytes in it."""
    digest = hashlib.sha256(repr(architecture).encode())
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)  # numpy knows no bfloat16, but bytes
    return digest.hexdigest()


def _find(asked: EncoderOptions) -> FrozenEncoder:
    """The encoder of a source, with the images that it was made for."""
    source, channels = asked.encoder, len(asked.mean or IMAGENET_MEAN)
    path, kind = Path(source).expanduser(), source.split("/", 1)
    external = is_external(path)
    if not external and (asked.backbone or asked.key or (asked.stem and kind[0] != "random")):
        raise UserError(f"{source}: --backbone and --key are for checkpoint files, --stem for these and random/NAME.")
    match kind:
        case ["torchvision", name]:
            return _from_torchvision(name)
        case ["timm", name]:
            return _from_timm(name, asked.size)
        case ["random", name]:
            return _untrained(name, asked.stem or "imagenet", channels, asked.size)
        case ["pixels"]:
            return pixels(channels)
    if external:
        return _from_checkpoint(path, asked)
    if _is_ours(path):
        return _from_file(path)
    if source and path.is_dir():
        exported = path / MODEL
        return _from_file(exported) if _is_ours(exported) else _from_run(Run.existing(path))
    import torchvision  # slow to import: only where it is needed

    hint = f" Did you mean torchvision/{source}?" if source in torchvision.models.list_models() else ""
    raise UserError(
        f"{source!r} is not an encoder; give a run folder, torchvision/NAME, timm/NAME, random/NAME, pixels, or a "
        f"checkpoint ({', '.join(SUFFIXES)}).{hint}"
    )


# -- What needs no training


class Pixels(nn.Module):
    """Images as they come; or small ones and a histogram of their colours, each of unit length.

    On CIFAR-10, Imagenette and Pets classifiers are best on 8 x 8 pixels with colours; on scenes, on 32 x 32 without.
    """

    def __init__(self, side: int, colours: bool) -> None:
        super().__init__()
        self.side, self.colours = side, colours
        self.nothing = nn.Parameter(torch.zeros(0))  # tells the device

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F"]:
        """Features of normalised images; with colours, of images from 0 to 1."""
        small = F.adaptive_avg_pool2d(x, self.side).flatten(1)
        if not self.colours:
            return small
        levels = max(2, round(COLOURS ** (1 / x.shape[1])))
        colour = torch.zeros_like(x[:, 0], dtype=torch.int64)
        for channel in x[:, :MOST_CHANNELS].unbind(1):
            colour = colour * levels + (channel * levels).long().clamp(0, levels - 1)
        counts = x.new_zeros(len(x), levels ** min(x.shape[1], MOST_CHANNELS))
        counts.scatter_add_(1, colour.flatten(1), torch.ones_like(x[:, 0]).flatten(1))
        return torch.cat([F.normalize(small - 0.5, dim=1), F.normalize(counts.sqrt(), dim=1)], dim=1)


def pixels(channels: int) -> FrozenEncoder:
    """Small images and their colours, as a baseline."""
    network, looks = Pixels(PIXELS, colours=True).eval(), ((0.0,) * channels, (1.0,) * channels, CIFAR_SIZE)
    return FrozenEncoder("pixels and colours", network, *looks, "pixels", architecture=Architecture("pixels"))


def baselines(encoder: FrozenEncoder) -> list[FrozenEncoder]:
    """Its network before training (seed 0), if that is another, pixels at 32 px normalised as its own, and `pixels`."""
    if isinstance(encoder.backbone, Pixels):
        return []
    found, network = [], _rebuilt(encoder.architecture, encoder.channels, encoder.size)
    if network is not None:
        known = weights_fingerprint(network.state_dict(), *encoder.architecture)
        if known != encoder.fingerprint:
            network = network.eval().requires_grad_(False)
            parts: Any = {"run": None, "heads": None, "head": None, "classes": ()}
            found.append(replace(encoder, name="untrained", backbone=network, fingerprint=known, **parts))
    raw, looks = Pixels(CIFAR_SIZE, colours=False).eval(), (encoder.mean, encoder.std, CIFAR_SIZE)
    found.append(FrozenEncoder("raw pixels", raw, *looks, "raw pixels", architecture=Architecture("pixels")))
    return [*found, pixels(encoder.channels)]


def _rebuilt(architecture: Architecture, channels: int, size: int) -> nn.Module | None:
    """The network of that architecture before training, always the same; None for one of somebody else's."""
    backbone, stem, pooling = architecture
    library, _, name = backbone.partition("/")
    if stem:
        return _untrained(backbone, stem, channels, size, pooling).backbone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        if library == "torchvision":
            import torchvision

            network = torchvision.models.get_model(name, weights=None)
            remove_classifier(network)
            return network
        if library == "timm":
            return _of_timm(name, size, pretrained=False)
    return pixels(channels).backbone if backbone == "pixels" else None


# -- Sources


def _from_torchvision(name: str) -> FrozenEncoder:
    """A classifier of torchvision with its default weights, up to its last linear layer."""
    import torchvision  # slow to import: only where it is needed

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise UserError(f"torchvision has no classifier {name!r}.{nearest(name, known)}")
    try:
        weights: Any = torchvision.models.get_model_weights(name)["DEFAULT"]
        backbone = torchvision.models.get_model(name, weights=weights)
    except Exception as error:  # of the network or the disk, or of a model that nobody trained
        raise _not_fetched(f"torchvision/{name}", error) from error
    needs = weights.transforms()
    says = (f"Weights: {weights}; features are the input of {remove_classifier(backbone)}.",)
    looks = (tuple(needs.mean), tuple(needs.std), needs.crop_size[0])
    return FrozenEncoder("", backbone, *looks, says=says, architecture=Architecture(f"torchvision/{name}"))


def remove_classifier(network: nn.Module) -> str:
    """Make the last linear layer, which torchvision's classifiers end with, pass its input on; gives back its name."""
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"{type(network).__name__} ends with no linear layer, so its features are unknown; try timm/.")
    parent, _, child = linear[-1].rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return linear[-1]


def _from_timm(name: str, size: int | None) -> FrozenEncoder:
    """A model of timm with its published weights, without its classifier."""
    import timm.data  # slow to import: only where it is needed

    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"timm has no model {name!r}.{nearest(name, timm.list_models())}")
    try:
        backbone = _of_timm(name, size, pretrained=True)
    except Exception as error:  # of the network, the hub or the disk
        raise _not_fetched(f"timm/{name}", error) from error
    needs = timm.data.resolve_model_data_config(backbone)
    says = (f"Weights: {name}, tag {backbone.pretrained_cfg.get('tag') or 'default'}.",)
    looks = (tuple(needs["mean"]), tuple(needs["std"]), needs["input_size"][-1])
    return FrozenEncoder("", backbone, *looks, says=says, architecture=Architecture(f"timm/{name}"))


def _of_timm(name: str, size: int | None, *, pretrained: bool) -> Any:
    import timm

    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, img_size=size)
    except TypeError:  # convolutional networks take any size, and have no such option
        return timm.create_model(name, pretrained=pretrained, num_classes=0)


def _not_fetched(what: str, error: Exception) -> UserError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return UserError(
        f"The published weights of {what} could not be fetched ({reason}); give a checkpoint file instead."
    )


def _untrained(
    name: str, stem: EncoderStem, channels: int, size: int | None, pooling: Any = "default"
) -> FrozenEncoder:
    """A backbone of ours as it is before training: always the same, whatever was drawn before."""
    if size is None:
        size = IMAGENET_SIZE if stem == "imagenet" else CIFAR_SIZE
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        backbone = build_backbone(name, "imagenet" if stem == "imagenet" else "cifar", channels, size, pooling)
    if stem in ("solo-learn", "lightly"):
        network: Any = backbone
        if not isinstance(getattr(network, "conv1", None), nn.Conv2d):
            raise UserError(f"stem={stem}: {name} is not a ResNet; use imagenet or cifar.")
        if stem == "solo-learn":
            network.conv1.padding = SOLO_LEARN_PADDING
        else:
            network.relu = nn.Identity()
    says = (f"{name} with the {stem} stem is untrained (seed {SEED}).",)
    architecture = Architecture(name, stem, pooling)
    return FrozenEncoder("", backbone, *usual_looks(channels), size, says=says, architecture=architecture)


def usual_looks(channels: int) -> Looks:
    """Mean and standard deviation of the images of weights that do not tell: for colours, those of ImageNet."""
    if channels == len(IMAGENET_MEAN):
        return IMAGENET_MEAN, IMAGENET_STD
    return (UNKNOWN_MEAN,) * channels, (UNKNOWN_STD,) * channels


def _from_checkpoint(path: Path, asked: EncoderOptions) -> FrozenEncoder:
    """The encoder in a checkpoint of MoCo, SimSiam, DINO, lightly, solo-learn, torchvision or timm."""
    weights = read_checkpoint(path, asked.key)
    name, stem, channels = recognise(path, weights, asked.backbone, asked.stem)
    if name is None:
        raise UserError(f"{path} does not hold a known ResNet; name its network with --backbone.")
    encoder = _untrained(name, stem, channels, asked.size)
    resampled = with_our_positions(encoder.backbone, weights)
    fitting, about = match_keys(encoder.backbone.state_dict(), resampled, f"{name} with the {stem} stem")
    encoder.backbone.load_state_dict(fitting, strict=False)
    says = [f"{path.name} is read as {name} with the {stem} stem.", about]
    if stem == "cifar" and "classifier.weight" in weights:  # as in solo-learn's
        says.append("If it comes from solo-learn, give --stem solo-learn.")
    return replace(encoder, says=tuple(says))


def _from_run(run: Run) -> FrozenEncoder:
    """The encoder of a run; of an unfinished one, that of its newest checkpoint."""
    try:
        newest = newest_encoder(run)
    except BROKEN as error:
        raise UserError(f"The newest of {run.checkpoints} does not fit its recipe ({error}).") from error
    if newest is None:
        if not run.backbone_file.is_file():
            raise UserError(f"{run.path} has no {run.backbone_file.name} yet; {run.how_to_resume()}.")
        return _from_file(run.backbone_file)
    state = f"without {run.backbone_file.name}" if newest.ended else "unfinished"
    says = (f"{run.path}: {newest.progress}, {state}; this is the encoder of its newest checkpoint.",)
    needs = newest.needs
    return FrozenEncoder(
        "",
        newest.backbone,
        tuple(needs["mean"]),
        tuple(needs["std"]),
        needs["size"],
        says=says,
        run=run if run.recipe_file.is_file() else None,
        architecture=Architecture(needs["backbone"], needs["stem"], needs["pooling"]),
        unfinished=None if newest.ended else newest.progress,
        heads=newest.heads,
    )


def _from_file(path: Path) -> FrozenEncoder:
    """A backbone that we wrote, into a run or by `logo-ssl export --to safetensors` or `--to hf`; or a classifier."""
    try:
        weights, needs = read_backbone(path)
        encoder = rebuilt_encoder(needs)
        if classes := needs.get("classes"):
            head = nn.Linear(weights["head.weight"].shape[1], len(classes)).requires_grad_(False)
            says = (f"{path} was trained with labels: figures on images that it learned from are too high.",)
            encoder = replace(encoder, head=head, classes=tuple(classes), says=(*encoder.says, *says))
        (encoder.classifier if classes else encoder).backbone.load_state_dict(weights)
    except BROKEN as error:
        raise UserError(f"{path} is not a whole encoder ({error}); write or copy it again.") from error
    run = Run(path.parent)
    known = run if path.name == run.backbone_file.name and run.recipe_file.is_file() else None  # else a file alone
    return replace(encoder, run=known)


def rebuilt_encoder(needs: Mapping[str, Any]) -> FrozenEncoder:
    """The encoder that the metadata of a file tell of, before training."""
    architecture = Architecture(needs["backbone"], needs["stem"], needs["pooling"])
    network = _rebuilt(architecture, len(needs["mean"]), needs["size"])
    if network is None:
        raise ValueError(f"backbone={needs['backbone']}")
    looks = tuple(needs["mean"]), tuple(needs["std"]), needs["size"]
    return FrozenEncoder("", network, *looks, architecture=architecture)


def metadata_of(encoder: FrozenEncoder, classes: Sequence[str] = ()) -> dict[str, str]:
    """What a file says of its weights: network, input, classes if it has its head, and the recipe of its run."""
    about = {
        "format": "pt",
        **encoder.architecture._asdict(),
        "size": str(encoder.size),
        "mean": json.dumps(encoder.mean),
        "std": json.dumps(encoder.std),
        "logo_ssl": __version__,
        "encoder": encoder.name,
    }
    if classes:
        about["classes"] = json.dumps(classes)
    return about if encoder.run is None else about | {"recipe": json.dumps(recipe_as_written(encoder.run), indent=2)}


def is_external(path: Path) -> bool:
    """Whether a source is a checkpoint of another project: a file that we did not write, even one that is not there."""
    return path.name.lower().endswith(SUFFIXES) and not path.is_dir() and not _is_ours(path)


def _is_ours(path: Path) -> bool:
    """Whether a file is a backbone that we wrote: it says what it is and what its input needs."""
    if path.suffix != ".safetensors" or not path.is_file():
        return False
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return set(file.metadata() or {}) >= {"backbone", "stem", "size", "mean", "std"}
    except safetensors.SafetensorError:
        return False
