"""How fast does a detector learn? Iterations/s of our ResNet-50-C4 beside torchvision's own detector, as one JSON line.

Whole steps (transfer, scaling, forward, backward, SGD) at the protocol's scales, taken in turns: ours with boxes as on
VOC and with masks as on COCO, and `fasterrcnn_resnet50_fpn` with its batch norms trained. Images are soft noise of
VOC's sizes. Besides: what loading alone gives from JPEG files, and a training through Lightning from these files.
detection/speed.py quotes iterations_per_s of `box` and `mask`. `--tiny`, and any machine without CUDA, takes a small
detector and small images: it shows that this runs, and measures nothing.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image

from logo_ssl.detection.data import clean_annotations
from logo_ssl.detection.formats import ImageAnnotation, ObjectAnnotation
from logo_ssl.detection.model import build_detector
from logo_ssl.detection.train import COCO_RECIPE, VOC_RECIPE, Batches, TrainerConfig, TrainingImages, train_detector
from logo_ssl.system.hardware import best_device, hardware, provenance

SIZES = ((375, 500), (500, 375), (333, 500), (500, 333), (375, 500), (400, 500), (375, 500), (500, 334))
"""Height and width; about as often as in VOC."""
CLASSES = tuple(f"class {n}" for n in range(20))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def soft_noise(folder, n, shrink=1):
    """Images in a folder, with three objects each: their truth, masks and all."""
    rng, told = np.random.default_rng(0), []
    for i in range(n):
        height, width = (side // shrink for side in SIZES[i % len(SIZES)])
        coarse = rng.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
        file = Path(folder) / f"{i}.jpg"
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, quality=90)
        told.append(ImageAnnotation(file, height, width, [thing(rng, height, width) for _ in range(3)]))
    return clean_annotations(told, CLASSES)


def thing(rng, height, width):
    left, top = rng.uniform(0, 0.6, 2) * (width, height)
    right, bottom = left + rng.uniform(0.1, 0.4) * width, top + rng.uniform(0.1, 0.4) * height
    outline = [left, top, right, top, right, bottom, left, bottom]
    return ObjectAnnotation(str(rng.choice(CLASSES)), (left, top, right, bottom), [outline])


def ours(recipe, masks, backbone):
    encoder = torchvision.models.get_model(backbone, weights=None)
    return build_detector(encoder, MEAN, STD, len(CLASSES), recipe.detector, masks)


def torchvisions(recipe, name):
    sides = recipe.detector.short_sides
    return getattr(torchvision.models.detection, name)(
        weights=None,
        weights_backbone=None,
        num_classes=len(CLASSES) + 1,
        min_size=sides,
        max_size=recipe.detector.longest,
    )


def stepper(detector, batches, device):
    """A function that makes one whole step; floats for torchvision, which takes no bytes."""
    detector = detector.to(device).train()
    if device.type == "cuda":
        detector.to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(detector.parameters(), 1e-4, 0.9, weight_decay=1e-4)

    def step(i):
        batch = [
            sample._replace(
                pixels=sample.pixels.to(device, non_blocking=True),
                target={name: value.to(device, non_blocking=True) for name, value in sample.target.items()},
            )
            for sample in batches[i % len(batches)]
        ]
        if hasattr(detector, "draws"):
            detector.draws.begin(0, i)
        else:
            batch = [sample._replace(pixels=sample.pixels.float() / 255) for sample in batch]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses = detector([sample.pixels for sample in batch], [sample.target for sample in batch])
            loss = sum(losses.values())
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def timed(step, i):
    began = time.perf_counter()
    step(i)
    return time.perf_counter() - began


def loading(images, n):
    """Batches a second that worker processes decode."""
    batches = iter(Batches(images, n, workers=-1))
    next(batches)  # the workers have begun
    began = time.perf_counter()
    seen = sum(1 for _ in batches)
    return seen / (time.perf_counter() - began)


def through_lightning(detector, images, recipe, device):
    """Iterations a second of a training from files, without its first fifth."""
    times = []
    train_detector(
        detector,
        images,
        recipe,
        TrainerConfig(device.type, workers=-1),
        progress=lambda what, done, total: times.append(time.perf_counter()),
    )
    first = len(times) // 5
    return (len(times) - 1 - first) / (times[-1] - times[first])


def main(line=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="of each detector, after a warm-up")
    parser.add_argument("--warm-up", type=int, default=8)
    parser.add_argument("--pictures", type=int, default=256, help="files to load from")
    parser.add_argument("--tiny", action="store_true", help="a small detector on small images, on the CPU")
    arguments = parser.parse_args(line)
    device = torch.device("cpu") if arguments.tiny else best_device("auto")
    tiny = device.type != "cuda"
    recipes, shrink = {"box": VOC_RECIPE, "mask": COCO_RECIPE}, 1
    backbone, other = "resnet50", "fasterrcnn_resnet50_fpn"
    if tiny:
        backbone, other, shrink = "resnet18", "fasterrcnn_mobilenet_v3_large_320_fpn", 5
        small = {"short_sides": (64,), "candidates": (50, 50), "proposals": (20, 20), "regions": 4}
        recipes = {k: replace(r, detector=replace(r.detector, **small), batch_size=2) for k, r in recipes.items()}
    with tempfile.TemporaryDirectory() as folder:
        data = soft_noise(folder, arguments.pictures, shrink)
        n_batches = max(arguments.steps, 4)
        sets = {
            name: TrainingImages(data, replace(recipe, iterations=n_batches, norm_batches=0), name == "mask")
            for name, recipe in recipes.items()
        }
        batches = {name: list(Batches(images, 4, workers=0)) for name, images in sets.items()}
        if device.type == "cuda":
            batches = {
                name: [[s._replace(pixels=s.pixels.contiguous().pin_memory()) for s in batch] for batch in of]
                for name, of in batches.items()
            }
        detectors = {name: ours(recipe, name == "mask", backbone) for name, recipe in recipes.items()}
        detectors["torchvision fpn"] = torchvisions(recipes["box"], other)
        seconds, peaks = {name: [] for name in detectors}, {}
        steppers = {name: stepper(d, batches.get(name, batches["box"]), device) for name, d in detectors.items()}
        for i in range(arguments.steps + arguments.warm_up):
            for name, step in steppers.items():  # in turns, so that noise hits all alike
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                seconds[name].append(timed(step, i))
                if device.type == "cuda":
                    peaks[name] = max(peaks.get(name, 0), torch.cuda.max_memory_allocated())
        del steppers
        loaded = {name: round(loading(images, n_batches), 2) for name, images in sets.items()}
        trained = through_lightning(detectors["box"], sets["box"], sets["box"].recipe, device)
    known = {name: times[arguments.warm_up :] for name, times in seconds.items()}
    speed = {name: 1 / statistics.mean(times) for name, times in known.items()}  # the mean: scales differ
    recipe = recipes["box"]
    result = {
        "benchmark": "detection",
        "tiny": tiny,
        "detector": f"{backbone}-C4",
        "beside": other,
        "batch": recipe.batch_size,
        "bf16": device.type == "cuda",
        "n": arguments.steps,
        "iterations_per_s": {name: round(value, 3) for name, value in speed.items()},
        "median_s": {name: round(statistics.median(times), 4) for name, times in known.items()},
        "spread_s": {
            name: round(statistics.stdev(times), 4) if len(times) > 1 else None for name, times in known.items()
        },
        "box_over_torchvision_fpn": round(speed["box"] / speed["torchvision fpn"], 3),
        "batches_loaded_per_s": loaded,
        "iterations_per_s_from_files": round(trained, 3),
        "hours": {
            "voc07+12": round(VOC_RECIPE.iterations / speed["box"] / 3600, 2),
            "coco": round(COCO_RECIPE.iterations / speed["mask"] / 3600, 2),
        }
        if recipe.batch_size == VOC_RECIPE.batch_size
        else None,
        "peak_memory_gb": {name: round(value / 1e9, 2) for name, value in peaks.items()},
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
