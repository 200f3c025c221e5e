"""Masks of objects: COCO's polygons and run lengths, and a predicted mask pasted into its box."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from torch import Tensor

from ..errors import UserError

RunLengths = dict[str, Any]
"""COCO's: size [H, W] and compressed counts."""
FEWEST = 6
"""Numbers of the smallest polygon, a triangle."""
DECIMALS = 2
"""Of COCO's coordinates."""
FAR = 4
"""Sides of an image that a corner may lie away: the library walks along every edge, wherever it leads."""
MOST_BITS = 30
"""By which a part of a compressed run is shifted: 32 bits are what the library has."""


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

    What is not a mask stays as it is: `run_lengths` raises.
    """
    try:
        if isinstance(segmentation, list):
            return tuple(_packed(polygon) for polygon in segmentation)
        if isinstance(segmentation["counts"], list):
            return segmentation | {"counts": _whole(segmentation["counts"])}
    except (TypeError, ValueError, KeyError, OverflowError):
        pass
    return segmentation


def _packed(polygon: list[float]) -> Float[np.ndarray, " n"]:
    """Half as many bytes for whole hundredths, which float32 tells apart."""
    exact = _finite(polygon)
    with np.errstate(over="ignore"):  # what is too large for 32 bits is kept in 64
        half = exact.astype(np.float32)
        return half if np.array_equal(_exact(half), exact) else exact


def _exact(polygon: Float[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """The numbers of the file, bit by bit: a last bit decides which pixel an edge falls on."""
    return polygon.astype(np.float64).round(DECIMALS) if polygon.dtype == np.float32 else polygon


def _finite(polygon: list[float]) -> Float64[np.ndarray, " n"]:
    """The numbers of a polygon; the library would allocate without end otherwise."""
    if not all(issubclass(kind, int | float) and kind is not bool for kind in set(map(type, polygon))):
        raise ValueError("a polygon is a list of numbers")
    exact = np.array(polygon, np.float64)
    if not np.isfinite(exact).all():
        raise ValueError("a coordinate is not finite")
    return exact


def _whole(counts: list[int]) -> Int64[np.ndarray, " n"]:
    if not set(map(type, counts)) <= {int}:
        raise ValueError("counts are whole numbers")
    return np.array(counts, np.int64)


def has_outline(segmentation: Any) -> bool:
    """False for polygons of which none has three corners; `run_lengths` raises for what is not a mask at all."""
    return not isinstance(segmentation, tuple) or any(len(polygon) >= FEWEST for polygon in segmentation)


def run_lengths(segmentation: Any, height: int, width: int) -> RunLengths:
    """The run lengths of polygons, of uncompressed or of compressed run lengths, packed or not."""
    try:
        if isinstance(segmentation, tuple):
            return _of_polygons([_exact(polygon) for polygon in segmentation], height, width)
        if isinstance(segmentation, list):
            return _of_polygons([_finite(polygon) for polygon in segmentation], height, width)
        return _of_runs(segmentation, height, width)
    except (TypeError, ValueError, KeyError, OverflowError, RuntimeError) as error:
        raise UserError(f"its mask is neither polygons nor run lengths of the image ({error}).") from error


def _of_polygons(polygons: list[Float64[np.ndarray, " _"]], height: int, width: int) -> RunLengths:
    masks = coco_library().core.mask
    with_area = [polygon for polygon in polygons if len(polygon) >= FEWEST]
    if not with_area:
        return encoded(np.zeros((height, width), np.uint8))
    farthest = max(np.abs(polygon).max() for polygon in with_area)
    if farthest > FAR * max(height, width):
        raise ValueError(f"a coordinate of {farthest:g} in an image of {width} x {height} px")
    return masks.merge(masks.frPyObjects([polygon.tolist() for polygon in with_area], height, width))


def _of_runs(runs: RunLengths, height: int, width: int) -> RunLengths:
    if list(runs["size"]) != [height, width]:
        raise ValueError(f"size {runs['size']}, where height and width are {[height, width]}")
    told = runs["counts"]
    compressed = isinstance(told, str | bytes)
    counts = _uncompressed(told) if compressed else told if isinstance(told, np.ndarray) else _whole(told)
    if (counts < 0).any() or (counts > height * width).any() or counts.sum() != height * width:
        raise ValueError(f"counts that do not fill the {height * width} pixels of an image")
    if compressed:
        return runs
    return coco_library().core.mask.frPyObjects(runs | {"counts": counts.tolist()}, height, width)


def _uncompressed(counts: str | bytes) -> Int64[np.ndarray, " n"]:
    """COCO's compression undone: 5 bits in each letter, the lowest first, and each run less the one before the last."""
    letters = np.frombuffer(counts.encode() if isinstance(counts, str) else counts, np.uint8).astype(np.int64) - 48
    last = np.flatnonzero((letters & 32) == 0)
    if not len(letters) or letters.min() < 0 or letters.max() > 63 or last[-1:] != len(letters) - 1:
        raise ValueError("compressed counts are broken")
    first = np.concatenate(([0], last[:-1] + 1))
    place = 5 * (np.arange(len(letters)) - np.repeat(first, last - first + 1))
    if place.max() > MOST_BITS:
        raise ValueError("compressed counts are broken")
    runs = np.add.reduceat((letters & 31) << place, first)
    runs -= np.where(letters[last] & 16, np.int64(32) << place[last], 0)  # negative
    runs[1::2], runs[2::2] = runs[1::2].cumsum(), runs[2::2].cumsum()
    return runs


def encoded(mask: UInt8[np.ndarray, "H W"]) -> RunLengths:
    """The run lengths of pixels that are 0 or 1."""
    return coco_library().core.mask.encode(np.asfortranarray(mask))


def decoded(segmentation: Any, height: int, width: int) -> UInt8[np.ndarray, "H W"]:
    """The pixels of a mask, 0 or 1."""
    return np.ascontiguousarray(coco_library().core.mask.decode(run_lengths(segmentation, height, width)))


INSIDE = 0.5
AT_ONCE = 1 << 28
"""Pixels of all masks that are pasted together: 1 GiB of float32."""


def paste_masks(
    masks: Float[Tensor, "n M M"], boxes: Float[Tensor, "n 4"], height: int, width: int
) -> Bool[Tensor, "n {height} {width}"]:
    """Masks in their boxes, bilinear at the centre of every pixel, and 0 around them.

    torchvision rounds boxes to whole pixels and makes each one wider: masks of small objects are a tenth too large.
    """
    n = max(1, AT_ONCE // (height * width))
    parts = zip(masks.split(n), boxes.split(n), strict=True)
    with torch.autocast(masks.device.type, enabled=False):
        return torch.cat([_paste_masks(part.float(), places.float(), height, width) for part, places in parts])


def _paste_masks(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    left, top, right, bottom = boxes.unbind(1)
    cells = masks.shape[-1]
    rows, columns = _cell_weights(top, bottom, height, cells), _cell_weights(left, right, width, cells)
    return rows @ masks @ columns.mT >= INSIDE


def _cell_weights(
    begin: Float[Tensor, " n"], end: Float[Tensor, " n"], pixels: int, cells: int
) -> Float[Tensor, "n _ _"]:
    """How much of each cell a pixel's centre sees along one side: all at the cell's centre, none a cell further on."""
    centres = torch.arange(pixels, device=begin.device) + 0.5
    seen = (centres - begin[:, None]) / (end - begin)[:, None] * cells - 0.5
    return (1 - (seen[..., None] - torch.arange(cells, device=begin.device)).abs()).clamp(0)
