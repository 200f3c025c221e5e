"""Which weights are these, and which images? Hashes that agree on every machine."""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ..data import Photos

FILES_READ = 64  # evenly spread: files of equal size, as of uncompressed images, differ in what they hold


def weights_fingerprint(weights: Mapping[str, Tensor], *architecture: object) -> str:
    """sha256 over what the network is (strides have no weights), and the names, types, shapes and bytes in it."""
    digest = hashlib.sha256(repr(architecture).encode())
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def data_fingerprint(images: Tensor | Photos) -> str:
    """sha256 over the bytes of an array; over names and sizes of all files and the bytes of some, none decoded."""
    if isinstance(images, Tensor):
        digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)} ".encode())
        for part in images.split(max(1, 2**26 // max(1, images[0].nbytes))):  # a view may need a copy: bounded
            digest.update(_bytes(part.cpu().contiguous()))
        return digest.hexdigest()
    if not isinstance(images, Photos):
        raise TypeError(f"images are {type(images).__name__}")
    digest = hashlib.sha256(f"{len(images)} files\n".encode())
    read = set(np.linspace(0, len(images) - 1, FILES_READ).astype(int).tolist())
    for row in range(len(images)):
        try:
            digest.update(f"{images.name(row)}\n{images.size(row)}\n".encode(errors="surrogateescape"))
            if row in read:
                digest.update(images.read(row))
        except OSError:  # gone or unreadable; extraction will say so
            digest.update(b"unreadable\n")
    return digest.hexdigest()


def _bytes(value: Tensor) -> memoryview:
    """The memory of a contiguous tensor; numpy knows no bfloat16, but bytes."""
    return value.reshape(-1).view(torch.uint8).numpy().data
