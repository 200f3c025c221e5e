"""Weights that torchvision, timm, the Hugging Face Hub or safetensors load with every key in its place."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm
import torchvision
from torch import nn

from ... import __version__
from ...errors import UserError
from ...eval.encoder import SOLO_LEARN_PADDING, FrozenEncoder
from ...files import write
from ...models.backbones import RESNETS, plain_weights, transformer_options, weight_bytes
from ...recipes import recipe_as_written
from ..embeddings import RGB

FOR_PHOTOGRAPHS = ("from PIL import Image, ImageOps", "from torchvision.transforms import v2")
STEMS = {"cifar": (3, 1, 1), "lightly": (3, 1, 1), "solo-learn": (3, 1, SOLO_LEARN_PADDING[0]), "imagenet": (7, 2, 3)}
"""Side, stride and padding of a ResNet's first convolution."""
TINY_GOES_TO = "train with --backbone resnet18, or export `--to onnx` or `--to safetensors`, which take it"


Rebuilt = tuple[nn.Module, tuple[str, ...]]
"""A network of another library without weights, and the lines that make it."""


def in_torchvision(encoder: FrozenEncoder) -> Rebuilt:
    """A ResNet of torchvision without its classifier."""
    name, stem = of_ours(encoder)
    if name not in RESNETS:
        raise UserError(f"torchvision has no {name}; {TINY_GOES_TO}.")
    network: Any = torchvision.models.get_model(name, weights=None)
    network.fc = nn.Identity()
    lines = (f"encoder = torchvision.models.{name}()", "encoder.fc = torch.nn.Identity()")
    return _with_stem(network, lines, stem, encoder.channels)


def in_timm(encoder: FrozenEncoder) -> Rebuilt:
    """A network of timm without its classifier; its ResNets have torchvision's keys and computations."""
    name, stem = of_ours(encoder)
    network, options = _of_timm(name, encoder)
    told = "".join(f", {key}={value!r}" for key, value in options.items())
    lines = (f"encoder = timm.create_model({name.removeprefix('timm/')!r}{told})",)
    return _with_stem(network, lines, stem if name in RESNETS else "imagenet", 3)


def _of_timm(name: str, encoder: FrozenEncoder) -> tuple[nn.Module, dict[str, Any]]:
    """A network of timm, and what timm must be told to build it as it was trained: a transformer knows its size."""
    if not name.startswith("timm/") and name not in RESNETS:
        raise UserError(f"timm has no {name}; {TINY_GOES_TO}.")
    name, options = name.removeprefix("timm/"), dict[str, Any](num_classes=0)
    if encoder.channels != 3:
        options["in_chans"] = encoder.channels
    sized = transformer_options(encoder.size, *encoder.architecture[2:])  # type: ignore[arg-type] (its pooling)
    try:
        return timm.create_model(name, **options, **sized), options | sized
    except TypeError:  # convolutional networks take any size, and have no such option
        return timm.create_model(name, **options), options


def of_ours(encoder: FrozenEncoder) -> tuple[str, str]:
    """Backbone and stem of a network that we build."""
    name, stem, *_ = encoder.architecture
    if name in ("torchvision", "timm"):
        raise UserError(
            f"{encoder.name} is {name}'s own and loads there as {stem}; export a run or a checkpoint, or this one "
            "`--to onnx`."
        )
    return name, "imagenet" if name.startswith("timm/") else stem  # timm's networks are built as they are


def _with_stem(network: Any, lines: tuple[str, ...], stem: str, channels: int) -> Rebuilt:
    """The first convolution as it was trained, and no max-pool where it had none."""
    side, stride, padding = STEMS[stem]
    if stem != "imagenet" or channels != 3:
        n_in = network.conv1.in_channels if channels == 3 else channels
        width = network.conv1.out_channels
        network.conv1 = nn.Conv2d(n_in, width, side, stride, padding, bias=False)
        lines += (f"encoder.conv1 = torch.nn.Conv2d({n_in}, {width}, {side}, {stride}, {padding}, bias=False)",)
    if stem != "imagenet":
        network.maxpool = nn.Identity()
        lines += ("encoder.maxpool = torch.nn.Identity()",)
    if stem == "lightly":
        relu = "act1" if hasattr(network, "act1") else "relu"  # timm's name, torchvision's
        setattr(network, relu, nn.Identity())
        lines += (f"encoder.{relu} = torch.nn.Identity()",)
    return network, lines


def to_torchvision(encoder: FrozenEncoder, out: Path) -> str:
    """Weights for torchvision's own class."""
    return _written(encoder, in_torchvision(encoder), out, "import torchvision")


def to_timm(encoder: FrozenEncoder, out: Path) -> str:
    """Weights for timm's own class."""
    return _written(encoder, in_timm(encoder), out, "import timm")


def to_safetensors(encoder: FrozenEncoder, out: Path) -> str:
    """Weights that say themselves what they are: any backbone of ours; `logo_ssl.load` needs no more."""
    of_ours(encoder)
    _write_weights(encoder, encoder.backbone, out)
    lines = [f"encoder = logo_ssl.load({str(out)!r})  # encoder.transform(path) makes one of its images"]
    return snippet(encoder, ["import logo_ssl"], lines, photo=False)


def metadata_of(encoder: FrozenEncoder) -> dict[str, str]:
    """What a file says of its weights: network, input, and the recipe where they come from a run."""
    name, stem = encoder.network
    about = {
        "format": "pt",
        "backbone": name,
        "stem": stem,
        "pooling": next(iter(encoder.architecture[2:]), "default"),
        "size": str(encoder.size),
        "mean": json.dumps(encoder.mean),
        "std": json.dumps(encoder.std),
        "logo_ssl": __version__,
        "encoder": encoder.name,
    }
    return about if encoder.run is None else about | {"recipe": json.dumps(recipe_as_written(encoder.run), indent=2)}


