"""An encoder in a file that torchvision, timm, the Hugging Face Hub, safetensors or ONNX Runtime load as it is."""

import os
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import timm
import torch
import torchvision
from torch import Tensor, nn

from .. import __version__
from ..encoders import SOLO_LEARN_PADDING, EncoderOptions, FrozenEncoder, metadata_of
from ..errors import UserError
from ..files import check_output, check_output_folder, write
from ..models.backbones import RESNETS, plain_weights, transformer_options, weight_bytes
from ..models.batch_norm import with_plain_batch_norm
from ..recipes import recipe_as_written
from .embeddings import RGB, Encoder
from .module import frozen

FOR_PHOTOGRAPHS = ("from PIL import Image, ImageOps", "from torchvision.transforms import v2")
STEMS = {"cifar": (3, 1, 1), "lightly": (3, 1, 1), "solo-learn": (3, 1, SOLO_LEARN_PADDING[0]), "imagenet": (7, 2, 3)}
"""Side, stride and padding of a ResNet's first convolution."""
TINY_GOES_TO = "train with --backbone resnet18, or export `--to onnx` or `--to safetensors`, which take it"
TOLERANCE = 1e-4  # of the largest feature, between onnxruntime and PyTorch
TRACED, TRIED = 2, (1, 3)  # sizes of batches
SEED = 0


# -- Networks of torchvision and timm, rebuilt without weights


def to_torchvision(encoder: FrozenEncoder, out: Path) -> str:
    """Weights for torchvision's own ResNet, without its classifier."""
    name, stem = of_ours(encoder)
    if name not in RESNETS:
        raise UserError(f"torchvision has no {name}; {TINY_GOES_TO}.")
    network: Any = torchvision.models.get_model(name, weights=None)
    network.fc = nn.Identity()
    lines = [f"encoder = torchvision.models.{name}()", "encoder.fc = torch.nn.Identity()"]
    lines += _change_stem(network, stem, encoder.channels)
    return _write_rebuilt(encoder, network, "import torchvision", lines, out)


def to_timm(encoder: FrozenEncoder, out: Path) -> str:
    """Weights for timm's own network, without its classifier; its ResNets have torchvision's keys and computations."""
    name, stem = of_ours(encoder)
    network, options = _of_timm(name, encoder)
    told = "".join(f", {key}={value!r}" for key, value in options.items())
    lines = [f"encoder = timm.create_model({name.removeprefix('timm/')!r}{told})"]
    if name in RESNETS:
        lines += _change_stem(network, stem, RGB)
    return _write_rebuilt(encoder, network, "import timm", lines, out)


def _of_timm(name: str, encoder: FrozenEncoder) -> tuple[nn.Module, dict[str, Any]]:
    """A network of timm, and what timm must be told to build it as it was trained: a transformer knows its size."""
    if not name.startswith("timm/") and name not in RESNETS:
        raise UserError(f"timm has no {name}; {TINY_GOES_TO}.")
    name, options = name.removeprefix("timm/"), dict[str, Any](num_classes=0)
    if encoder.channels != RGB:
        options["in_chans"] = encoder.channels
    sized = transformer_options(encoder.size, encoder.architecture.pooling)  # type: ignore[arg-type] (one of them)
    try:
        return timm.create_model(name, **options, **sized), options | sized
    except TypeError:  # convolutional networks take any size, and have no such option
        return timm.create_model(name, **options), options


def of_ours(encoder: FrozenEncoder) -> tuple[str, str]:
    """Backbone and stem of a network that we build."""
    name, stem, _ = encoder.architecture
    library, _, theirs = name.partition("/")
    if theirs and not stem:
        raise UserError(
            f"{encoder.name} is {library}'s own and loads there as {theirs}; export a run or a checkpoint, or this one "
            "`--to onnx`."
        )
    return name, "imagenet" if name.startswith("timm/") else stem  # timm's networks are built as they are


