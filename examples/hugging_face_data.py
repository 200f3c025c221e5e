"""LoGo on a Hugging Face data set, in a plain loop: SimSiam this time, with images of any size.

python examples/hugging_face_data.py beans [STEPS]      # a name on the Hub, or a folder of images
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset, load_dataset

from logo_ssl.augment import CropPlan, make_crops
from logo_ssl.data.workers import lay_out
from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.models import build_backbone
from logo_ssl.strategies import LoGoConfig
from logo_ssl.types import ImageBatch

SIZE, BATCH, DIM = 32, 16, 128
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def batches(data: Dataset, seed: int) -> Iterator[ImageBatch]:
    """Images of various sizes in the corners of equal canvases, with their sizes."""
    for epoch in range(10**6):
        for rows in data.shuffle(seed=seed + epoch).iter(BATCH, drop_last_batch=True):
            arrays = (np.array(image.convert("RGB")) for image in rows["image"])
            yield lay_out([torch.from_numpy(array).permute(2, 0, 1) for array in arrays])


def train(data: Dataset, steps: int, seed: int = 0) -> tuple[torch.nn.Module, list[float]]:
    """The backbone after so many steps, and the losses."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    plan, backbone = CropPlan(global_size=SIZE, local_size=SIZE // 2), build_backbone("tiny")
    framework = SimSiamConfig(dim=DIM, layers=2, hidden=64).build(backbone, backbone.num_features)
    strategy = LoGoConfig().build(plan.n_global, plan.n_local, DIM)
    encoder_sgd = torch.optim.SGD(framework.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    regressor_sgd = torch.optim.SGD(strategy.parameters(), lr=strategy.inner_lr, momentum=0.9)
    losses = []
    for _, (pixels, sizes, _) in zip(range(steps), batches(data, seed), strict=False):
        p = framework.project(make_crops(pixels, plan, generator, MEAN, STD, sizes=sizes), strategy.roles)
        randomness = strategy.draw(len(pixels), generator)
        regressor_sgd.zero_grad()
        strategy.inner(p, randomness).loss.backward()
        regressor_sgd.step()
        loss = strategy.outer(framework.similarity, p, randomness).loss
        encoder_sgd.zero_grad()
        loss.backward()
        encoder_sgd.step()
        losses.append(float(loss.detach()))
    return backbone, losses


if __name__ == "__main__":
    source = {"path": "imagefolder", "data_dir": sys.argv[1]} if Path(sys.argv[1]).is_dir() else {"path": sys.argv[1]}
    print(train(load_dataset(**source, split="train"), int(sys.argv[2]) if len(sys.argv) > 2 else 100)[1])