def snippet(encoder: FrozenEncoder, imports: Sequence[str], lines: Sequence[str], *, photo: bool = True) -> str:
    """Lines that run as they are: they load an encoder and show it noise of the right size; its input is said.

    With `photo`, they also say how a photograph becomes an input, by a `transform` that needs nothing of ours.
    """
    shown = _photograph(encoder) if photo and encoder.channels == RGB else []
    needed = {*imports, "import torch", *(FOR_PHOTOGRAPHS if shown else ())}
    first = sorted(needed, key=lambda line: (line.startswith("from"), line))
    needs = f"(pixels / 255 - mean) / std, mean={_rounded(encoder.mean)}, std={_rounded(encoder.std)}"
    noise = f"images = torch.randn(2, {encoder.channels}, {encoder.size}, {encoder.size})  # in place of yours: {needs}"
    return "\n".join([*first, "", *lines, *shown, noise, "features = encoder(images)", ""])


def _photograph(encoder: FrozenEncoder) -> list[str]:
    """What `encoder.transform` does, to the pixel, but for large JPEGs, which that decodes in part.

    The image becomes a tensor before it is resized: Pillow, which would do it otherwise, rounds in another way.
    """
    size = encoder.size
    return [
        "transform = v2.Compose([  # what it sees of a photograph",
        "    ImageOps.exif_transpose,",
        "    v2.RGB(),",
        "    v2.PILToTensor(),",
        f"    v2.Resize({size}, v2.InterpolationMode.BICUBIC, antialias=True),",
        f"    v2.CenterCrop({size}),",
        "    v2.ToDtype(torch.float32, scale=True),",
        f"    v2.Normalize({_rounded(encoder.mean)}, {_rounded(encoder.std)}),",
        "])",
        "# images = transform(Image.open('photo.jpg'))[None]",
    ]


def _rounded(values: tuple[float, ...]) -> list[float]:
    return [round(value, 6) for value in values]


def _written(encoder: FrozenEncoder, rebuilt: Rebuilt, out: Path, library: str) -> str:
    network, lines = rebuilt
    network.load_state_dict(encoder.backbone.state_dict())  # strict: refused before anything is written
    _write_weights(encoder, network, out)
    lines = [*lines, f"encoder.load_state_dict(load_file({str(out)!r}))  # strict: every key matches"]
    return snippet(encoder, [library, "from safetensors.torch import load_file"], [*lines, "encoder.eval()"])


def _write_weights(encoder: FrozenEncoder, network: nn.Module, out: Path) -> None:
    write(out, weight_bytes(plain_weights(network.state_dict()), metadata_of(encoder)))


# -- The Hugging Face Hub


def to_hf(encoder: FrozenEncoder, out: Path) -> str:
    """A folder that `timm.create_model("local-dir:FOLDER", pretrained=True)` loads, and the Hub's layout."""
    name, stem = of_ours(encoder)
    if stem != "imagenet" or encoder.channels != RGB:
        raise UserError(
            f"{encoder.name} has {encoder.channels} input channels and the {stem} stem; timm loads a folder with 3 and "
            "the imagenet stem only. `--to timm` writes its weights and the lines that rebuild it."
        )
    network: Any
    network, options = _of_timm(name, encoder)
    network.load_state_dict(encoder.backbone.state_dict())  # strict: refused before anything is written
    network.pretrained_cfg |= {
        "tag": "logo_ssl",
        "custom_load": False,
        "input_size": (encoder.channels, encoder.size, encoder.size),
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": encoder.mean,
        "std": encoder.std,
        "num_classes": 0,
    }
    del options["num_classes"]  # which the folder says itself
    timm.models.save_for_hf(network, str(out), model_args=options, safe_serialization=True)
    _write_weights(encoder, network, out / "model.safetensors")  # the same, which also say what they are
    write(out / "README.md", model_card(encoder))
    return snippet(encoder, ["import timm"], [_loading(out)])


CARD = """\
---
library_name: timm
pipeline_tag: image-feature-extraction
tags:
- timm
- self-supervised
- logo-ssl
---
# {name}, pretrained without labels
{trained}
- Parameters: {parameters:.1f} M
- Input: {channels} channels, {size} px, mean {mean}, std {std}
- Output: features before any classifier
- Licence, intended use, limits: to be filled in by whoever shares it

```python
{snippet}```
"""
TRAINED = """
Trained by logo-ssl {version}: framework {framework[kind]}, strategy {strategy[kind]}, recipe `{name}`, {epochs}, batch
{batch_size}, seed {seed}, on {data}.
"""


def model_card(encoder: FrozenEncoder) -> str:
    """Who the encoder is, how it was trained, and how to load it; what only its maker knows is left to fill in."""
    trained = ""
    if encoder.run is not None:
        recipe = recipe_as_written(encoder.run)
        known = {"data": Path(recipe["data"]).name, "epochs": encoder.unfinished or f"{recipe['epochs']} epochs"}
        trained = TRAINED.format(**recipe | known, version=__version__)
    return CARD.format(
        name=encoder.architecture[0].removeprefix("timm/"),
        trained=trained,
        parameters=sum(parameter.numel() for parameter in encoder.backbone.parameters()) / 1e6,
        channels=encoder.channels,
        size=encoder.size,
        mean=_rounded(encoder.mean),
        std=_rounded(encoder.std),
        snippet=snippet(encoder, ["import timm"], [_loading("THIS_FOLDER")]),
    )


def _loading(folder: str | Path) -> str:
    return f"encoder = timm.create_model({f'local-dir:{folder}'!r}, pretrained=True).eval()"
