"""LoGo: self-supervised pretraining of image encoders with local and global crops."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .embedding.comparing import compare as compare
    from .embedding.embeddings import embed as embed
    from .embedding.exporting import export as export
    from .embedding.finetuning import finetune as finetune
    from .embedding.module import load as load
    from .embedding.module import load_classifier as load_classifier
    from .embedding.scikit_learn import LoGoFeatures as LoGoFeatures
    from .embedding.searching import search as search
    from .predicting import predict as predict
    from .recipes import RECIPES as RECIPES
    from .recipes import Recipe as Recipe
    from .run import Run as Run
    from .train import pretrain as pretrain
    from .train import resume as resume
    from .weights import load_backbone as load_backbone

# Imported when first used: `logo-ssl --version` and the report need no torch.
_HOMES = {
    "LoGoFeatures": "embedding.scikit_learn",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "Run": "run",
    "compare": "embedding.comparing",
    "embed": "embedding.embeddings",
    "export": "embedding.exporting",
    "finetune": "embedding.finetuning",
    "load": "embedding.module",
    "load_backbone": "weights",
    "load_classifier": "embedding.module",
    "predict": "predicting",
    "pretrain": "train",
    "resume": "train",
    "search": "embedding.searching",
}
__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
