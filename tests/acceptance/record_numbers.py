"""Numbers that a restructuring must not change, as JSON: `python tests/acceptance/record_numbers.py > before.json`.

Digests of weights after an epoch, of features and of drawn crops, and figures of the evaluations, all on images made
here and by settings written here, in one thread. They hold for one machine and one version of torch: write them before
a change and after it, and compare everything but `about`.
"""

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command_line import here, metrics, weights
from made_up_data import labelled, save_coco, save_folder, save_npz
from PIL import Image

import logo_ssl

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

BASE: dict[str, Any] = {
    **{"backbone": "tiny", "stem": "imagenet", "epochs": 1, "batch_size": 64, "seed": 0, "initialisation": "library"},
    **{"framework": "moco", "framework__dim": 64, "framework__head": "mlp-bn", "framework__tau": 0.2},
    **{"framework__m": 0.99, "framework__queue": 128, "framework__splits": 2},
    **{"strategy": "logo", "strategy__lam": 0.05, "strategy__balance": "latents", "strategy__affinity": "learned"},
    **{"strategy__bound": "logistic", "strategy__noise": 0.0, "strategy__depth": 5, "strategy__width": 256},
    **{"strategy__lr": 0.03, "strategy__pairs": "mean"},
    **{"crops__n_global": 2, "crops__n_local": 2, "crops__global_size": 32, "crops__local_size": 16},
    **{"crops__global_scale": (0.4, 1.0), "crops__local_scale": (0.05, 0.4), "crops__ratio": (3 / 4, 4 / 3)},
    **{"crops__flip": 0.5, "crops__jitter": (0.8, 0.8, 0.8, 0.4), "crops__jitter_p": 0.8, "crops__grey_p": 0.5},
    **{"crops__blur_p": 0.0, "crops__solarise_p": 0.0, "augself__crop": 0.0, "augself__colour": 0.0},
    **{"optimiser__kind": "sgd", "optimiser__lr": 0.06, "optimiser__eta_min": 0.0, "optimiser__warmup_epochs": 0},
    **{"optimiser__momentum": 0.9, "optimiser__weight_decay": 5e-4, "optimiser__clip": 0.0},
    **{"device": "cpu", "precision": "fp32", "knn_every": 1, "log_every": 1, "loggers": ()},
}
"""Everything that decides what is learned, so that another recipe `tiny` changes nothing here."""

FRAMEWORKS: dict[str, dict[str, Any]] = {
    "moco": {name: value for name, value in BASE.items() if name.startswith("framework__")},
    "simsiam": {"framework__dim": 64, "framework__layers": 2, "framework__hidden": 32, "framework__constant_lr": True},
    "byol": {"framework__dim": 64, "framework__hidden": 128, "framework__m": 0.99},
    "simclr": {"framework__dim": 64, "framework__tau": 0.5},
    "supervised": {"strategy": "two-view", "crops__n_global": 1},
}
VARIANTS: dict[str, dict[str, Any]] = {name: {"framework": name, **how} for name, how in FRAMEWORKS.items()}
VARIANTS |= {
    "two-view": {"strategy": "two-view", "strategy__pairs": "mean"},
    "multi-crop": {"strategy": "multi-crop", "strategy__pairs": "mean"},
    "pairs of the paper": {"strategy__pairs": "paper"},
    "symmetric pairs": {"strategy__pairs": "symmetric"},
    "lambda at the parameters": {"strategy__balance": "parameters"},
    "lambda as a weight": {"strategy__balance": "weight"},
    "cosine": {"strategy__affinity": "cosine"},
    "omega of the paper": {"strategy__bound": "mean-difference", "strategy__lr": 0.003},
    "noise": {"strategy__noise": 0.3},
    "more crops": {"crops__n_global": 3, "crops__n_local": 3},
    "blur and solarisation": {"crops__blur_p": 0.5, "crops__solarise_p": 0.2},
    "AugSelf": {"augself__crop": 0.5, "augself__colour": 0.5, "augself__hidden": 64},
    "LARS, clipped": {"optimiser__kind": "lars", "optimiser__lr": 0.5, "optimiser__clip": 0.1},
    "AdamW, warm-up": {"optimiser__kind": "adamw", "optimiser__lr": 1e-3, "optimiser__warmup_epochs": 0.5},
    "linear head, queue no multiple of the batch": {"framework__head": "linear", "framework__queue": 100},
    "ResNet-18, CIFAR's stem": {"backbone": "resnet18", "stem": "cifar", "epochs": 1, "crops__global_size": 16},
    "seed 1": {"seed": 1},
}


