"""Photographs to measure with where only small ones are at hand: a data set enlarged to 500 x 375, as JPEG files.

python benchmarks/enlarge.py DATA FOLDER
"""

import argparse
from multiprocessing import Pool
from pathlib import Path

from PIL import Image

from logo_ssl.data import Photos, load_data
from logo_ssl.data.decode import decode

LONG, SHORT, QUALITY = 500, 375, 90


def save(job):
    """Every other image stands upright, as in a folder of real photographs."""
    data, file, upright = job
    file.parent.mkdir(parents=True, exist_ok=True)
    size = (SHORT, LONG) if upright else (LONG, SHORT)
    Image.fromarray(decode(data)).resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=QUALITY)


def jobs(split, folder, classes):
    if not isinstance(split.images, Photos):
        raise SystemExit("give a folder of images")
    for i in range(len(split)):
        label = "all" if split.labels is None else classes[split.labels[i]]
        yield split.images.read(i), folder / label / f"{i:06}.jpg", i % 2 == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    data = load_data(options.data, 224)
    with Pool() as pool:
        for name, split in (("train", data.train), ("val", data.test)):
            if split is not None:
                list(pool.imap_unordered(save, jobs(split, options.folder / name, data.classes), chunksize=32))


if __name__ == "__main__":
    main()