def _change_stem(network: Any, stem: str, channels: int) -> list[str]:
    """Give a ResNet the first convolution that it was trained with, and no max-pool where it had none."""
    (side, stride, padding), lines = STEMS[stem], list[str]()
    if stem != "imagenet" or channels != RGB:
        n_in = network.conv1.in_channels if channels == RGB else channels
        width = network.conv1.out_channels
        network.conv1 = nn.Conv2d(n_in, width, side, stride, padding, bias=False)
        lines += [f"encoder.conv1 = torch.nn.Conv2d({n_in}, {width}, {side}, {stride}, {padding}, bias=False)"]
    removed = [] if stem == "imagenet" else ["maxpool"]
    if stem == "lightly":
        removed.append("act1" if hasattr(network, "act1") else "relu")  # timm's name, torchvision's
    for name in removed:
        setattr(network, name, nn.Identity())
        lines += [f"encoder.{name} = torch.nn.Identity()"]
    return lines


def _write_rebuilt(encoder: FrozenEncoder, network: nn.Module, library: str, lines: list[str], out: Path) -> str:
    """Write the weights for a network that was rebuilt by these lines."""
    network.load_state_dict(encoder.backbone.state_dict())  # strict: refused before anything is written
    _write_weights(encoder, network, out)
    lines += [f"encoder.load_state_dict(load_file({str(out)!r}))  # strict: every key matches", "encoder.eval()"]
    return snippet(encoder, [library, "from safetensors.torch import load_file"], lines)


def _write_weights(encoder: FrozenEncoder, network: nn.Module, out: Path) -> None:
    write(out, weight_bytes(plain_weights(network.state_dict()), metadata_of(encoder)))


# -- Any backbone of ours, and what a file says of it


def to_safetensors(encoder: FrozenEncoder, out: Path) -> str:
    """Weights that say themselves what they are: any backbone of ours; `logo_ssl.load` needs no more."""
    of_ours(encoder)
    _write_weights(encoder, encoder.backbone, out)
    lines = [f"encoder = logo_ssl.load({str(out)!r})  # encoder.transform(path) makes one of its images"]
    return snippet(encoder, ["import logo_ssl"], lines, photo=False)


FEATURES = ("features = encoder(images)",)
SCORES = (
    'classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])',
    "scores = encoder(images)",
    "labels = [classes[label] for label in scores.argmax(dim=1)]",
)
"""What is done with images, by an encoder and by a classifier."""


def snippet(
    encoder: FrozenEncoder,
    imports: Sequence[str],
    lines: Sequence[str],
    *,
    photo: bool = True,
    uses: Sequence[str] = FEATURES,
) -> str:
    """Lines that run as they are: they load an encoder and show it noise of the right size; its input is said.

    With `photo`, they also say how a photograph becomes an input, by a `transform` that needs nothing of ours.
    """
    shown = _photograph(encoder) if photo and encoder.channels == RGB else []
    needed = {*imports, "import torch", *(FOR_PHOTOGRAPHS if shown else ())}
    first = sorted(needed, key=lambda line: (line.startswith("from"), line))
    needs = f"(pixels / 255 - mean) / std, mean={_rounded(encoder.mean)}, std={_rounded(encoder.std)}"
    noise = f"images = torch.randn(2, {encoder.channels}, {encoder.size}, {encoder.size})  # in place of yours: {needs}"
    return "\n".join([*first, "", *lines, *shown, noise, *uses, ""])


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
        name=encoder.architecture.backbone.removeprefix("timm/"),
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


# -- ONNX


