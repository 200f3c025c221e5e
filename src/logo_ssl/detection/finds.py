"""Where do other tools read what was found? In files of COCO's results, by the numbers of the test's own file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import write
from .coco_metric import Kind, as_coco
from .pictures import PictureSet
from .precision import Detected


def found_files(folder: Path, masks: bool = True) -> dict[Kind, Path]:
    """Which files of finds may be in a folder: of boxes, and of masks where these are asked for."""
    files: dict[Kind, Path] = {"bbox": folder / "boxes.json", "segm": folder / "masks.json"}
    return files if masks else {"bbox": files["bbox"]}


def write_found(test: PictureSet, detected: Sequence[Detected], folder: Path, masks: bool) -> None:
    """Write all that was found: boxes, and where asked for masks, each kind in a file of its own, as COCO has it."""
    images = [picture.number for picture in test.pictures]
    for kind, file in found_files(folder, masks).items():
        found = as_coco(detected, images, test.numbers, kind)
        write(file, json.dumps(found, separators=(",", ":"), default=_text))


def _text(counts: Any) -> str:
    """Compressed run lengths, which are letters."""
    return bytes(counts).decode("ascii")
