"""How fast does one core make squares of photographs, beside the same with Pillow's resizing? Prints one JSON line.

python benchmarks/decoding.py [--data FOLDER] [--images 256] [--side 224] [--rounds 5]
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from embed import photographs
from PIL import Image

from logo_ssl.data.decode import decode_square, middle_of, square
from logo_ssl.system.hardware import hardware, provenance


def by_pillow(image, side):
    """The square as Pillow alone would make it."""
    middle = middle_of(*image.shape[:2], side)
    height, width = middle.resized
    return np.array(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))[middle.square]


WAYS = {"ours": square, "pillow": by_pillow, "decoding_alone": lambda image, side: image}


def made(way, files, side):
    """What a way to a square makes of each file."""
    with patch("logo_ssl.data.decode.square", WAYS[way]):
        return [decode_square(data, side) for data in files]


def milliseconds(way, files, side):
    began = time.perf_counter()
    made(way, files, side)
    return (time.perf_counter() - began) / len(files) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder of JPEG files (default: made-up photographs)")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)  # as a worker process
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            photographs(Path(folder), options.images)
        found = sorted((options.data or Path(folder)).rglob("*"))
        paths = [path for path in found if path.suffix.lower() in (".jpg", ".jpeg")]
        if not paths:
            parser.error(f"there are no JPEG files in {options.data}")
        files = [path.read_bytes() for path in paths[:: max(1, len(paths) // options.images)][: options.images]]
    took = {way: [] for way in WAYS}
    for _ in range(options.rounds):
        for way in WAYS:
            took[way].append(milliseconds(way, files, options.side))
    pairs = zip(*(made(way, files, options.side) for way in ("ours", "pillow")), strict=True)
    differences = [np.abs(ours.astype(int) - pillows).max() for ours, pillows in pairs]
    result = {
        "benchmark": "decoding",
        "images": len(files),
        "px": options.side,
        "n": options.rounds,
        "milliseconds": {way: round(statistics.mean(of), 3) for way, of in took.items()},
        "ratio": round(statistics.mean(took["pillow"]) / statistics.mean(took["ours"]), 2),
        "greatest_difference": int(max(differences)),
    }
    print(json.dumps(result | provenance(hardware(torch.device("cpu")))))


if __name__ == "__main__":
    main()
