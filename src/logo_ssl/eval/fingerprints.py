"""Which weights are these? A hash of what is in them."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def weights_fingerprint(weights: Mapping[str, Tensor], *architecture: object) -> str:
    """sha256 over what the network is (strides have no weights), and the names, types, shapes and bytes in it."""
    digest = hashlib.sha256(repr(architecture).encode())
    for name in sorted(weights):
        value = weights[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)} ".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)  # numpy knows no bfloat16, but bytes
    return digest.hexdigest()
