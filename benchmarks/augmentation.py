"""How fast and how exact are our crops beside kornia's and torchvision's? All taken in turns; three JSON lines.

kornia is no dependency: put it on PYTHONPATH to be compared with, or read null.
"""

import argparse
import json
import math
import os
import statistics
import time
from dataclasses import replace

import torch
import torchvision.transforms as T
import torchvision.transforms.v2.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

from logo_ssl.augment import draw, make_crops, transforms
from logo_ssl.augment.transforms import blur_kernel
from logo_ssl.data.scenes import make_scenes
from logo_ssl.recipes import find_recipe
from logo_ssl.system.hardware import best_device, hardware, provenance

try:
    import kornia
    import kornia.augmentation as K
    from kornia.geometry.bbox import bbox_generator
    from kornia.geometry.transform import crop_and_resize, crop_by_indices
except ImportError:
    kornia = None

MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)
WARM_UP = 2
SETTINGS = {  # crops, side of the source images, and a batch on a GPU and on a CPU
    "2x32 + 2x32 of 32": (find_recipe("cifar10-moco-logo").crops, 32, {"cuda": 512, "cpu": 128}),
    "2x224 + 2x96 of 256, blur": (find_recipe("imagenet100-moco-logo").crops, 256, {"cuda": 128, "cpu": 16}),
}


class Views(Dataset):
    """Each image's crops by torchvision on a PIL image, as a DataLoader's worker makes them."""

    def __init__(self, images, plan):
        self.images, kinds = images.permute(0, 2, 3, 1).numpy(), []
        for n, size, scale in kinds_of(plan):
            blur = T.RandomApply([T.GaussianBlur(blur_kernel(size), plan.blur_sigma)], plan.blur_p)
            chain = T.Compose([
                T.RandomResizedCrop(size, scale, plan.ratio),
                T.RandomHorizontalFlip(plan.flip),
                T.RandomApply([T.ColorJitter(*plan.jitter)], plan.jitter_p),
                T.RandomGrayscale(plan.grey_p),
                *([blur] if plan.blur_p else []),
                T.ToTensor(),
                T.Normalize(MEAN, STD),
            ])  # fmt: skip
            kinds += [chain] * n
        self.kinds = kinds

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.fromarray(self.images[i])
        return [chain(image) for chain in self.kinds]


def kinds_of(plan):
    return (plan.n_global, plan.global_size, plan.global_scale), (plan.n_local, plan.local_size, plan.local_scale)


def kornia_crops(plan, mode):
    """A function that makes the plan's crops with kornia: one pass for each kind, every image with its own draw."""
    chains = []
    for n, size, scale in kinds_of(plan):
        blur = K.RandomGaussianBlur(blur_kernel(size), plan.blur_sigma, p=plan.blur_p)
        chain = nn.Sequential(
            K.RandomResizedCrop((size, size), scale, plan.ratio, cropping_mode=mode),
            K.RandomHorizontalFlip(p=plan.flip),
            K.ColorJitter(*plan.jitter, p=plan.jitter_p),
            K.RandomGrayscale(p=plan.grey_p),
            *([blur] if plan.blur_p else []),
            kornia.enhance.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        )
        chains.append((n, chain))
    return lambda images: [chain((images.float() / 255).repeat(n, 1, 1, 1)) for n, chain in chains]


def ways_to_crop(plan, side, batch, workers, device):
    """Each way as a function that crops some batches, and how many images that are."""
    cuda = device.type == "cuda"
    calls, generator = 10 if cuda else 1, torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (batch, 3, side, side), dtype=torch.uint8)
    images = images.pin_memory() if cuda else images

    def batched(crop):
        def some():
            for _ in range(calls):
                crop(images.to(device, non_blocking=True))

        return some, calls * batch

    ways = {
        "ours": batched(lambda x: make_crops(x, plan, generator, MEAN, STD)),
        "ours_compiled": batched(lambda x: make_crops(x, plan, generator, MEAN, STD, compiled=True)) if cuda else None,
        "kornia_resample": batched(kornia_crops(plan, "resample")) if kornia else None,
        "kornia_slice": batched(kornia_crops(plan, "slice")) if kornia else None,
    }
    # A pass has several batches for each worker, so that filling and draining the queue weigh little.
    passes = images.repeat(3 * workers, 1, 1, 1)
    loader = DataLoader(Views(passes, plan), batch, num_workers=workers, persistent_workers=True, pin_memory=cuda)

    def load():
        for crops in loader:
            for crop in crops:
                crop.to(device, non_blocking=True)

    return ways | {"torchvision_loader": (load, len(passes))}


def speed(ways, rounds, device):
    """Images per second of each way, taken in turns; None for a way that is missing here."""
    rates = {name: [] for name, way in ways.items() if way}
    for _ in range(rounds + WARM_UP):
        for name, seen in rates.items():
            some, count = ways[name]
            began = time.perf_counter()
            with torch.no_grad():
                some()
            if device.type == "cuda":
                torch.cuda.synchronize()
            seen.append(count / (time.perf_counter() - began))
    rates = {name: seen[WARM_UP:] for name, seen in rates.items()}
    medians = {name: statistics.median(rates[name]) if name in rates else None for name in ways}
    ours = max(medians["ours"], medians["ours_compiled"] or 0)
    return {
        "images_per_s": {name: rate and round(rate) for name, rate in medians.items()},
        "spread": {name: round(statistics.stdev(seen)) if rounds > 1 else None for name, seen in rates.items()},
        "best_of_ours_over": {name: rate and round(ours / rate, 2) for name, rate in medians.items()},
    }


