"""How long does a report take? A run of 200 epochs with 10,000 lines of metrics, as one page; one JSON line.

The encoder is `tiny` with its initial weights, on `scenes`: what is timed does not depend on what was learned. Each
round is a process of its own, so that imports count.
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from logo_ssl.data import load_data
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.system.hardware import hardware, provenance
from logo_ssl.train import build
from logo_ssl.train.pretrain import save_encoder

EPOCHS, LINES, STEPS = 200, 10_000, 15_600
ROUNDS = 3


def made_up(epochs, lines, steps):
    """Metrics as training logs them: losses at most steps, kNN and gauges once an epoch."""
    for i in range(1, lines - 2 * epochs + 1):
        step = i * steps // (lines - 2 * epochs)
        names = ("loss", "l_gg", "l_lg", "l_ll", "omega", "ratio", "lr", "images_per_s")
        values = {name: k + math.exp(-step / steps) + 0.01 * math.sin(37 * step + k) for k, name in enumerate(names)}
        yield {"step": step, "time": float(step), **values, "epoch": (step - 1) * epochs // steps}
    for epoch in range(1, epochs + 1):
        step = epoch * steps // epochs
        yield {"step": step, "z_std": 0.5 + epoch / 2 / epochs, "z_rank": 20.0, "epoch": epoch - 1}
        yield {"step": step, "knn": 30 + 30 * epoch / epochs, "knn_k": 20, "knn_tau": 0.07, "epochs_done": epoch}


def make_run(folder):
    """A finished run with that log."""
    recipe, run = find_recipe("tiny").changed(epochs=EPOCHS, device="cpu"), Run(folder)
    save_encoder(run, build(recipe, load_data(recipe.data, recipe.crops.global_size)))
    run.recipe_file.write_text(recipe.to_json())
    lines = sorted(made_up(EPOCHS, LINES, STEPS), key=lambda line: line["step"])
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.provenance_file.write_text(json.dumps({"seconds": 1.0}))
    return len(lines)


def cpu_seconds():
    """What all processes that have ended took of the CPU: less than the time on a clock where others work, too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        run, page = Path(folder) / "run", Path(folder) / "report.html"
        lines, seconds, used = make_run(run), [], cpu_seconds()
        for _ in range(rounds):
            began = time.perf_counter()
            command = [sys.executable, "-m", "logo_ssl", "report", str(run), "--out", str(page)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(time.perf_counter() - began)
        result = {
            "benchmark": "report",
            "epochs": EPOCHS,
            "lines": lines,
            "page_mb": round(page.stat().st_size / 1e6, 2),
            "n": rounds,
            "mean_s": round(statistics.mean(seconds), 2),
            "min_s": round(min(seconds), 2),
            "max_s": round(max(seconds), 2),
            "mean_cpu_s": round((cpu_seconds() - used) / rounds, 2),
        }
    print(json.dumps(result | provenance(hardware(torch.device("cpu")))))


if __name__ == "__main__":
    main()
