"""LoGo in a plain PyTorch loop: the parts of this library, and none of its training.

python examples/plain_loop.py FOLDER [STEPS]
"""

import sys

import torch

from logo_ssl.augment import CropPlan, make_crops
from logo_ssl.data import load_data
from logo_ssl.frameworks import MoCoConfig
from logo_ssl.models import build_backbone
from logo_ssl.strategies import LoGoConfig

SIZE, BATCH = 32, 32
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def batches(images: torch.Tensor, generator: torch.Generator):
    while True:
        for rows in torch.randperm(len(images), generator=generator).split(BATCH):
            if len(rows) == BATCH:
                yield images[rows]


def train(images: torch.Tensor, steps: int, seed: int = 0) -> list[float]:
    """Losses of so many steps on images [N C H W] of uint8."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    plan = CropPlan(n_global=2, n_local=2, global_size=SIZE, local_size=SIZE // 2)
    backbone = build_backbone("tiny")
    framework = MoCoConfig(dim=64, queue=256, m=0.99, splits=2).build(backbone, backbone.num_features)
    strategy = LoGoConfig().build(plan.n_global, plan.n_local, 64)
    encoder_sgd = torch.optim.SGD(framework.encoder.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    regressor_sgd = torch.optim.SGD(strategy.parameters(), lr=strategy.inner_lr, momentum=0.9)
    losses = []
    for step, batch in zip(range(steps), batches(images, generator), strict=False):
        crops = make_crops(batch, plan, generator, MEAN, STD)  # x~^g and x~^l
        randomness = strategy.draw(len(batch), generator)
        p = framework.project(crops, strategy.roles)  # latents z, queries q, targets t

        regressor_sgd.zero_grad()
        strategy.inner(p, randomness).loss.backward()  # theta_d: Eqs. 6 and 7
        regressor_sgd.step()
        encoder_sgd.zero_grad()
        objective = strategy.outer(framework.similarity, p, randomness)  # theta_e: Eqs. 3-5, 8 and 9
        objective.loss.backward()
        encoder_sgd.step()
        framework.after_step(p, step / steps)  # momentum encoder and queue
        losses.append(float(objective.loss.detach()))
    return losses


if __name__ == "__main__":
    found = load_data(sys.argv[1] if len(sys.argv) > 1 else "scenes", SIZE).train.array
    print(train(found, int(sys.argv[2]) if len(sys.argv) > 2 else 100))
