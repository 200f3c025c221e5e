"""Small sets and encoders that several tests evaluate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from logo_ssl.data import ImageSet, Split
from logo_ssl.encoders import FrozenEncoder
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.protocol import DataProtocol, Measurement

QUIET = Extraction(device="cpu", workers=0, cache=False)


def measured(
    kind: type[DataProtocol], encoder: FrozenEncoder, data: ImageSet, how: Extraction = QUIET, **options: object
) -> Measurement:
    """What a protocol with some options finds."""
    return kind(encoder.name, **options).measure(encoder, data, replace(how, unreadable=[]))


def listening() -> tuple[Extraction, list[str]]:
    """How, and the sentences that were said."""
    said: list[str] = []
    return replace(QUIET, say=said.append), said


class Pooled(nn.Module):
    """Mean colours as features: enough to tell classes of different colours apart."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


def frozen(network: nn.Module, size: int = 8) -> FrozenEncoder:
    """A network as an encoder."""
    return FrozenEncoder("own", network.eval(), (0.5,) * 3, (0.25,) * 3, size, "own")


def colours(n: int, seed: int) -> Split:
    """Three classes of noisy colours."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    images = rng.integers(0, 120, (n, 3, 8, 8))
    images[np.arange(n), labels] += 90
    return Split(torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels))


def colour_set(n_train: int = 60, n_test: int = 30) -> ImageSet:
    """Colours to train and to test on."""
    return ImageSet("colours", colours(n_train, 0), colours(n_test, 1), ("r", "g", "b"))


def poisoned(split: Split) -> Split:
    """Every label is wrong."""
    return Split(split.images, (split.labels + 1) % 3)


def unbalanced(n: int, seed: int) -> Split:
    """Five images of the first two classes for every one of the third."""
    split = colours(n, seed)
    rows = torch.arange(n)
    return split[(split.labels < 2) | (rows % 5 == 0)]


def save_folder(folder: Path, split: Split, names: str = "rgb") -> Path:
    """A folder for each class, with its images as files."""
    for i, (image, label) in enumerate(zip(split.array, split.labels.tolist(), strict=True)):
        file = folder / names[label] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())).save(file)
    return folder


def save_noise(folder: Path, n: int) -> Path:
    """Photographs of various sizes in folders of three classes."""
    rng = np.random.default_rng(n)
    for i in range(n):
        file = folder / "abc"[i % 3] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*rng.integers(12, 40, 2), 3), np.uint8)).save(file)
    return folder
