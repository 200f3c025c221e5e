"""How does an encoder learn? The step, its optimisers, its monitors, and the run around them."""

from .building import build
from .module import Pretraining
from .pretrain import pretrain, resume
from .weights import load_backbone

__all__ = ["Pretraining", "build", "load_backbone", "pretrain", "resume"]
