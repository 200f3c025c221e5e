"""Does detection learn, and does pretraining help it? On a small folder in COCO's layout; one JSON line for each check.

overfit: ResNet-18-C4 from scratch on 16 images, tested on the same 16; AP50 of its one class ("object") should pass
80. compare: as many iterations from a run's backbone and from random weights, trained on train and tested on val, for
each seed; once in COCO's layout and once converted to VOC's. For example, on one GPU:

  python benchmarks/detection_check.py --data coco256 --run runs/photos
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from xml.sax.saxutils import escape

import torch

from logo_ssl.detection import load_detection
from logo_ssl.detection.evaluate import detect
from logo_ssl.detection.model import DetectorConfig
from logo_ssl.detection.train import DetectionRecipe, scaled
from logo_ssl.encoders import load_encoder
from logo_ssl.eval.features import Extraction
from logo_ssl.models.backbones import build_backbone
from logo_ssl.system.hardware import best_device, hardware, provenance

RANDOM = "random/resnet18"
FIGURE = "box AP50 (COCO)"
BASE = DetectionRecipe(
    DetectorConfig(
        anchors=(16, 32, 64, 128, 256), candidates=(2000, 1000), proposals=(500, 300), regions=128, lowest_score=0.01
    ),
    iterations=1200,
    batch_size=8,
    lr=0.02,
    steps=(900, 1100),
    warm_up=100,
    norm_batches=25,
)


def recipe_of(steps, side, arguments, **changes):
    detector = replace(BASE.detector, short_sides=(side,), test_side=side, longest=2 * side, regions=arguments.regions)
    changes = {"batch_size": arguments.batch_size, "norm_batches": arguments.norm_batches} | changes
    return replace(scaled(BASE, steps), detector=detector, **changes)


def encoder_of(source, seed):
    """A run's encoder, or a random one of its own for each seed."""
    encoder = load_encoder(source)
    if source != RANDOM:
        return encoder
    torch.manual_seed(seed)
    return replace(encoder, backbone=build_backbone("resnet18").eval().requires_grad_(False))


def measured(source, data, recipe, how):
    """Figures of one training, in percent, and its seconds."""
    began = time.perf_counter()
    results = detect(encoder_of(source, recipe.seed), data, recipe, how)
    figures = {
        f"{of} {name} ({measure})": value
        for (of, measure), precision in results.items()
        for name, value in precision.overall.items()
        if value is not None
    }
    return figures, round(time.perf_counter() - began, 1)


def overfit(data, arguments, how):
    few = [image for image in data.train.images if len(image.labels)][: arguments.pictures]
    part = replace(data.train, images=tuple(few))
    recipe = recipe_of(arguments.overfit_steps, arguments.overfit_side, arguments, flip=False)
    figures, seconds = measured(RANDOM, data._replace(train=part, test=part), recipe, how)
    about = {"pictures": len(few), "objects": part.n_objects, "recipe": asdict(recipe)}
    return {"check": "overfit", **about, "figures": figures, "seconds": seconds}


def compare(data, layout, arguments, how):
    sources = {"run": arguments.run, "random": RANDOM}
    values, seconds = {name: [] for name in sources}, 0.0
    for seed in arguments.seeds:
        for name, source in sources.items():
            figures, took = measured(
                source, data, recipe_of(arguments.steps, arguments.side, arguments, seed=seed), how
            )
            values[name].append(figures)
            seconds += took
            print(f"{layout}, {name}, seed {seed}: {figures[FIGURE]:.2f} % in {took} s", file=sys.stderr, flush=True)
    known = {name: [figures[FIGURE] for figures in of] for name, of in values.items()}
    better = [ours > random for ours, random in zip(known["run"], known["random"], strict=True)]
    return {
        "check": "compare",
        "layout": layout,
        "run": arguments.run,
        "n": len(arguments.seeds),
        "seeds": arguments.seeds,
        "figure": FIGURE,
        "mean": {name: round(statistics.mean(of), 3) for name, of in known.items()},
        "spread": {name: round(statistics.stdev(of), 3) if len(of) > 1 else None for name, of in known.items()},
        "run_better_for_each_seed": all(better),
        "figures": values,
        "recipe": asdict(recipe_of(arguments.steps, arguments.side, arguments)),
        "seconds": round(seconds, 1),
    }


def as_voc(data, folder):
    """The same images and boxes in VOC's layout."""
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for split, part in (("train", data.train), ("test", data.test)):
        names = []
        for image in part.images:
            name = f"{split}-{image.path.stem}"
            shutil.copy(image.path, folder / "JPEGImages" / f"{name}{image.path.suffix}")
            things = "".join(
                f"<object><name>{escape(part.classes[label - 1])}</name><bndbox><xmin>{left + 1}</xmin>"
                f"<ymin>{top + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax></bndbox></object>"
                for (left, top, right, bottom), label in zip(image.boxes.tolist(), image.labels, strict=True)
            )
            size = f"<size><width>{image.width}</width><height>{image.height}</height></size>"
            (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{size}{things}</annotation>")
            names.append(name)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def main(line=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a folder in COCO's layout")
    parser.add_argument("--run", help="a run with a ResNet-18; without it, there is nothing to compare")
    parser.add_argument("--steps", type=int, default=600, help="iterations of each training to compare")
    parser.add_argument("--overfit-steps", type=int, default=1200, help="0: leave it out")
    parser.add_argument("--side", type=int, default=448, help="short side of the images in pixels")
    parser.add_argument("--overfit-side", type=int, default=640, help="larger, since every small object must be found")
    parser.add_argument("--pictures", type=int, default=16, help="to overfit")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--layouts", nargs="*", choices=("coco", "voc"), default=("coco", "voc"), help="to compare in")
    parser.add_argument("--batch-size", type=int, default=BASE.batch_size)
    parser.add_argument("--regions", type=int, default=BASE.detector.regions, help="of an image to learn from")
    parser.add_argument("--norm-batches", type=int, default=BASE.norm_batches)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=-1)
    arguments = parser.parse_args(line)
    device = best_device(arguments.device)
    how = Extraction(device=device.type, workers=arguments.workers, max_bad=0.0)
    made_by = provenance(hardware(device))
    data = load_detection(arguments.data, agnostic=True)
    if arguments.overfit_steps:
        print(json.dumps(overfit(data, arguments, how) | made_by), flush=True)
    for layout in arguments.layouts if arguments.run else ():
        with tempfile.TemporaryDirectory() as folder:
            shown = data if layout == "coco" else load_detection(str(as_voc(data, Path(folder) / "voc")))
            print(json.dumps(compare(shown, layout, arguments, how) | made_by), flush=True)


if __name__ == "__main__":
    main()
