"""What a pretrained encoder is used for: loading it elsewhere, features of images, search, export."""

from .embed import Embeddings, embed
from .exporting import Exported, export
from .load import Transform, load
from .search import Neighbour, search

__all__ = ["Embeddings", "Exported", "Neighbour", "Transform", "embed", "export", "load", "search"]