def digest(*arrays: np.ndarray) -> str:
    """Of the values, shapes and types of arrays."""
    made = hashlib.sha256()
    for array in arrays:
        made.update(f"{array.dtype.str} {array.shape}".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def learned(run: Path) -> dict[str, Any]:
    """Digests of what a run has learned, with the names of the weights and without, and the curves."""
    found = {name: x.numpy() for name, x in weights(run).items()}
    named = hashlib.sha256("".join(f"{name} {digest(found[name])}\n" for name in sorted(found)).encode())
    unnamed = hashlib.sha256("".join(sorted(digest(x) for x in found.values())).encode())
    curves = [
        {k: v for k, v in line.items() if k in ("step", "loss", "omega", "ratio", "knn")} for line in metrics(run)
    ]
    return {"weights": named.hexdigest(), "without names": unnamed.hexdigest(), "curves": curves}


def settings(changes: dict[str, Any]) -> dict[str, Any]:
    """All settings of a variant: a part of another kind has none of the base's."""
    kept = dict(BASE)
    for part in ("framework", "strategy"):
        if changes.get(part, BASE[part]) != BASE[part]:
            kept = {name: value for name, value in kept.items() if not name.startswith(f"{part}__")}
    if changes.get("strategy") == "two-view":
        kept["crops__n_local"] = 0
    return kept | changes


def pretrained(folder: Path, data: Path) -> dict[str, Any]:
    """What each variant learns in an epoch."""
    told = {}
    for name, changes in VARIANTS.items():
        logo_ssl.pretrain("tiny", folder / name, data=str(data), **settings(changes))
        told[name] = learned(folder / name)
    photos = save_folder(folder / "photos", labelled(96, size=48))
    words = {"loading__workers": 0, "loading__placement": "disk", "batch_size": 32}
    logo_ssl.pretrain("tiny", folder / "on disk", data=str(photos), **settings(words))
    return told | {"photographs on disk": learned(folder / "on disk")}


BRIEF = (
    *("--iterations", "24", "--batch-size", "4", "--lr", "0.03", "--short-sides", "64", "80", "--test-side", "64"),
    *("--longest", "96", "--anchors", "16", "24", "32", "--candidates", "100", "100", "--proposals", "40", "40"),
    *("--regions", "16", "--norm-batches", "2", "--warm-up", "2", "--steps", "18", "21", "--workers", "0"),
    *("--lowest-score", "0.01", "--weight-decay", "1e-4", "--momentum", "0.9"),
)
ENCODERS = {"TINY": "moco", "RESNET": "ResNet-18, CIFAR's stem"}
EVALUATIONS: dict[str, tuple[str, ...]] = {
    "knn": ("knn", "RESNET", "--protocols", "20", "0.07", "5", "0.1"),
    "linear-lbfgs": ("linear", "RESNET", "--protocol", "lbfgs"),
    "linear-sgd": ("linear", "RESNET", "--protocol", "sgd", "--epochs", "10"),
    "linear-sgd-augmented": ("linear", "RESNET", "--protocol", "sgd-augmented", "--epochs", "3"),
    "transfer": ("transfer", "RESNET", "--sets", "other.npz", "photos"),
    "finetune": ("finetune", "TINY", "--epochs", "6", "--batch-size", "32"),
    "semi": ("semi", "TINY", "--epochs", "6", "--batch-size", "32", "--fractions", "0.2", "0.5"),
    "detect": ("detect", "random/resnet18", "--data", "shapes", *BRIEF),
    "segment": ("segment", "random/resnet18", "--data", "shapes", *BRIEF),
}


def measured(folder: Path) -> dict[str, Any]:
    """The figures of each evaluation of one run, as they are in its JSON."""
    told = {}
    save_npz(folder / "other.npz", 160, 80)
    save_coco(folder / "shapes", {"train": 8, "val": 8})
    for name, words in EVALUATIONS.items():
        out = folder / name
        out.mkdir()
        argv = [ENCODERS.get(word, word) for word in words]
        done = here("eval", *argv, "--device", "cpu", "--out", out / "result.json", cwd=folder)
        assert done.code == 0, done.err
        records = [json.loads(file.read_text()) for file in sorted(out.glob("*.json"))]
        assert records, name
        told[name] = [{key: timeless(record[key]) for key in KEPT if key in record} for record in records]
        for found in sorted(out.glob("*-pictures/*.json")):  # all that a detector found, with its scores
            kept = [{key: each[key] for key in COCO if key in each} for each in json.loads(found.read_text())]
            told[f"{name}, {found.stem}"] = hashlib.sha256(json.dumps(kept).encode()).hexdigest()
    return told


KEPT = ("results", "metric", "value", "standard_errors", "validation", "lr", "l2_weight")
"""What of a result is compared."""
COCO = ("image_id", "category_id", "bbox", "score", "segmentation")
"""What of an object that was found is compared."""


def timeless(value: Any) -> Any:
    """A part of a result without how long it took."""
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key != "seconds"}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def everything(folder: Path) -> dict[str, Any]:
    """All numbers, made in a folder."""
    data = save_npz(folder / "data.npz", 320, 160)
    told: dict[str, Any] = {"weights": pretrained(folder, data), "evaluations": measured(folder)}
    told["features"] = {
        "npz": digest(logo_ssl.embed(folder / "moco", data, device="cpu").vectors),
        "photographs": digest(logo_ssl.embed(folder / "moco", folder / "photos", device="cpu", workers=0).vectors),
        "resnet18 without training": digest(logo_ssl.embed(untrained(), folder / "other.npz", device="cpu").vectors),
    }
    told["crops"] = drawn(folder)
    versions = {"torch": torch.__version__, "numpy": np.__version__, "platform": platform.platform()}
    return told | {"about": {"source": logo_ssl.__file__} | versions}


def main() -> None:
    """Print everything, from a process that has begun with one thread."""
    if any(os.environ.get(name) != value for name, value in THREADS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | THREADS)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(sys.stderr):
        os.environ |= {"LOGO_CACHE": f"{name}/cache", "LOGO_DATA": f"{name}/sets"}
        told = everything(Path(name))
    sys.stdout.write(json.dumps(told, indent=1) + "\n")


def untrained() -> torch.nn.Module:
    """A network that everybody has."""
    return logo_ssl.load("random/resnet18", size=32)


def drawn(folder: Path) -> dict[str, str]:
    """Digests of pictures of crops, below their title."""
    told = {}
    for name, words in {"seed 0": [], "seed 3": ["--seed", "3"], "strong": ["--crops.blur-p", "1"]}.items():
        words = ["--data", "data.npz", "--crops.grey-p", "0.5", "--images", "4", *words]
        done = here("show-crops", "tiny", "--out", f"{name}.png", *words, cwd=folder)
        assert done.code == 0, done.err
        told[name] = digest(np.asarray(Image.open(folder / f"{name}.png"))[50:])
    return told


if __name__ == "__main__":
    main()
