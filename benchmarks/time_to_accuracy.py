"""Accuracy over seconds: online kNN against the wall time since the command, start and compiling included.

python benchmarks/time_to_accuracy.py cifar10-tuned-moco-logo --data cifar10.npz --seeds 0 1 2 -- --epochs 60
python tools/hold_out.py cifar10.npz held-out.npz    # to choose settings on; what follows `--` goes to `pretrain`

One JSON line for each run: when the first step was done, the curve (seconds, epoch, kNN with k=20), and at the end kNN
with k=20 and k=200 by `eval knn`, whose time does not count.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from l2l import figures

from logo_ssl.reproduce.tables import KNN
from logo_ssl.run import Run
from logo_ssl.system.hardware import best_device, hardware, provenance


def timed(recipe, seed, folder, options):
    """Train and measure one run; what came when."""
    began = time.time()
    command = [sys.executable, "-m", "logo_ssl", "pretrain", recipe, "--data", options.data, "--seed", str(seed)]
    command += ["--knn-every", str(options.knn_every), "--out", str(folder), *options.rest]
    subprocess.run(command, check=True, stdout=sys.stderr)
    seconds, lines = time.time() - began, list(Run(folder).metrics())
    result = Run(folder).evaluation_file("reproduce-knn")  # where `figures` looks
    evaluation = [sys.executable, "-m", "logo_ssl", "eval", *KNN.arguments[:1], str(folder), *KNN.arguments[1:]]
    subprocess.run([*evaluation, "--no-baselines", "--out", str(result)], check=True, stdout=sys.stderr)
    logged = next(line for line in lines if "images_per_s" in line)
    return {
        "benchmark": "time_to_accuracy",
        "recipe": recipe,
        "options": options.rest,
        "seed": seed,
        "seconds": round(seconds, 1),
        "first_logged_step_s": round(logged["time"] - began, 1),
        "curve": [[round(x["time"] - began, 1), x["epochs_done"], round(x["knn"], 2)] for x in lines if "knn" in x],
        "figures": figures(folder),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--knn-every", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/time-to-accuracy"))
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:split])
    options.rest = sys.argv[split + 1 :]
    about = provenance(hardware(best_device("auto")))
    for recipe in options.recipes:
        for seed in options.seeds:
            print(json.dumps(timed(recipe, seed, options.out / recipe / f"seed{seed}", options) | about), flush=True)


if __name__ == "__main__":
    main()
