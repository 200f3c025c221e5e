"""How many images does a second of training take in, ours and lightly's? Whole steps at 32 px, as one JSON line.

The line also says how far our losses are from lightly's on the same latents (`--rounds 0`: these alone).

lightly is no dependency: put it on PYTHONPATH to be compared with, or read null. $CIFAR10_NPZ names the data; without
it the images are noise, which takes as long.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import VisionDataset

from logo_ssl.frameworks import BarlowTwinsConfig, DINOConfig, SwAVConfig, VICRegConfig
from logo_ssl.recipes import find_recipe
from logo_ssl.system.hardware import best_device, hardware, provenance
from logo_ssl.train.bench import bench

try:
    import lightly
    from lightly.data import LightlyDataset
    from lightly.loss import BarlowTwinsLoss, DINOLoss, NegativeCosineSimilarity, SwaVLoss, VICRegLoss
    from lightly.models.modules.heads import ProjectionHead, SimSiamPredictionHead
    from lightly.transforms import FastSiamTransform
except ImportError:
    lightly = None


class InMemory(VisionDataset):
    """Images as torchvision's CIFAR-10 holds them: an array, each made a PIL image when it is asked for."""

    def __init__(self, images):
        super().__init__(root="")
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.transform(Image.fromarray(self.images[i])), 0


class SimSiam(nn.Module):
    """lightly's parts on torchvision's ResNet-18 with a CIFAR stem: SimSiam with 2 views, FastSiam with more."""

    def __init__(self):
        super().__init__()
        self.backbone = torchvision.models.resnet18()
        self.backbone.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.backbone.maxpool = self.backbone.fc = nn.Identity()
        layers = [(512, 2048, nn.BatchNorm1d(2048), nn.ReLU()), (2048, 2048, nn.BatchNorm1d(2048), None)]
        self.projector, self.predictor = ProjectionHead(layers), SimSiamPredictionHead(2048, 512, 2048)
        self.similarity = NegativeCosineSimilarity()

    def forward(self, views):
        latents = [self.projector(self.backbone(view)) for view in views]
        targets, loss = torch.stack(latents).detach(), 0
        for i, latent in enumerate(latents):
            others = torch.cat((targets[:i], targets[i + 1 :])).mean(dim=0)
            loss = loss + self.similarity(self.predictor(latent), others) / len(views)
        return loss


def lightly_images_per_s(views, images, batch_size, workers, seconds):
    """Images a second, each in so many views, while lightly trains for some seconds; None without lightly."""
    if lightly is None:
        return None
    device = best_device("auto")
    cuda = device.type == "cuda"
    # Its CIFAR-10 benchmark leaves out the blur, as our recipes do.
    transform = FastSiamTransform(num_views=views, input_size=32, gaussian_blur=0.0)
    data = LightlyDataset.from_torch_dataset(InMemory(images), transform=transform)
    loader = DataLoader(
        data, batch_size, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True, pin_memory=cuda
    )
    model = SimSiam().to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.06, momentum=0.9, weight_decay=5e-4)
    warm_up = 2 * workers + 3  # until the batches that were loaded ahead of the first step are used up
    step, began = 0, 0.0
    while True:
        for crops, _, _ in loader:
            if step == warm_up:
                began = finished(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=cuda):
                loss = model([crop.to(device, non_blocking=True) for crop in crops])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
            if step > warm_up and time.perf_counter() - began > seconds:
                return (step - warm_up) * batch_size / (finished(device) - began)


def our_images_per_s(name, images, batch_size):
    """Images a second of the recipe, over the faster of two whole epochs after a first one."""
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, train_images=images)
        file.flush()
        recipe = replace(find_recipe(name), data=file.name, batch_size=batch_size)
        return bench(recipe)["images_per_s"]["whole_step"]


def finished(device):
    """The time when the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def loss_differences():
    """Our losses less lightly's on the same latents, in float64; None without lightly."""
    if lightly is None:
        return None

    def small(config):
        return config.build(nn.Identity(), 8).double()

    torch.manual_seed(0)
    x, y, *others = torch.randn(4, 16, 8, dtype=torch.float64)
    found = {
        "vicreg": small(VICRegConfig(dim=8)).similarity(x, y).mean() - VICRegLoss()(x, y),
        "barlow-twins": small(BarlowTwinsConfig(dim=8)).similarity(x, y).mean() - BarlowTwinsLoss()(x, y),
    }
    swav, dino = small(SwAVConfig(dim=8, prototypes=6)), small(DINOConfig(dim=8, out_dim=6))
    large, local = [swav.prototypes(z) for z in (x, y)], [swav.prototypes(z) for z in others]
    codes = [swav._assigned(cosines.detach()) for cosines in large]
    pairs = [(large[0], codes[1]), (large[1], codes[0]), *((q, t) for q in local for t in codes)]
    ours = torch.stack([swav.similarity(q, t).mean() for q, t in pairs]).mean()
    found["swav"] = ours - SwaVLoss(sinkhorn_epsilon=swav.config.epsilon)(large, local)
    students, teachers = [dino.prototypes(z) for z in (x, y, *others)], [dino.prototypes(z).detach() for z in (y, x)]
    pairs = [(q, t) for i, q in enumerate(students) for j, t in enumerate(teachers) if i != j]
    ours = torch.stack([dino.similarity(q, t).mean() for q, t in pairs]).mean()
    start = dino.config.tau_t_start
    theirs = DINOLoss(output_dim=6, warmup_teacher_temp=start, teacher_temp=start, warmup_teacher_temp_epochs=1)
    found["dino"] = ours - theirs.double()(teachers, students, epoch=0)
    return {name: difference.item() for name, difference in found.items()}


def training_images(n):
    if "CIFAR10_NPZ" in os.environ:
        with np.load(os.environ["CIFAR10_NPZ"]) as file:
            return file["train_images"]
    return np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def main():
    cuda = best_device("auto").type == "cuda"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3 if cuda else 1)
    parser.add_argument("--batch", type=int, default=512 if cuda else 8)
    parser.add_argument("--seconds", type=float, default=15 if cuda else 20)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--views", type=int, nargs="+", choices=(2, 4), default=(2, 4))
    options = parser.parse_args()
    images = training_images(50_000 if cuda else 64)
    settings = images, options.batch, options.workers, options.seconds
    recipes = {2: "cifar10-simsiam", 4: "cifar10-simsiam-logo"}
    ways = {}
    for views in options.views:
        ways[f"lightly_{views}_views"] = partial(lightly_images_per_s, views, *settings)
        ways[f"ours_{views}_views"] = partial(our_images_per_s, recipes[views], images, options.batch)
    rates = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():  # in turns, so that noise hits all alike
            rates[name].append(way())
    known = {name: seen for name, seen in rates.items() if None not in seen}
    result = {
        "benchmark": "peers",
        "n": options.rounds,
        "batch": options.batch,
        "seconds": options.seconds,
        "workers": options.workers,
        "data": "cifar10" if "CIFAR10_NPZ" in os.environ else "noise",
        "lightly": lightly and lightly.__version__,
        **{name: round(statistics.median(known[name]), 1) if known.get(name) else None for name in ways},
        "spread": {name: round(statistics.stdev(seen), 1) for name, seen in known.items() if len(seen) > 1},
        "losses": loss_differences(),
    }
    for views in options.views:
        if result[f"lightly_{views}_views"]:
            ratio = result[f"ours_{views}_views"] / result[f"lightly_{views}_views"]
            result[f"ours_over_lightly_{views}_views"] = round(ratio, 2)
    print(json.dumps(result | provenance(hardware(best_device("auto")))))


if __name__ == "__main__":
    main()
