"""Pretraining: the story of a run (`pretrain`), Algorithm 1 (`module`), and what optimises, measures and saves."""

from ..weights import load_backbone
from .build import build
from .module import Pretraining
from .pretrain import pretrain, resume

__all__ = ["Pretraining", "build", "load_backbone", "pretrain", "resume"]
