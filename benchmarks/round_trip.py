"""Does an exported encoder see in photographs what its run sees? Each target beside `embed`; prints one JSON line.

python benchmarks/round_trip.py --data FOLDER [--images 256] [--backbones resnet50 ...] [--targets onnx ...]

Each backbone has drawn weights and batch norm statistics, and is saved as a run. Its exports are loaded, and shown the
photographs, by the lines that they print, so by the target's own library and torchvision. `apart` is the distance
between two vectors of an image, over the norm of the run's; the largest of all images counts. `images_apart` is how far
the run's vectors lie from their mean, also over their norm: untrained networks tell images apart by little. Exit code 1
if a target is farther apart than 1e-4.
"""

import argparse
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "use"))

import numpy as np
import torch
from PIL import Image
from use_encoders import executed, untrained_run

import logo_ssl
from logo_ssl.data import ImageSet, Split
from logo_ssl.data.folder import find_images
from logo_ssl.embedding.exporting import FORMATS
from logo_ssl.system.hardware import hardware, provenance

TOLERANCE = 1e-4
BATCH = 32
TARGETS = {
    "resnet18": ("torchvision", "timm", "onnx", "safetensors", "hf"),
    "resnet34": ("torchvision", "timm", "onnx", "safetensors", "hf"),
    "resnet50": ("torchvision", "timm", "onnx", "safetensors", "hf"),
    "small-alexnet": ("onnx", "safetensors"),
    "timm/vit_tiny_patch16_224": ("timm", "onnx", "safetensors", "hf"),
}
SIDE = 64  # px: photographs of other sizes are resized
LIBRARIES = ("onnxruntime", "safetensors")


def photographs(folder: str, n: int) -> ImageSet:
    """Some images of a folder, from its first to its last."""
    paths = find_images(folder).images
    split = Split.from_paths(paths)
    return ImageSet(Path(folder).name, split.thinned(n))


@torch.no_grad()
def features_by(snippet: str, paths):
    """What the printed lines make of photographs; those that load by ours have its transform."""
    names = executed(snippet)
    encoder = names["encoder"]
    see = encoder.transform if "transform" not in names else lambda path: names["transform"](Image.open(path))
    some = (paths[i : i + BATCH] for i in range(0, len(paths), BATCH))
    return torch.cat([encoder(torch.stack([see(path) for path in batch])) for batch in some])


def farthest(found, expected) -> float:
    """The largest distance between two vectors of an image, of the norm of the expected one."""
    return float(((found - expected).norm(dim=1) / expected.norm(dim=1)).max())


def round_trips(backbone: str, targets, data: ImageSet, folder: Path) -> list[dict]:
    """What each target makes of the images, beside the run."""
    torch.manual_seed(0)
    run = untrained_run(folder / "run", data, backbone=backbone, crops__global_size=SIDE)
    embedded = logo_ssl.embed(run.path, data, device="cpu", batch_size=BATCH)
    expected = torch.from_numpy(embedded.vectors)
    images_apart = float(((expected - expected.mean(dim=0)).norm(dim=1) / expected.norm(dim=1)).mean())
    found = []
    for target in targets:
        exported = logo_ssl.export(run.path, target, folder / FORMATS[target][1])
        features = features_by(exported.snippet, embedded.paths)
        about = {"backbone": backbone, "target": target, "px": SIDE, "images": len(features)}
        found.append(about | {"apart": farthest(features, expected), "images_apart": images_apart})
        print(f"{backbone}, {target}: {found[-1]['apart']:.1e}", file=sys.stderr, flush=True)
    return found


def main(line=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder of photographs")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--backbones", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--targets", nargs="+", choices=FORMATS, default=list(FORMATS))
    options = parser.parse_args(line)
    made_by = provenance(hardware(torch.device("cpu")))
    made_by["versions"] |= {library: version(library) for library in LIBRARIES}
    data, found = photographs(options.data, options.images), []
    for backbone in options.backbones:
        targets = [target for target in TARGETS[backbone] if target in options.targets]
        with tempfile.TemporaryDirectory() as folder:
            found += round_trips(backbone, targets, data, Path(folder))
    if not found:
        parser.error("none of these backbones has any of these targets.")
    apart, between = (np.array([each[name] for each in found]) for name in ("apart", "images_apart"))
    result = {
        "benchmark": "round-trip",
        "data": data.name,
        "apart": apart.max(),
        "apart_of_images_apart": (apart / between).max(),
        "tolerance": TOLERANCE,
        "trips": found,
    }
    print(json.dumps(result | made_by))
    return int(not (apart <= TOLERANCE).all())  # what is no number is no agreement


if __name__ == "__main__":
    sys.exit(main())
