"""Are masks laid into their pictures as the continuous mask says, pixel by pixel?"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_detectors import SMALL, small, untrained
from torchvision.models.detection.roi_heads import paste_masks_in_image

from logo_ssl.detection import pasting
from logo_ssl.detection.pasting import pasted

HEIGHT, WIDTH = 24, 31


def naive(mask, box, height=HEIGHT, width=WIDTH):
    """Bilinear between the centres of cells, zero beyond, at the centre of each pixel; in float64."""
    cells = len(mask)
    values = np.zeros((height, width))
    left, top, right, bottom = box

    def cell(row, column):
        return mask[row][column] if 0 <= row < cells and 0 <= column < cells else 0.0

    for y in range(height):
        for x in range(width):
            across = (x + 0.5 - left) / (right - left) * cells - 0.5
            down = (y + 0.5 - top) / (bottom - top) * cells - 0.5
            column, row = int(np.floor(across)), int(np.floor(down))
            for far_down in (0, 1):
                for far_across in (0, 1):
                    share = abs(1 - far_down - (down - row)) * abs(1 - far_across - (across - column))
                    values[y, x] += share * cell(row + far_down, column + far_across)
    return values


starts, sides = st.floats(-5, 20), st.floats(0.5, 30)
boxes = st.tuples(starts, starts, sides, sides).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@settings(max_examples=60, deadline=None)
@given(boxes, st.integers(1, 7), st.integers(0, 99))
def test_masks_follow_the_continuous_mask(box, cells, seed):
    mask = np.random.default_rng(seed).random((cells, cells)).astype(np.float32)
    box = np.array(box, np.float32)
    expected = naive(mask.astype(np.float64), box.astype(np.float64))
    (found,) = pasted(torch.from_numpy(mask)[None], torch.from_numpy(box)[None], HEIGHT, WIDTH).numpy()
    clear = abs(expected - pasting.INSIDE) > 1e-4  # elsewhere float32 may round to either side
    assert np.array_equal(found[clear], expected[clear] >= pasting.INSIDE)


def test_a_full_mask_covers_the_pixels_whose_centres_are_in_its_box():
    full, whole, odd = torch.ones(1, 14, 14), torch.tensor([[3.0, 5.0, 9.0, 8.0]]), torch.tensor([[3.4, 5.6, 9.6, 8.4]])
    for box, rows, columns in ((whole, (5, 8), (3, 9)), (odd, (6, 8), (3, 10))):
        covered = torch.zeros(20, 20, dtype=torch.bool)
        covered[slice(*rows), slice(*columns)] = True
        assert torch.equal(pasted(full, box, 20, 20)[0], covered)
    theirs = paste_masks_in_image(full[:, None], whole, (20, 20))[0, 0] > pasting.INSIDE
    assert theirs.sum() > pasted(full, whole, 20, 20).sum()  # why torchvision's is not used


def test_many_masks_are_pasted_in_parts_and_none_in_none(monkeypatch, generator):
    masks = torch.rand(5, 14, 14, generator=generator)
    boxes = torch.rand(5, 4, generator=generator) * 10 + torch.tensor([0.0, 0.0, 10.0, 10.0])
    together = pasted(masks, boxes, HEIGHT, WIDTH)
    monkeypatch.setattr(pasting, "AT_ONCE", 2 * HEIGHT * WIDTH)
    assert torch.equal(pasted(masks, boxes, HEIGHT, WIDTH), together)
    assert pasted(masks[:0], boxes[:0], HEIGHT, WIDTH).shape == (0, HEIGHT, WIDTH)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_was_found_is_brought_back_to_the_picture_that_was_given(kind):
    scales = untrained(small(SMALL, test_side=64), masks=True).eval().transform
    found = {"boxes": torch.tensor([[20.0, 10.0, 60.0, 50.0]]), "masks": torch.ones(1, 1, 14, 14, dtype=kind)}
    with torch.autocast("cpu", torch.bfloat16):
        (given_,) = scales.postprocess([found], [(64, 96)], [(32, 48)])
    assert given_["boxes"].tolist() == [[10, 5, 30, 25]]
    assert given_["masks"].shape == (1, 1, 32, 48)
    assert given_["masks"][0, 0, 5:25, 10:30].all()
    assert given_["masks"].sum() == 20 * 20
