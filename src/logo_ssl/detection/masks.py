"""How does a mask stand in a file? As polygons or run lengths, which a COCO library turns into pixels and back."""

from typing import Any

import numpy as np
from jaxtyping import Float, Float64, UInt8

from ..errors import UserError

RunLengths = dict[str, Any]
"""COCO's: size [H, W] and compressed counts."""
FEWEST = 6
"""Numbers of the smallest polygon, a triangle."""
DECIMALS = 2
"""Of COCO's coordinates."""


def coco_library() -> Any:
    """The COCO evaluator, an extra of this package."""
    try:
        import faster_coco_eval  # heavy, and optional
        import faster_coco_eval.core.mask
    except ImportError as error:
        raise UserError("Detection needs a COCO evaluator; pip install 'logo-ssl[detect]'.") from error
    return faster_coco_eval


def packed(segmentation: Any) -> Any:
    """The same mask with its numbers in arrays: as lists, those of all of COCO would take gigabytes.

    What is no mask stays as it is, for `run_lengths` to tell.
    """
    try:
        if isinstance(segmentation, list):
            return tuple(_packed(polygon) for polygon in segmentation)
        if isinstance(segmentation["counts"], list):
            return segmentation | {"counts": np.array(segmentation["counts"])}
    except (TypeError, ValueError, KeyError):
        pass
    return segmentation


def _packed(polygon: list[float]) -> Float[np.ndarray, " n"]:
    """Half as many bytes for whole hundredths, which float32 tells apart."""
    exact = np.array(polygon, np.float64)
    if exact.ndim != 1:
        raise ValueError("numbers stand one after the other")
    half = exact.astype(np.float32)
    return half if np.array_equal(_exact(half), exact) else exact


def _exact(polygon: Float[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """The numbers of the file, bit by bit: a last bit decides which pixel an edge falls on."""
    return polygon.astype(np.float64).round(DECIMALS) if polygon.dtype == np.float32 else polygon


def run_lengths(segmentation: Any, height: int, width: int) -> RunLengths:
    """The run lengths of polygons, of uncompressed or of compressed run lengths, packed or not."""
    try:
        if isinstance(segmentation, tuple):
            segmentation = [_exact(polygon).tolist() for polygon in segmentation]
        if isinstance(segmentation, list):
            return _of_polygons(segmentation, height, width)
        return _of_runs(segmentation, height, width)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"A mask is neither polygons nor run lengths of its picture ({error}); mend it.") from error


def _of_polygons(polygons: list[list[float]], height: int, width: int) -> RunLengths:
    masks = coco_library().core.mask
    with_area = [polygon for polygon in polygons if len(polygon) >= FEWEST]
    if not with_area:
        return encoded(np.zeros((height, width), np.uint8))
    return masks.merge(masks.frPyObjects(with_area, height, width))


def _of_runs(runs: RunLengths, height: int, width: int) -> RunLengths:
    if list(runs["size"]) != [height, width]:
        raise ValueError(f"size {runs['size']} in a picture of {height} x {width}")
    if isinstance(runs["counts"], str | bytes):
        return runs
    counts = [int(count) for count in runs["counts"]]
    if sum(counts) != height * width:
        raise ValueError(f"counts of {sum(counts)} pixels in a picture of {height * width}")
    return coco_library().core.mask.frPyObjects(runs | {"counts": counts}, height, width)


def encoded(mask: UInt8[np.ndarray, "H W"]) -> RunLengths:
    """The run lengths of pixels that are 0 or 1."""
    return coco_library().core.mask.encode(np.asfortranarray(mask))


def decoded(segmentation: Any, height: int, width: int) -> UInt8[np.ndarray, "H W"]:
    """The pixels of a mask, 0 or 1."""
    return np.ascontiguousarray(coco_library().core.mask.decode(run_lengths(segmentation, height, width)))
