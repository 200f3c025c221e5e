"""How much does LoGo cost over two views? Seconds per step of each strategy, taken in turns, as one JSON line."""

import json
import statistics
import time
from dataclasses import replace

import torch
from torch.utils._pytree import tree_map_only

from logo_ssl.augment import make_crops
from logo_ssl.data import ImageSet, Split
from logo_ssl.recipes import find_recipe
from logo_ssl.strategies import LoGoConfig, MultiCropConfig, TwoViewConfig
from logo_ssl.system.hardware import best_device, hardware, provenance
from logo_ssl.system.randomness import stream
from logo_ssl.train import build

STEPS, WARM_UP, BATCH = 15, 3, 64


def stepper(strategy, device):
    """A function that makes one whole step of the recipe `tiny` under a strategy, without Lightning around it."""
    recipe = replace(find_recipe("tiny"), strategy=strategy)
    if isinstance(strategy, TwoViewConfig):
        recipe = replace(recipe, crops=replace(recipe.crops, n_local=0))
    images = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8)
    module = build(recipe, ImageSet("noise", Split(images))).to(device)
    batch = images[:BATCH].to(device)
    encoder_optimiser, *regressor_optimiser = module.configure_optimizers()
    theta_d = list(module.strategy.parameters())

    def step(i):
        draws = stream(0, "step", i)
        crops = make_crops(batch, recipe.crops, draws, module.mean, module.std)
        chance = tree_map_only(torch.Tensor, lambda x: x.to(device), module.strategy.draw(BATCH, draws))
        p = module.framework.project(crops, module.strategy.roles)
        inner = module.strategy.inner(p, chance)
        if inner is not None:
            for parameter, gradient in zip(theta_d, torch.autograd.grad(inner.loss, theta_d), strict=True):
                parameter.grad = gradient
            regressor_optimiser[0].step()
        encoder_optimiser.zero_grad()
        module.strategy.outer(module.framework.similarity, p, chance).loss.backward()
        encoder_optimiser.step()
        module.framework.after_step(p, 0.0)
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def main():
    device = best_device("auto")
    strategies = {"two-view": TwoViewConfig(), "multi-crop": MultiCropConfig(), "logo": LoGoConfig()}
    steppers = {name: stepper(strategy, device) for name, strategy in strategies.items()}
    seconds = {name: [] for name in steppers}
    for i in range(STEPS + WARM_UP):
        for name, step in steppers.items():  # in turns, so that noise hits all alike
            began = time.perf_counter()
            step(i)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times[WARM_UP:]) for name, times in seconds.items()}
    result = {
        "benchmark": "step",
        "recipe": "tiny",
        "batch": BATCH,
        "n": STEPS,
        "median_s": {name: round(value, 4) for name, value in medians.items()},
        "spread_s": {name: round(statistics.stdev(times[WARM_UP:]), 4) for name, times in seconds.items()},
        "logo_over_two_view": round(medians["logo"] / medians["two-view"], 2),
        "logo_over_multi_crop": round(medians["logo"] / medians["multi-crop"], 2),
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
