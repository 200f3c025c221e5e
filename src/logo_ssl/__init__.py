"""LoGo: self-supervised pretraining of image encoders with local and global crops."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .embedding import embed, export, load, search
    from .embedding.transformer import LoGoFeatures
    from .recipes import RECIPES, Recipe
    from .run import Run
    from .train import load_backbone, pretrain, resume

__all__ = [
    "RECIPES",
    "LoGoFeatures",
    "Recipe",
    "Run",
    "__version__",
    "embed",
    "export",
    "load",
    "load_backbone",
    "pretrain",
    "resume",
    "search",
]

# Imported when first used: `logo-ssl --version` and the report need no torch.
_HOMES = {
    "LoGoFeatures": "embedding.transformer",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "Run": "run",
    "embed": "embedding",
    "export": "embedding",
    "load": "embedding",
    "load_backbone": "train",
    "pretrain": "train",
    "resume": "train",
    "search": "embedding",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
