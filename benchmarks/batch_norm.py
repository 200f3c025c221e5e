"""Which way to normalise groups is faster? Forward and backward of both, taken in turns, as one JSON line."""

import json
import statistics
import time

import torch

from logo_ssl.models import BatchNorm
from logo_ssl.system.hardware import best_device, hardware, provenance

SHAPE, GROUPS, ROUNDS, WARM_UP = (256, 32, 32, 32), 8, 15, 3


def main():
    device = best_device("auto")
    norm = BatchNorm(SHAPE[1]).to(device)
    norm.groups = GROUPS
    x = torch.randn(*SHAPE, device=device, requires_grad=True)
    ways = {"group by group": norm._group_by_group, "all at once": lambda x: norm._all_groups_at_once(x, 1)}
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS + WARM_UP):
        for name, way in ways.items():
            began = time.perf_counter()
            way(x).sum().backward()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - began)
    result = {
        "benchmark": "batch_norm",
        "shape": SHAPE,
        "groups": GROUPS,
        "n": ROUNDS,
        "median_s": {name: round(statistics.median(times[WARM_UP:]), 5) for name, times in seconds.items()},
        "spread_s": {name: round(statistics.stdev(times[WARM_UP:]), 5) for name, times in seconds.items()},
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
