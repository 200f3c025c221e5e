"""Where do features wait to be used again? In files of a cache that is bounded, written whole, and never trusted."""

import os
import zlib
from contextlib import suppress
from pathlib import Path

import safetensors
import safetensors.torch
from jaxtyping import Float
from torch import Tensor

from ..files import write

MOST_BYTES = 20 * 10**9  # holds ImageNet's 1.3 million images at 2048 features (10.6 GB), and more
SUFFIX = ".safetensors"


def cache_folder() -> Path:
    """$LOGO_CACHE, or a folder in the user's cache."""
    return Path(os.environ.get("LOGO_CACHE") or "~/.cache/logo-ssl/features").expanduser()


class Store:
    """Tensors by name in a folder; beyond `most_bytes`, those that were not used for longest are removed."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    def load(self, name: str, n_rows: int) -> Float[Tensor, "N F"] | None:
        """The tensor of that name, if it is there, whole, and has so many rows."""
        path = self.folder / f"{name}{SUFFIX}"
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                features, expected = file.get_tensor("features"), (file.metadata() or {}).get("crc32")
        except (OSError, safetensors.SafetensorError):
            return None
        if expected != _checksum(features) or features.dim() != 2 or len(features) != n_rows:
            return None
        with suppress(OSError):  # in a cache of others, who see to it themselves
            os.utime(path)  # it was of use
        return features

    def save(self, name: str, features: Float[Tensor, "N F"]) -> None:
        """Keep a tensor; OSError when the disk refuses."""
        features = features.contiguous()
        content = safetensors.torch.save({"features": features}, {"crc32": _checksum(features)})
        write(self.folder / f"{name}{SUFFIX}", content)
        self._forget()

    def _forget(self) -> None:
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another process forgets, too
                continue
            files.append((status.st_mtime, status.st_size, path))
        kept = 0
        for _, size, path in sorted(files, reverse=True):
            kept += size
            if kept > self.most_bytes:
                path.unlink(missing_ok=True)


def _checksum(features: Tensor) -> str:
    return f"{zlib.crc32(features.numpy().data):08x}"
