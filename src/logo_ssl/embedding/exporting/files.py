"""How are weights written that torchvision, timm or safetensors load with every key in its place?"""

import json
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from ... import __version__
from ...data.decode import ENOUGH
from ...eval import FrozenEncoder
from ...files import write
from ...models.saving import plain_weights, weight_bytes
from ...recipes import recipe_as_written
from .rebuilding import Rebuilt, in_timm, in_torchvision, of_ours

RGB = 3  # channels of a photograph; timm takes all pretrained weights to have them
FOR_PHOTOGRAPHS = (
    "import math",
    "import numpy as np",
    "from PIL import Image, ImageOps",
    "from torchvision.transforms import v2",
)


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
    """Upright, opaque and RGB, the short side resized, the middle cut out: what `embed` does, to the pixel.

    Pillow's `convert` alone would drop transparency and cut deep grey off at 255. And the image becomes a tensor before
    it is resized: Pillow, which would do it otherwise, rounds in another way.
    """
    size = encoder.size
    return [
        "def in_part(image):  # a large JPEG is decoded at a half, a quarter or an eighth, as `logo-ssl embed` does",
        f"    sides = [max({ENOUGH * size}, side // math.gcd(8, *image.size)) for side in image.size]",
        "    image.draft('RGB', sides)",
        "    return image",
        "def as_rgb(image):  # 16-bit grey by its upper byte, transparent pixels on white, as `logo-ssl embed` does",
        "    if image.mode.startswith('I;16'):  # deeper grey, 32 bits or floats, `embed` stretches; this does not",
        "        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))",
        "    if image.mode in ('RGBA', 'LA', 'PA', 'La', 'RGBa') or 'transparency' in image.info:",
        "        image = image.convert('RGBA')",
        "        image = Image.alpha_composite(Image.new('RGBA', image.size, 'white'), image)",
        "    return image.convert('RGB')",
        "transform = v2.Compose([  # what it sees of a photograph",
        "    in_part,",
        "    ImageOps.exif_transpose,",
        "    as_rgb,",
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
    rebuilt.network.load_state_dict(encoder.backbone.state_dict())  # strict: refused before anything is written
    _write_weights(encoder, encoder.backbone, out)
    lines = [*rebuilt.lines, f"encoder.load_state_dict(load_file({str(out)!r}))  # strict: every key matches"]
    return snippet(encoder, [library, "from safetensors.torch import load_file"], [*lines, "encoder.eval()"])


def _write_weights(encoder: FrozenEncoder, network: nn.Module, out: Path) -> None:
    write(out, weight_bytes(plain_weights(network.state_dict()), metadata_of(encoder)))
