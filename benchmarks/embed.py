"""How fast are photographs embedded, beside the forward pass alone? Prints one JSON line.

python benchmarks/embed.py [--data FOLDER] [--encoder random/resnet50] [--images 65536] [--rounds 3] [--device cuda]
                           [--decoder auto|nvjpeg|workers] [--workers 16]
"""

import argparse
import json
import statistics
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path

import torch
from PIL import Image

from logo_ssl.data.scenes import make_scenes
from logo_ssl.data.workers import fitting_workers
from logo_ssl.embedding.embeddings import embed, images_of
from logo_ssl.embedding.module import frozen
from logo_ssl.eval.features import Extraction, decodes_on_gpu, exact_convolutions
from logo_ssl.system.hardware import best_device, hardware, provenance

SIZE, PHOTOGRAPH, QUALITY, DRAWN = 224, (500, 375), 90, 64
BATCH = 256 if torch.cuda.is_available() else 32


def save(job):
    pixels, file = job
    Image.fromarray(pixels).resize(PHOTOGRAPH, Image.Resampling.BICUBIC).save(file, "JPEG", quality=QUALITY)


def photographs(folder: Path, n: int) -> None:
    """Scenes as JPEG files of the size of a photograph; a few of them, many times."""
    scenes, _ = make_scenes(DRAWN, 96, 0)
    pixels = [scene.permute(1, 2, 0).numpy() for scene in scenes]
    with Pool() as pool:
        pool.map(save, [(pixels[i % DRAWN], folder / f"{i:06}.jpg") for i in range(n)], chunksize=64)


@torch.no_grad()
def forward_alone(encoder, n: int, device: torch.device) -> float:
    """Images/s of the network on one batch again and again, in the precision of `embed`."""
    backbone = encoder.backbone.to(device)
    x = torch.randn(BATCH, encoder.channels, SIZE, SIZE, device=device)
    x = x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x
    with exact_convolutions():
        for _ in range(3):
            backbone(x).cpu()
        began = time.perf_counter()
        for _ in range(max(1, n // BATCH)):
            backbone(x).cpu()
    return max(1, n // BATCH) * BATCH / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="random/resnet50" if torch.cuda.is_available() else "random/resnet18")
    parser.add_argument("--data", help="a folder of photographs (default: made-up ones)")
    parser.add_argument("--images", type=int, default=65_536 if torch.cuda.is_available() else 64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--decoder", choices=["auto", "nvjpeg", "workers"], default="auto")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device, encoder = best_device(options.device), frozen(options.encoder)
    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            photographs(Path(folder), options.images)
        (images, *_) = images_of(encoder, options.data or folder, "train")
        split = images.split.thinned(options.images)
        how = {"device": options.device, "decoder": options.decoder, "workers": options.workers, "batch_size": BATCH}
        embed(encoder, split.thinned(4 * BATCH), **how)  # starts everything
        speeds = []
        for _ in range(options.rounds):
            began = time.perf_counter()
            embed(encoder, split, out=Path(folder) / "features.npz", **how)
            speeds.append(len(split) / (time.perf_counter() - began))
        decoder = "nvJPEG" if decodes_on_gpu(Extraction(**how), split.images, encoder.size) else "workers"
        raw = forward_alone(encoder, min(len(split), 8192), device)
    result = {
        "benchmark": "embed",
        "encoder": options.encoder,
        "px": encoder.size,
        "decoder": decoder,
        "workers": fitting_workers(options.workers, 3 * encoder.size**2),
        "n": options.rounds,
        "images": len(split),
        "images_per_s": round(statistics.mean(speeds)),
        "spread": round(statistics.stdev(speeds)) if len(speeds) > 1 else None,
        "forward_alone": round(raw),
        "ratio": round(statistics.mean(speeds) / raw, 3),
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
