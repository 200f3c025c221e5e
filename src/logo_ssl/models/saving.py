"""Weights as safetensors: the same weights always as the same bytes."""

import json
from collections.abc import Mapping

import safetensors.torch
from torch import Tensor

LENGTH = 8
"""Bytes that tell how long the head is, and what its length is a multiple of."""


def plain_weights(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of a network, or some of it, as a file takes it."""
    return {name: value.detach().cpu().contiguous() for name, value in weights.items()}


def weight_bytes(weights: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a file; what it tells of itself is sorted, where the library shuffles it."""
    content = safetensors.torch.save(dict(weights), dict(metadata))
    end = LENGTH + int.from_bytes(content[:LENGTH], "little")
    head = json.loads(content[LENGTH:end]) | {"__metadata__": dict(sorted(metadata.items()))}
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % LENGTH)
    return b"".join((len(text).to_bytes(LENGTH, "little"), text, memoryview(content)[end:]))
