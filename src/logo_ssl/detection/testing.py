"""What does a detector find? Boxes, and masks as run lengths, picture by picture."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.workers import fitting_workers
from .detector import Detector
from .masks import encoded
from .pictures import Picture
from .precision import Detected
from .samples import BYTES, TestPictures, read, whole
from .training import Progress


@torch.no_grad()
def find_objects(
    detector: Detector,
    pictures: Sequence[Picture],
    device: torch.device,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> list[Detected]:
    """What the detector finds in each picture, in float32."""
    detector.to(device).eval()
    found: list[Detected] = []
    one_by_one = [[row] for row in range(len(pictures))]
    for batch in read(TestPictures(pictures), one_by_one, fitting_workers(workers, BYTES)):
        found += [
            _detected(each) for each in detector([pixels.to(device, non_blocking=True) for pixels in whole(batch)])
        ]
        progress("testing", len(found), len(pictures))
    return found


def _detected(found: dict[str, Tensor]) -> Detected:
    boxes, scores, labels = (found[name].cpu().numpy() for name in ("boxes", "scores", "labels"))
    masks = found["masks"][:, 0].byte().cpu().numpy() if "masks" in found else ()
    return Detected(boxes.astype(np.float32), scores.astype(np.float32), labels, tuple(encoded(mask) for mask in masks))
