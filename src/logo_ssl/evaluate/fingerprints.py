"""Which weights are these, and which images? Hashes of what is in them, and stamps that change when files do."""

import hashlib
import os
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from ..data import Photos

FILES_READ = 64  # evenly spread: files of equal names and sizes may differ in what they hold
SEEN_OF_NAME = 2  # parts of a path, the class and the file: where they lie differs between machines


def weights_fingerprint(weights: Mapping[str, Tensor], *architecture: object) -> str:
    """sha256 over what the network is (strides have no weights), and the names, types, shapes and bytes in it."""
    digest = hashlib.sha256(repr(architecture).encode())
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def data_fingerprint(images: Tensor | Photos) -> str:
    """sha256 over the bytes of an array; over names and sizes of all photographs, and the bytes of some.

    It is the same on every machine; whether any file was written anew, `data_stamp` tells.
    """
    if isinstance(images, Tensor):
        digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)} ".encode())
        for part in images.split(max(1, 2**26 // max(1, images[:1].nbytes))):  # a view may need a copy: bounded
            digest.update(_bytes(part.cpu().contiguous()))
        return digest.hexdigest()
    read = set(np.linspace(0, len(images) - 1, FILES_READ).astype(int).tolist())

    def told(row: int) -> bytes:
        parts = images.name(row).replace(os.sep, "/").rsplit("/", SEEN_OF_NAME)[-SEEN_OF_NAME:]
        name = "/".join(parts).encode(errors="surrogateescape")
        return b"%b\n%d\n%b" % (name, images.stamp(row).size, images.read(row) if row in read else b"")

    return _over_files(images, told)


def data_stamp(images: Tensor | Photos) -> str:
    """sha256 over path and stamp of every file, none of them read; empty for an array, whose bytes are known."""
    if isinstance(images, Tensor):
        return ""

    def told(row: int) -> bytes:
        return f"{images.name(row)}\n{tuple(images.stamp(row))}\n".encode(errors="surrogateescape")

    return _over_files(images, told)


def _over_files(photos: Photos, told: Callable[[int], bytes]) -> str:
    digest = hashlib.sha256(f"{len(photos)} files\n".encode())
    for row in range(len(photos)):
        try:
            digest.update(told(row))
        except OSError:  # gone or unreadable; extraction will say so
            digest.update(b"unreadable\n")
    return digest.hexdigest()


def _bytes(value: Tensor) -> memoryview:
    """The memory of a contiguous tensor; numpy knows no bfloat16, but bytes."""
    return value.reshape(-1).view(torch.uint8).numpy().data
