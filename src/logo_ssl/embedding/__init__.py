"""What a pretrained encoder is used for: loading it elsewhere, features of images, search, export."""

from .embeddings import Embeddings, embed
from .exporting import Exported, export
from .module import Transform, load
from .searching import Neighbour, search

__all__ = ["Embeddings", "Exported", "Neighbour", "Transform", "embed", "export", "load", "search"]
