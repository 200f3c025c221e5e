"""Does the demo convince? Its recipe on several seeds, with local crops, with L2L and with neither; a JSON line a run.

Every run is evaluated on the held-out scenes at its last epoch, and tells the CPU seconds that its training took: on a
busy machine they repeat better than the clock. One thread, so that runs may share a machine.
"""

import argparse
import json
import resource
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console

from logo_ssl.data import load_data
from logo_ssl.encoders import load_encoder
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.knn import KNN
from logo_ssl.eval.protocol import evaluate
from logo_ssl.recipes import find_recipe
from logo_ssl.system.hardware import hardware, provenance
from logo_ssl.train import pretrain

STRATEGIES = {"logo": {}, "multi-crop": {"strategy": "multi-crop"}, "two-view": {"strategy": "two-view"}}


def measured(strategy, seed, recipe, out):
    """The kNN accuracies of one run, and what it cost."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    console = Console(file=sys.stderr)
    run = pretrain(find_recipe(recipe), out, console=console, seed=seed, knn_every=0, **STRATEGIES[strategy])
    seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    encoder, how = load_encoder(str(run.path)), Extraction(cache=False)
    data = load_data("scenes", encoder.size)
    compared = evaluate(KNN(str(run.path)).measure, encoder, data, how, None, with_baselines=True)
    return {"knn": {name: found.figures for name, found in compared.items()}, "cpu_seconds": round(seconds, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="tiny")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(5))
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    about = provenance(hardware(torch.device("cpu")))
    for seed in arguments.seeds:
        for strategy in arguments.strategies:
            with tempfile.TemporaryDirectory() as folder:
                figures = measured(strategy, seed, arguments.recipe, Path(folder) / "run")
            line = {"benchmark": "demo", "recipe": arguments.recipe, "strategy": strategy, "seed": seed}
            print(json.dumps(line | figures | about), flush=True)


if __name__ == "__main__":
    main()
