"""How long does training take to begin, and how much memory, by the number of files? One JSON line for each number.

python benchmarks/start.py --files 10000 100000 1000000

The files are hard links to 400 drawn images, 1,000 to a class folder. The time is that from the command to the first
logged step of `logo-ssl pretrain tiny`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from logo_ssl.system.hardware import best_device, hardware, provenance

IMAGES, SIDE, PER_CLASS = 400, 128, 1_000
PAUSE = 0.1


def make_files(folder: Path, n: int) -> None:
    """A class folder for every thousand files."""
    originals = folder / "originals"
    originals.mkdir()
    rng = np.random.default_rng(0)
    for i in range(IMAGES):
        pixels = Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).resize((SIDE, SIDE))
        pixels.save(originals / f"{i}.jpg")
    for i in range(n):
        place = folder / "data" / f"class{i // PER_CLASS:04}"
        if i % PER_CLASS == 0:
            place.mkdir(parents=True)
        os.link(originals / f"{i % IMAGES}.jpg", place / f"{i % PER_CLASS:03}.jpg")


def time_start(folder: Path, placement: str) -> dict[str, float]:
    """Seconds to the first line of metrics, and the most memory that the command's own process took until then."""
    run = folder / "run"
    command = [sys.executable, "-m", "logo_ssl", "pretrain", "tiny", "--data", str(folder / "data"), "--out", str(run)]
    began, peak = time.perf_counter(), 0.0
    command += ["--epochs", "1", "--knn-every", "0", "--log-every", "1", "--loading.placement", placement]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        metrics = run / "metrics.jsonl"
        while process.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(float(line.split()[1]) / 1e6 for line in status.splitlines() if "VmHWM" in line), 0.0)
            time.sleep(PAUSE)
        seconds = time.perf_counter() - began
        if process.poll() is not None:
            raise SystemExit("training ended before its first step")
        process.send_signal(signal.SIGINT)
    return {"seconds": round(seconds, 1), "peak_memory_gb": round(peak, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--placement", default="disk", help="where the images wait: auto, ram or disk")
    options = parser.parse_args()
    for n in options.files:
        with tempfile.TemporaryDirectory() as folder:
            make_files(Path(folder), n)
            line = {"benchmark": "start", "files": n, "placement": options.placement}
            line |= time_start(Path(folder), options.placement)
        print(json.dumps(line | provenance(hardware(best_device("cpu")))))


if __name__ == "__main__":
    main()
