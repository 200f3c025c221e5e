"""How does a mask stand in a file? As polygons or run lengths, which a COCO library turns into pixels and back."""

from typing import Any

import numpy as np
from jaxtyping import UInt8

from ..errors import UserError

RunLengths = dict[str, Any]
"""COCO's: size [H, W] and compressed counts."""
FEWEST = 6
"""Numbers of the smallest polygon, a triangle."""


def coco_library() -> Any:
    """The COCO evaluator, an extra of this package."""
    try:
        import faster_coco_eval  # heavy, and optional
        import faster_coco_eval.core.mask
    except ImportError as error:
        raise UserError("Detection needs a COCO evaluator; pip install 'logo-ssl[detect]'.") from error
    return faster_coco_eval


def run_lengths(segmentation: Any, height: int, width: int) -> RunLengths:
    """The run lengths of polygons, of uncompressed or of compressed run lengths."""
    masks = coco_library().core.mask
    try:
        if isinstance(segmentation, list):
            polygons = [polygon for polygon in segmentation if len(polygon) >= FEWEST]
            if not polygons:
                return encoded(np.zeros((height, width), np.uint8))
            return masks.merge(masks.frPyObjects(polygons, height, width))
        if list(segmentation["size"]) != [height, width]:
            raise ValueError(f"size {segmentation['size']} in a picture of {height} x {width}")
        if isinstance(segmentation["counts"], list):
            if sum(segmentation["counts"]) != height * width:
                raise ValueError(f"counts of {sum(segmentation['counts'])} pixels in a picture of {height * width}")
            return masks.frPyObjects(segmentation, height, width)
        return segmentation
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"A mask is neither polygons nor run lengths of its picture ({error}); mend it.") from error


def encoded(mask: UInt8[np.ndarray, "H W"]) -> RunLengths:
    """The run lengths of pixels that are 0 or 1."""
    return coco_library().core.mask.encode(np.asfortranarray(mask))


def decoded(segmentation: Any, height: int, width: int) -> UInt8[np.ndarray, "H W"]:
    """The pixels of a mask, 0 or 1."""
    return np.ascontiguousarray(coco_library().core.mask.decode(run_lengths(segmentation, height, width)))
