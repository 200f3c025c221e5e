"""The command `doctor`: versions and devices of this machine, the speed of the data, and the settings for them."""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import torch
from rich.table import Table

from ..data import BadImages, ImageSet, LoadingConfig, Photos, data_root, load_data, locate, nvjpeg, place
from ..data.decode import dataset_info
from ..data.workers import fitting_workers
from ..errors import UserError
from ..eval.features import cache_folder
from ..recipes import choose, summary
from ..system.hardware import available_memory, best_device, hardware, provenance
from ..system.terminal import plain_console
from ..train.bench import time_steps
from ..train.build import SCENES_SIDE, machine_for, refuse_too_few
from ..train.compile import has_compiler

EXTRAS = {
    "pyarrow": "parquet",
    "pillow-heif": "heic",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "faster-coco-eval": "detect",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
"""Packages that some commands need, and the extra that brings each."""
SECONDS = 2.0  # of reading, to measure its speed
BATCH = 64
PIXELS = 3 * 640 * 480  # bytes of a photograph, for the number of workers

Row = tuple[str, str]


@dataclass(frozen=True)
class Doctor:
    """Show versions, GPU, compiler and decoders; with --data, how fast images load, and which settings suit them.

    Three steps tell how long training with these settings would take.

    example: logo-ssl doctor --data photos/
    """

    data: str | None = None
    """A name or a path, as for `pretrain`."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where training would run."""

    def run(self) -> None:
        """Look, and show what was found."""
        console, device = plain_console(), best_device(self.device)
        table = Table("what", "found", title="This machine", title_justify="left")
        for row in (*_versions(device), *_devices(device)):
            table.add_row(*row)
        console.print(table)
        if self.data is None:
            console.print("With --data PATH: how fast these images come, and what `pretrain --data PATH` would choose.")
            return
        data = load_data(locate(self.data), SCENES_SIDE)
        facts = dataset_info(data)
        for sentence in filter(None, (f"Data: {data.name}, {facts}.", *data.says)):
            console.print(sentence)
        refuse_too_few(self.data, facts.n_images)
        speed, bad, seen = _speed(data, device)
        console.print(f"Speed: {speed}")
        chosen = choose(facts, machine_for(self.device))
        console.print(f"Chosen: {summary(chosen)}")
        if len(bad) > chosen.loading.max_bad * seen:
            raise UserError(
                f"{len(bad):,} of {seen:,} images cannot be read (one is {min(bad.names)}), more than "
                f"loading.max_bad={chosen.loading.max_bad:g} allows."
            )
        chosen = chosen.changed(data=self.data, device=self.device)
        pace = time_steps(chosen, load_data(locate(self.data), chosen.crops.global_size))
        console.print(f"Time: {pace}.")
        console.print(f"Next: logo-ssl {shlex.join(['pretrain', '--data', self.data, '--out', f'runs/{data.name}'])}")


def _versions(device: torch.device) -> Iterator[Row]:
    told = provenance(hardware(device))
    yield "commit", told["commit"]
    yield from told["versions"].items()
    for package, extra in EXTRAS.items():
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, f"not installed (pip install 'logo-ssl[{extra}]')"
    yield "platform", told["platform"]


def _devices(device: torch.device) -> Iterator[Row]:
    on_gpu = device.type == "cuda"
    yield "CPU cores", str(os.cpu_count())
    yield "free RAM", f"{available_memory(torch.device('cpu')) / 1e9:.1f} GB"
    yield "device", f"{device.type}: {hardware(device)}"
    if on_gpu:
        yield "GPUs", str(torch.cuda.device_count())
        yield "free GPU memory", f"{available_memory(device) / 1e9:.1f} GB"
        yield "bfloat16", "yes" if torch.cuda.is_bf16_supported(including_emulation=False) else "no: trains in float32"
    slower = "no Triton: trains slower" if on_gpu else "not used by default on this device"
    yield "torch.compile", "yes, used by default" if has_compiler(device) else slower
    yield "JPEG on the GPU (nvJPEG)", "yes" if on_gpu and nvjpeg.works(device) else "no: workers decode"
    yield "workers that memory serves", str(fitting_workers(-1, PIXELS))
    yield "named data sets", str(data_root())
    yield "cached features", str(cache_folder())


def _speed(data: ImageSet, device: torch.device) -> tuple[str, BadImages, int]:
    """Images a second from where they are to the device, files decoded anew each time; the bad ones; how many seen."""
    images, n = data.train.images, len(data.train)
    config = LoadingConfig(placement="disk" if isinstance(images, Photos) else "auto")
    bad = BadImages(n, 1.0)
    feed, where = place(images, device, config, bad)
    with closing(feed):
        batches = feed.batches(torch.randperm(n).repeat(-(-BATCH * 4 // n)).split(BATCH))
        seen = first = len(next(batches).pixels)  # which starts everything
        began = time.perf_counter()
        for batch in batches:
            seen += len(batch.pixels)
            if time.perf_counter() - began > SECONDS:
                break
        speed = (seen - first) / (time.perf_counter() - began)
    different = min(n, seen)  # each comes once before any comes again
    unreadable = f"; {len(bad):,} of {different:,} cannot be read" if len(bad) else ""
    return f"{speed:,.0f} images/s ({seen:,} images seen{unreadable}), {where}.", bad, different
