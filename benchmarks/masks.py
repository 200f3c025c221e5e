"""How far are a detector's masks from what they should be? Pasting and cutting them; one JSON line.

paste: torchvision's masks beside ours, which are exact (IoU, and how much larger). cut: how far masks to learn from are
moved, in pixels of the resized image, as they are cut here and with either half pixel mended alone.
docs/decisions/0020 quotes it.
"""

import argparse
import json

import numpy as np
import torch
import torch.nn.functional as F
from torchvision.models.detection.roi_heads import paste_masks_in_image
from torchvision.ops import roi_align

from logo_ssl.detection.formats import decoded
from logo_ssl.detection.model import INSIDE, paste_masks
from logo_ssl.system.hardware import hardware, provenance

HEIGHT, WIDTH, CELLS, FINE = 480, 640, 14, 20
BOXES = ((8, 32), (32, 96), (96, 300))
SIZES, SHORT_SIDES = (24, 80, 200), (640, 800)
WAYS = {  # of resizing a mask, and whether RoIAlign is aligned
    "as here": ("nearest", False),
    "resized exactly": ("nearest-exact", False),
    "aligned": ("nearest", True),
    "both": ("nearest-exact", True),
}


def pasting(n):
    """Random discs in random boxes."""
    generator, told = torch.Generator().manual_seed(0), {}
    down, across = torch.meshgrid(*[torch.linspace(-1, 1, CELLS)] * 2, indexing="ij")
    for low, high in BOXES:
        sides = low + (high - low) * torch.rand(n, 2, generator=generator)
        corners = torch.rand(n, 2, generator=generator) * (torch.tensor([WIDTH, HEIGHT]) - sides)
        boxes = torch.cat((corners, corners + sides), 1)
        sharpness = 0.8 + 0.4 * torch.rand(n, 1, 1, generator=generator)
        masks = torch.sigmoid(6 * (1 - sharpness * (down**2 + across**2)))
        ours = paste_masks(masks, boxes, HEIGHT, WIDTH)
        theirs = paste_masks_in_image(masks[:, None], boxes, (HEIGHT, WIDTH))[:, 0] > INSIDE
        shared, either, area = ((m.sum((1, 2))).double() for m in (ours & theirs, ours | theirs, ours))
        larger = theirs.sum((1, 2)).double() / area - 1
        told[f"{low}-{high} px"] = {
            "iou": round((shared / either).mean().item(), 4),
            "larger_percent": round(100 * larger.mean().item(), 2),
        }
    return told


def cutting(n):
    """Ellipses, cut by boxes that miss them a little; the truth is how much of each cell they cover."""
    told = {way: {} for way in WAYS}
    for size in SIZES:
        for side in SHORT_SIDES:
            rng, shifts = np.random.default_rng(0), {way: [] for way in WAYS}
            shape = [round(length * side / min(HEIGHT, WIDTH)) for length in (HEIGHT, WIDTH)]
            for _ in range(n):
                centre, radii = rng.uniform(size, (WIDTH - size, HEIGHT - size)), size / 2 * rng.uniform(0.7, 1, 2)
                box = np.concatenate((centre - radii, centre + radii)) + rng.normal(0, 0.05 * size, 4)
                truth = covered(box, centre, radii)
                mask = torch.from_numpy(decoded([outline(centre, radii)], HEIGHT, WIDTH))[None, None].float()
                place = torch.tensor([0, *(box * np.array([shape[1] / WIDTH, shape[0] / HEIGHT] * 2))])[None].float()
                for way, (nearest, aligned) in WAYS.items():
                    cut = roi_align(F.interpolate(mask, shape, mode=nearest), place, CELLS, aligned=aligned)
                    cell = (place[0, 3] - place[0, 1]).item() / CELLS
                    shifts[way].append((middle(cut[0, 0].numpy()) - middle(truth)) * cell)
            for way, moved in shifts.items():
                told[way][f"{size} px at {side}"] = round(float(np.mean(moved)), 3)
    return told


def outline(centre, radii, corners=48):
    angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    return (centre + radii * np.stack((np.cos(angles), np.sin(angles)), 1)).ravel().tolist()


def covered(box, centre, radii):
    """The share of each cell that is inside, by many points in it."""
    places = (np.arange(CELLS * FINE) + 0.5) / (CELLS * FINE)
    across, down = (box[axis] + places * (box[axis + 2] - box[axis]) for axis in (0, 1))
    inside = ((across[None] - centre[0]) / radii[0]) ** 2 + ((down[:, None] - centre[1]) / radii[1]) ** 2 <= 1
    return inside.reshape(CELLS, FINE, CELLS, FINE).mean((1, 3))


def middle(cells):
    """Where the mass of a mask is from left to right, in cells."""
    return float((cells.sum(0) * np.arange(CELLS)).sum() / cells.sum())


def main(line=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="masks of each kind")
    arguments = parser.parse_args(line)
    result = {"benchmark": "masks", "n": arguments.n}
    result |= {"paste": pasting(arguments.n), "cut": cutting(arguments.n)}
    print(json.dumps(result | provenance(hardware(torch.device("cpu")))))


if __name__ == "__main__":
    main()
