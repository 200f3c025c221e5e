"""What would kNN be if batch norm's statistics were of whole images? They are of crops, and encoders see whole images.

python tools/whole_images.py runs/best --data cifar10.npz
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

from logo_ssl.data import Split
from logo_ssl.data.npz import load_npz
from logo_ssl.evaluate import FrozenEncoder, load_encoder
from logo_ssl.features import extract, prepared
from logo_ssl.hardware import best_device
from logo_ssl.knn import knn_accuracy
from logo_ssl.models.norm import BatchNorm
from logo_ssl.provenance import commit
from logo_ssl.recipes import read_recipe
from logo_ssl.run import Run

BATCH = 500


@torch.no_grad()
def learn_statistics(encoder: FrozenEncoder, images: Tensor) -> None:
    """Give every batch norm the mean of its statistics over batches of whole images."""
    device = next(encoder.backbone.parameters()).device
    norms = [module for module in encoder.backbone.modules() if isinstance(module, BatchNorm)]
    encoder.backbone.train()
    for i, batch in enumerate(images.split(BATCH)):
        for norm in norms:
            norm.momentum = 1 / (i + 1)
        encoder.backbone(prepared(batch.to(device), encoder.mean, encoder.std, encoder.size))
    encoder.backbone.eval()


def figures(encoder: FrozenEncoder, train: Split, test: Split) -> dict[str, float]:
    """kNN by both customs."""
    bank, asked = (
        extract(encoder.backbone, split.array, encoder.mean, encoder.std, encoder.size) for split in (train, test)
    )
    labels, truth = (torch.as_tensor(split.labels).to(bank.device) for split in (train, test))
    protocols = [(k, tau) for k, tau in ((20, 0.07), (200, 0.1)) if k <= len(bank)]
    return {f"k={k}": round(knn_accuracy(asked, truth, bank, labels, k, tau), 2) for k, tau in protocols}


def main(arguments: list[str] | None = None) -> None:
    """Print kNN before and after, as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--data", type=Path, required=True, help="an .npz with labelled training and test images")
    options = parser.parse_args(arguments)
    data, encoder = load_npz(options.data), load_encoder(str(options.run))
    if data.test is None or data.train.labels is None:
        parser.error(f"{options.data} has not both training and test images with labels.")
    encoder.backbone.to(best_device("auto")).eval()
    of_crops = figures(encoder, data.train, data.test)
    learn_statistics(encoder, data.train.array)
    of_images = figures(encoder, data.train, data.test)
    recipe = read_recipe(Run(options.run))
    told = {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "crops": of_crops,
        "whole_images": of_images,
        "commit": commit(),
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
