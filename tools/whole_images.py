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
from logo_ssl.evaluate import Extraction, FrozenEncoder, labelled_features, load_encoder
from logo_ssl.evaluate.extraction import exactly
from logo_ssl.features import prepared
from logo_ssl.hardware import best_device
from logo_ssl.knn import PROTOCOLS, nearest_neighbours, top_accuracies
from logo_ssl.models.norm import BatchNorm
from logo_ssl.provenance import commit
from logo_ssl.recipes import read_recipe
from logo_ssl.run import Run

BATCH = 500
HOW = Extraction(cache=False)  # a cache knows features by the weights that were saved, whatever the statistics


@torch.no_grad()
def learn_statistics(encoder: FrozenEncoder, images: Tensor, batch_size: int = BATCH) -> None:
    """Give every batch norm the mean of its statistics over batches of whole images."""
    device = next(encoder.backbone.parameters()).device
    norms = [module for module in encoder.backbone.modules() if isinstance(module, BatchNorm)]
    encoder.backbone.train()
    for i, batch in enumerate(images.split(batch_size)):
        for norm in norms:
            norm.momentum = 1 / (i + 1)
        with exactly():
            encoder.backbone(prepared(batch.to(device), encoder.mean, encoder.std, encoder.size))
    encoder.backbone.eval()


def figures(encoder: FrozenEncoder, train: Split, test: Split) -> dict[str, float]:
    """kNN by both customs, as `eval knn` measures it."""
    (bank, labels), (asked, truth) = (labelled_features(encoder, split, HOW) for split in (train, test))
    fitting = [(k, tau) for k, tau in PROTOCOLS if k < len(bank)]
    near = nearest_neighbours(asked, bank, max(k for k, _ in fitting), device=best_device(HOW.device))
    return {f"k={k}": round(top_accuracies(near, truth, labels, k, tau, (1,))[0], 2) for k, tau in fitting}


def main(arguments: list[str] | None = None) -> None:
    """Print kNN before and after, as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run's folder")
    parser.add_argument("--data", type=Path, required=True, help="an .npz with labelled training and test images")
    options = parser.parse_args(arguments)
    data, encoder = load_npz(options.data), load_encoder(str(options.run))
    if data.test is None or data.train.labels is None:
        parser.error(f"{options.data} has not both training and test images with labels.")
    encoder.backbone.to(best_device(HOW.device)).eval()
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
