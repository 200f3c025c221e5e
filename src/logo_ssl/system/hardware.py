"""Devices, their memory and how tensors get there; the commit, versions and machine behind a number."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from ..errors import UserError

PACKAGES = ("torch", "torchvision", "lightning", "timm", "numpy")

TIMED_S = 2.0  # for each number of threads; one call that takes longer is enough

RECLAIMED = ("inactive_file", "active_file", "slab_reclaimable")
"""What a container counts as used, and gives away as soon as somebody wants it."""


def hardware(device: torch.device) -> str:
    """Words for the provenance of a number."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"Apple {platform.machine()} (MPS)"
    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'' if threads == 1 else 's'}"


def usable_cores() -> int:
    """The cores that this process may use, which a scheduler may have made fewer."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def best_device(wish: str) -> torch.device:
    """The device that was wished for; `auto` takes CUDA, then Apple's MPS, then the CPU."""
    there = ["cuda"] if torch.cuda.is_available() else []
    there += ["mps"] if torch.backends.mps.is_available() else []
    there.append("cpu")
    if wish == "auto":
        return torch.device(there[0])
    if wish.split(":")[0] not in there:
        raise UserError(f"device={wish!r}: this machine does not have it; use auto or {' or '.join(there)}.")
    return torch.device(wish)


def exact_device(device: torch.device) -> torch.device:
    """The device, or the CPU in place of one that knows no float64, as Apple's MPS."""
    return torch.device("cpu") if device.type == "mps" else device


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Send a host tensor without waiting: CUDA copies asynchronously only from pinned memory."""
    if device.type == "cuda":
        host = host.pin_memory()
    return host.to(device, non_blocking=True)


@contextmanager
def threads_kept() -> Iterator[None]:
    """Torch has as many threads afterwards as before."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """For small work on the CPU: waking other threads costs more than they do, most of all on a busy machine."""
    with threads_kept():
        torch.set_num_threads(1)
        yield


def seconds_by_threads(work: Callable[[], object], most: int) -> dict[int, float]:
    """How long a piece of work takes with one thread, with half of the most, and with all: without the first call."""
    found = {}
    for n in sorted({1, max(1, most // 2), most}):
        torch.set_num_threads(n)
        times: list[float] = []
        while len(times) < 4 and sum(times) < TIMED_S:
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        found[n] = mean(times[1:] or times)
    return found


def available_memory(device: torch.device) -> int:
    """Bytes that are free on a device; for the CPU, what this process may still take of the machine's."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [_free_by_system(), *_free_by_group()]
    return max(0, min(limits)) if device.type == "cpu" else max(0, min(limits)) // 4  # MPS shares with the CPU


def _free_by_system() -> int:
    file = Path("/proc/meminfo")
    lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    for name, kilobytes, *_ in lines:
        if name == "MemAvailable:":
            return int(kilobytes) * 1024
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 4 * 2**30  # a guess that a laptop of today can keep


def _free_by_group() -> list[int]:
    """What the limits of the containers around this process leave, if there are any; page cache counts as free."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        nested = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), "/")
    except OSError:
        return []
    free = []
    group = Path("/sys/fs/cgroup") / nested.lstrip("/")
    for folder in (group, *group.parents):
        try:
            limit, used = (int((folder / f"memory.{what}").read_text()) for what in ("max", "current"))
            cache = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            free.append(limit - used + sum(int(cache.get(kind, 0)) for kind in RECLAIMED))
        except (OSError, ValueError):  # no limit reads "max"
            continue
    return free


def provenance(hardware: str) -> dict[str, Any]:
    """Who made a number: commit, versions, machine."""
    versions = {"logo-ssl": __version__, "python": platform.python_version()}
    versions |= {package: version(package) for package in PACKAGES}
    return {"commit": commit(), "versions": versions, "hardware": hardware, "platform": platform.platform()}


def commit() -> str:
    """The commit of this checkout, marked when files were changed since; where there is none, $LOGO_COMMIT's or, of an
    installed package, that which it was built from."""
    package = Path(__file__).resolve().parents[1]
    try:
        if Path(_git(package, "rev-parse", "--show-toplevel")) / "src" / package.name != package:
            raise OSError("installed inside somebody else's checkout")
        changed = "+changes" if _git(package, "status", "--porcelain", "--untracked-files=no") else ""
        return _git(package, "rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        built = package / "COMMIT"
        known = built.read_text().strip() if built.is_file() else f"release {__version__}"
        return os.environ.get("LOGO_COMMIT", known)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
