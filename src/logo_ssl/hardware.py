"""What does it run on? The device by its name."""

import platform

import torch


def hardware(device: torch.device) -> str:
    """Words for the provenance of a number."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"Apple {platform.machine()} (MPS)"
    return f"CPU, {torch.get_num_threads()} threads"


def best_device(wish: str) -> torch.device:
    """The device that was wished for; `auto` takes CUDA, then Apple's MPS, then the CPU."""
    if wish != "auto":
        return torch.device(wish)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
