"""By what is one detection told from another? By encoder, pictures and settings; and where does it lie?"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..detection.pictures import PictureSet
from ..detection.recipe import DetectionRecipe
from ..detection.sources import Detection
from .encoder import FrozenEncoder
from .results import place_of


class Named(NamedTuple):
    """An evaluation by its name: another encoder, other data or other settings have another."""

    protocol: str
    settings: dict[str, Any]
    about: dict[str, Any]
    """The data, as they are saved."""
    identity: str
    """What a training that goes on must have been begun with."""
    file: Path | None
    """Where the result is saved, if it is."""

    @property
    def state(self) -> Path | None:
        """The folder from which an interrupted training goes on."""
        return None if self.file is None else training_beside(self.file)


def protocol_of(masks: bool) -> str:
    """What such an evaluation is called."""
    return "segment" if masks else "detect"


def named(encoder: FrozenEncoder, data: Detection, recipe: DetectionRecipe, masks: bool, out: Path | None) -> Named:
    """By what this evaluation is told from others."""
    fingerprints = {"train": fingerprint(data.train, masks), "test": fingerprint(data.test, masks)}
    protocol, settings = protocol_of(masks), {"recipe": asdict(recipe), "masks": masks}
    about = {"data": data.name, "data_fingerprint": fingerprints}
    identity = json.dumps([encoder.fingerprint, about, settings], sort_keys=True)
    return Named(protocol, settings, about, identity, place_of(protocol, about, encoder, out, settings))


def training_beside(file: Path) -> Path:
    """The folder from which an interrupted training goes on."""
    return file.with_name(f"{file.stem}-training")


def pictures_beside(file: Path) -> Path:
    """The folder of the pictures of what was found."""
    return file.with_name(f"{file.stem}-pictures")


def fingerprint(data: PictureSet, masks: bool) -> str:
    """sha256 of names, sizes and objects, of their masks where these are used, and not of pixels."""
    digest = hashlib.sha256(repr(data.classes).encode())
    for picture in data.pictures:
        digest.update(repr((picture.path.name, picture.height, picture.width)).encode())
        for told in (picture.boxes, picture.labels, picture.crowd, picture.difficult, picture.area):
            digest.update(told.tobytes())
        if masks:
            digest.update(json.dumps(picture.segmentations, default=_hexadecimal, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _hexadecimal(numbers: np.ndarray | bytes) -> str:
    """What JSON cannot say of a mask."""
    return bytes(numbers).hex()
