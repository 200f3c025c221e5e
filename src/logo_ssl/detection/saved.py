"""Detectors that are kept: a folder with weights as safetensors, and how they were made."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ..encoders import BROKEN, FrozenEncoder, metadata_of, rebuilt_encoder
from ..errors import UserError
from ..weights import MODEL, needs_of, read_tensors, save_model
from .model import Detector, DetectorConfig, build_detector


class SavedDetector(NamedTuple):
    """A detector after its training, and what is needed to build it again."""

    detector: Detector
    encoder: FrozenEncoder
    """What it was built on; loaded, a network of the same kind without its weights."""
    classes: tuple[str, ...]
    numbers: tuple[int | None, ...]
    """Ids of the classes in the annotation file that it was tested by."""
    masks: bool

    def save(self, folder: Path, record: str) -> None:
        """Write it, with a record of its training."""
        about = {"encoder": metadata_of(self.encoder), "config": asdict(self.detector.transform.config)}
        about |= {"classes": self.classes, "numbers": self.numbers, "masks": self.masks}
        save_model(folder, self.detector, {"format": "pt", "detector": json.dumps(about)}, record)

    @classmethod
    def load(cls, folder: Path) -> "SavedDetector":
        """The detector in a folder, in eval mode on the CPU."""
        try:
            weights, metadata = read_tensors(folder / MODEL)
            about = json.loads(metadata["detector"])
            encoder = rebuilt_encoder(needs_of(about["encoder"]))
            config: dict[str, Any] = about["config"]
            config |= {name: tuple(value) for name, value in config.items() if isinstance(value, list)}
            looks, classes = (encoder.mean, encoder.std), tuple(about["classes"])
            detector = build_detector(encoder.backbone, *looks, len(classes), DetectorConfig(**config), about["masks"])
            detector.load_state_dict(weights)
        except BROKEN as error:
            raise UserError(f"{folder / MODEL} is not a whole detector ({error}); write or copy it again.") from error
        detector.eval().requires_grad_(False)
        return cls(detector, encoder, classes, tuple(about["numbers"]), about["masks"])