@torch.no_grad()
def to_onnx(encoder: FrozenEncoder, out: Path) -> str:
    """A graph from `images` [B C S S], normalised, to `features` [B F]; refused if onnxruntime computes others.

    Of a classifier it is a graph to `scores` [B classes], and its metadata have the names of the classes.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError as error:
        raise UserError(f"ONNX needs {error.name}: pip install 'logo-ssl[onnx]'.") from error
    network = encoder.classifier.backbone if encoder.classes else encoder.backbone
    network = with_plain_batch_norm(deepcopy(network).cpu()).eval()
    shape = (encoder.channels, encoder.size, encoder.size)
    content = _graph(encoder, network, torch.zeros(TRACED, *shape))
    session: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for n_images in TRIED:
        images = torch.randn(n_images, *shape, generator=torch.Generator().manual_seed(SEED))
        expected, (found,) = network(images).numpy(), session.run(None, {"images": images.numpy()})
        apart = float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-12))
        if apart > TOLERANCE:
            raise UserError(
                f"onnxruntime computes features that differ from PyTorch's by {apart:.1e} of the largest, more than "
                f"{TOLERANCE:g}; nothing was written. Try another version of onnxruntime."
            )
    write(out, content)
    lines = [
        f"session = onnxruntime.InferenceSession({str(out)!r})",
        'encoder = lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])',
    ]
    if encoder.classes:
        return snippet(encoder, ["import json", "import onnxruntime"], lines, uses=SCORES)
    return snippet(encoder, ["import onnxruntime"], lines)


def _graph(encoder: FrozenEncoder, network: nn.Module, images: Tensor) -> bytes:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)  # torch 2.11 on itself
            program: Any = torch.onnx.export(
                network,
                (images,),
                input_names=["images"],
                output_names=["scores" if encoder.classes else "features"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                dynamo=True,
                verbose=False,
            )
    except Exception as error:  # of the exporter, which meets new layers in many ways
        reason = str(error.__cause__ or error).partition("\n")[0]  # its own words are of its steps
        raise UserError(f"{encoder.name} cannot be written as ONNX ({reason}); `--to safetensors` takes it.") from error
    graph = program.model_proto
    for key, value in metadata_of(encoder, encoder.classes).items():
        graph.metadata_props.add(key=key, value=value)
    return graph.SerializeToString()


# -- All targets

Target = Literal["torchvision", "timm", "onnx", "safetensors", "hf"]
FORMATS: dict[Target, tuple[Callable[[FrozenEncoder, Path], str], str]] = {
    "torchvision": (to_torchvision, "encoder-torchvision.safetensors"),
    "timm": (to_timm, "encoder-timm.safetensors"),
    "onnx": (to_onnx, "encoder.onnx"),
    "safetensors": (to_safetensors, "encoder.safetensors"),
    "hf": (to_hf, "encoder-hf"),
}
"""What writes a target and returns the lines that load it (UserError if the target has no such network), and a file,
or a folder if it has no suffix."""


class Exported(NamedTuple):
    """What was written, and how to load it."""

    path: Path
    snippet: str
    """Python lines that load it as `encoder` and make `features` of some `images`; they run as they are."""


def export(
    encoder: Encoder, to: Target, out: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Exported:
    """Write an encoder so that others load it: `to` torchvision, timm, onnx, safetensors or hf (a folder).

    A file, or a folder that is not empty, is replaced only with `overwrite`.
    """
    write_encoder, default = FORMATS[to]
    path, suffix = Path(default if out is None else out), Path(default).suffix
    if suffix and path.suffix.lower() != suffix:
        raise UserError(f"out={path}: {to} is written to a file that ends in {suffix}.")
    (check_output if suffix else check_output_folder)(path, overwrite)
    return Exported(path, write_encoder(frozen(encoder), path))


@dataclass(frozen=True)
class Export(EncoderOptions):
    """Write an encoder that torchvision, timm, ONNX Runtime or the Hugging Face Hub can load, and show how.

    example: logo-ssl export runs/photos --to timm --out encoder.safetensors
    """

    to: Target = field(kw_only=True)
    """torchvision, timm, onnx, safetensors, or hf: a folder with a model card."""
    out: Path | None = None
    """File, or folder for hf (default: encoder and the target's name, in this folder)."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Export, and show how to load it."""
        encoder, console = self.open()
        done = export(encoder, self.to, self.out, overwrite=self.overwrite)
        console.print(f"Exported: {done.path}\n\n{done.snippet}")
