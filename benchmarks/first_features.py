"""How soon has a new user features of a messy folder? Real commands on photographs and odd files; prints one JSON line.

python benchmarks/first_features.py --data FOLDER [--photographs 500] [--epochs 10]

Photographs are copied into one flat folder, and odd files beside them: some that can be read, and three that cannot.
Then `embed random/resnet18` (features at once), `pretrain` (what `auto` chooses; --epochs bounds it), `embed`, `search`
and `export` run as processes of their own, so imports count. Exit code 1 if one of them fails, if a photograph does not
find itself, or if the files left out are not exactly those that cannot be read.
"""

import argparse
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from logo_ssl.data.decode import ORIENTATION
from logo_ssl.data.folder import find_images
from logo_ssl.embedding.tables import read_table
from logo_ssl.recipes import read_recipe
from logo_ssl.run import Run
from logo_ssl.system.hardware import best_device, hardware, provenance
from logo_ssl.train.build import recipe_for

LARGE = (4000, 3000)
TURNED = 6  # a camera held upright


def saved(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def odd_files(photograph: Image.Image) -> dict[str, bytes]:
    """Files that can be read, though some programs stumble over them."""
    grey, transparent, exif = photograph.convert("L"), photograph.copy(), Image.Exif()
    transparent.putalpha(grey)
    exif[ORIENTATION] = TURNED
    jpeg = saved(photograph, "JPEG")
    return {
        "grey.jpg": saved(grey, "JPEG"),
        "sixteen-bit.png": saved(Image.fromarray(np.asarray(grey).astype(np.uint16) * 257), "PNG"),
        "transparent.png": saved(transparent, "PNG"),
        "cmyk.jpg": saved(photograph.convert("CMYK"), "JPEG"),
        "turned.jpg": saved(photograph, "JPEG", exif=exif),
        "moving.gif": saved(photograph, "GIF", save_all=True, append_images=[photograph.rotate(90)]),
        "png-inside.jpg": saved(photograph, "PNG"),
        "name with spaces.JPG": jpeg,
        "Größe in Zürich.jpg": jpeg,
        "nested/below/deep.jpg": jpeg,
        "large.jpg": saved(photograph.resize(LARGE), "JPEG"),
        "one-pixel.png": saved(photograph.resize((1, 1)), "PNG"),
    }


def broken_files(photograph: Image.Image) -> dict[str, bytes]:
    """Files that look like images, and cannot be read."""
    jpeg = saved(photograph, "JPEG")
    return {"empty.jpg": b"", "text.jpg": b"no image at all\n", "truncated.jpg": jpeg[: len(jpeg) // 2]}


def fill(folder: Path, source: str, n: int) -> set[str]:
    """Copy photographs flat into a folder, put odd files beside them, and tell the names of the broken ones."""
    found = find_images(source).images
    chosen = [Path(found[i * len(found) // n]) for i in range(n)] if n < len(found) else [*map(Path, found)]
    folder.mkdir()
    for i, file in enumerate(chosen):
        shutil.copy(file, folder / f"{i:05}-{file.name}")
    with Image.open(chosen[-1]) as image:  # the first is looked for, and has no double
        odd, broken = odd_files(image.convert("RGB")), broken_files(image.convert("RGB"))
    for name, content in (odd | broken).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {*broken}


def names_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def embedded(table: Path, folder: Path) -> set[str]:
    return {os.path.relpath(path, folder) for part in read_table(table) for path in part.paths}


def listed(table: Path, folder: Path) -> set[str]:
    """What `embed` says it left out."""
    with table.with_name(f"{table.name}-bad-images.csv").open(newline="") as rows:
        return {os.path.relpath(row["image"], folder) for row in csv.DictReader(rows)}


class Shell:
    """Runs commands in a folder as a user would, and keeps the seconds of each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seconds = folder, dict[str, float]()
        self.environment = os.environ | {"LOGO_CACHE": str(folder / "cache")}

    def __call__(self, step: str, *arguments: str) -> str:
        command, began = [sys.executable, "-m", "logo_ssl", *arguments], time.perf_counter()
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        self.seconds[step] = round(time.perf_counter() - began, 1)
        if done.returncode:
            sys.exit(f"{step} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        print(f"{step}: {self.seconds[step]} s", file=sys.stderr, flush=True)
        return done.stdout


def first_of(told: str) -> str:
    """The nearest image in what `search` shows: its number, its cosine, its path."""
    return next(line.split(maxsplit=2)[2] for line in told.splitlines() if line.split()[:1] == ["1"])


def main(line=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder of photographs, flat or nested")
    parser.add_argument("--photographs", type=int, default=500)
    parser.add_argument("--epochs", type=int, help="default: as many as `auto` chooses")
    options = parser.parse_args(line)
    load, made_by = round(os.getloadavg()[0], 1), provenance(hardware(best_device("auto")))
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home).resolve()
        photos, run, table = folder / "photos", folder / "run", folder / "features.npz"
        broken = fill(photos, options.data, options.photographs)
        query = min(names_in(photos) - broken)
        bound = [] if options.epochs is None else ["--epochs", str(options.epochs)]
        shell = Shell(folder)
        shell("embed random/resnet18", "embed", "random/resnet18", "--data", "photos", "--out", "at-once.npz")
        shell("pretrain", "pretrain", "--data", "photos", "--out", "run", *bound)
        shell("embed", "embed", "run", "--data", "photos", "--out", table.name)
        asked = ("--index", table.name, "--query", f"photos/{query}", "--out", "sheet.png")
        nearest = os.path.relpath(first_of(shell("search", "search", "run", *asked)), photos)
        for target in ("onnx", "safetensors"):
            shell(f"export {target}", "export", "run", "--to", target)
        there, recipe = names_in(photos), read_recipe(Run(run))
        left_out = {name: there - embedded(folder / name, photos) for name in ("at-once.npz", table.name)}
        told = {name: listed(folder / name, photos) for name in left_out}
        automatic = recipe_for(str(photos)).epochs
    right = nearest != query and all(found == broken for found in (*left_out.values(), *told.values()))
    result = {
        "benchmark": "first-features",
        "data": Path(options.data).name,
        "files": len(there),
        "embedded": len(there - left_out[table.name]),
        "left_out": sorted(left_out[table.name]),
        "as_expected": right,
        "backbone": recipe.backbone,
        "px": recipe.crops.global_size,
        "batch": recipe.batch_size,
        "epochs": recipe.epochs,
        "epochs_of_auto": automatic,
        "seconds": shell.seconds,
        "seconds_to_first_features": round(shell.seconds["pretrain"] + shell.seconds["embed"], 1),
        "load_average_before": load,
    }
    print(json.dumps(result | made_by))
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
