"""Where does a step's time go on a GPU? The kernels of the crops and of the rest, by time, as one JSON line.

python benchmarks/kernels.py RECIPE [--size 500x375] [--batch 256]
"""

import argparse
import json
from dataclasses import replace

import torch
from torch.profiler import ProfilerActivity, profile

from logo_ssl.data import ImageSet, Split
from logo_ssl.recipes import find_recipe
from logo_ssl.system.hardware import best_device, hardware, provenance
from logo_ssl.system.randomness import stream
from logo_ssl.train import build
from logo_ssl.train.bench import raw_step
from logo_ssl.train.compile import compile_step
from logo_ssl.train.trainer import quiet
from logo_ssl.types import ImageBatch

STEPS, SHOWN = 5, 14


def kernels(part, device):
    """Milliseconds a call of the slowest kernels, and of all together with how many there are."""
    for _ in range(3):
        part()
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as trace:
        for _ in range(STEPS):
            part()
        if device.type == "cuda":
            torch.cuda.synchronize()
    time = "device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    spent = sorted(
        ((getattr(e, time) / STEPS / 1e3, e.count / STEPS, e.key) for e in trace.key_averages()), reverse=True
    )
    return {
        "ms": round(sum(ms for ms, _, _ in spent), 3),
        "launches": sum(count for _, count, _ in spent),
        "slowest": [[round(ms, 3), count, key[:70]] for ms, count, key in spent[:SHOWN]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", default="cifar10-simsiam-logo")
    parser.add_argument("--size", default="32x32", help="of the canvases, height x width")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    device = best_device("auto")
    recipe = find_recipe(options.recipe)
    recipe = replace(recipe, batch_size=options.batch or (recipe.batch_size if device.type == "cuda" else 4))
    height, width = map(int, options.size.split("x"))
    images = torch.randint(0, 256, (recipe.batch_size, 3, height, width), dtype=torch.uint8)
    module = build(recipe, ImageSet("noise", Split(images))).to(device)
    module.compiled = device.type == "cuda" and not options.eager
    torch.backends.cudnn.benchmark = True
    if module.compiled:
        compile_step(module.framework, module.strategy)
    batch = ImageBatch(images.to(device))
    with quiet():
        crops = module.crop(batch, stream(0, "a"))
        raw = raw_step(module)
        result = {
            "benchmark": "kernels",
            "recipe": recipe.name,
            "canvas": options.size,
            "batch": recipe.batch_size,
            "crops": kernels(lambda: module.crop(batch, stream(0, "a")), device),
            "raw": kernels(lambda: raw(crops), device),
        }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