def exactness(device):
    """Largest and mean difference from torchvision's float path, in grey levels, of ours, kornia and PIL's bytes."""
    images = torch.as_tensor(make_scenes(12, 256)[0])
    plan = find_recipe("imagenet100-moco-logo").crops
    plan = replace(plan, flip=0.0, jitter_p=1.0, grey_p=0.0, blur_p=1.0, solarise_p=0.0)
    generator = torch.Generator().manual_seed(0)
    large, small = (draw(12, (256, 256), generator, plan, scale) for scale in ((0.4, 1.0), (0.05, 0.4)))
    taps = blur_kernel(224)

    def crop(boxes, size):
        corners = [column.to(device) for column in boxes[:, [1, 0, 3, 2]].float().unbind(dim=1)]
        return {
            "torchvision": (lambda x, box: F.resized_crop(x, *map(int, box), [size, size], antialias=True), boxes),
            "ours": lambda x: transforms.resized_crop((x * 255).round().byte(), boxes.float().to(device), size),
            "kornia_resample": lambda x: crop_and_resize(x, bbox_generator(*corners), (size, size)),
            "kornia_slice": lambda x: crop_by_indices(x, bbox_generator(*corners), (size, size), align_corners=True),
            # Not the default of its RandomResizedCrop, but the nearest that one comes to torchvision.
            "kornia_slice_unaligned": lambda x: crop_by_indices(
                x, bbox_generator(*corners), (size, size), align_corners=False
            ),
        }

    def colour(theirs, ours, kornias, factor):
        on_device = factor.to(device)
        return {
            "torchvision": (lambda x, f: theirs(x, f.item()), factor),
            "ours": lambda x: ours(x, on_device),
            "kornia": lambda x: kornias(x, on_device),
        }

    on_kornia = kornia_operations(taps) if kornia else {}
    cases = {
        name: colour(theirs, ours, on_kornia.get(name), factor)
        for name, theirs, ours, factor in (
            ("brightness", F.adjust_brightness, transforms.brightness, large.brightness),
            ("contrast", F.adjust_contrast, transforms.contrast, large.contrast),
            ("saturation", F.adjust_saturation, transforms.saturation, large.saturation),
            ("hue", F.adjust_hue, transforms.hue, large.hue),
            ("greyscale", lambda x, _: F.rgb_to_grayscale(x, 3), lambda x, _: transforms.greyscale(x), large.hue),
            (
                "blur",
                lambda x, s: F.gaussian_blur(x, [taps, taps], [s, s]),
                lambda x, s: transforms.gaussian_blur(x, s, taps),
                large.sigma,
            ),
        )
    }
    cases |= {"crop shrunk to 96": crop(large.boxes, 96), "crop enlarged to 224": crop(small.boxes, 224)}
    return {name: differences(images, case, device) for name, case in cases.items()}


def kornia_operations(taps):
    """kornia's functions for what its ColorJitter, RandomGrayscale and RandomGaussianBlur do."""
    return {
        "brightness": kornia.enhance.adjust_brightness_accumulative,
        "contrast": kornia.enhance.adjust_contrast_with_mean_subtraction,
        "saturation": kornia.enhance.adjust_saturation_with_gray_subtraction,
        "hue": lambda x, turn: kornia.enhance.adjust_hue(x, turn * 2 * math.pi),
        "greyscale": lambda x, _: kornia.color.rgb_to_grayscale(x).expand_as(x),
        "blur": lambda x, sigma: kornia.filters.gaussian_blur2d(x, (taps, taps), sigma[:, None].expand(-1, 2)),
    }


def differences(images, case, device):
    one, parameters = case.pop("torchvision")
    x = images.float() / 255
    expected = torch.stack([one(image, p) for image, p in zip(x, parameters, strict=True)])
    in_bytes = [F.pil_to_tensor(one(F.to_pil_image(image), p)) for image, p in zip(images, parameters, strict=True)]
    found = {"torchvision_pil": torch.stack(in_bytes).float() / 255}
    for name, way in case.items():
        found[name] = way(x.to(device)).float().cpu() if kornia or name == "ours" else None
    return {name: None if y is None else grey_levels(y - expected) for name, y in found.items()}


def grey_levels(difference):
    levels = 255 * difference.abs()
    return {"max": float(f"{levels.max():.3g}"), "mean": float(f"{levels.mean():.3g}")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns that count (7)")
    parser.add_argument("--batch", type=int, help="images in a batch (512 and 128; 128 and 16 on a CPU)")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="worker processes of the DataLoader")
    options = parser.parse_args()
    device = best_device("auto")
    kind = "cuda" if device.type == "cuda" else "cpu"
    rounds = options.rounds
    about = {"benchmark": "augmentation", "n": rounds, "workers": options.workers}
    about |= {"kornia": kornia and kornia.__version__} | provenance(hardware(device))
    for name, (plan, side, batches) in SETTINGS.items():
        batch = options.batch or batches[kind]
        ways = ways_to_crop(plan, side, batch, options.workers, device)
        print(json.dumps({"crops": name, "batch": batch} | speed(ways, rounds, device) | about), flush=True)
    print(json.dumps({"grey_levels_from_torchvision": exactness(device)} | about))


if __name__ == "__main__":
    main()
