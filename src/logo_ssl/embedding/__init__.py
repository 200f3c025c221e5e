"""What a pretrained encoder is used for: loading it elsewhere, features of images, search, export."""

from .embeddings import Embeddings, embed
from .exporting import Exported, export
from .index import Neighbour, search
from .module import Transform, load

__all__ = ["Embeddings", "Exported", "Neighbour", "Transform", "embed", "export", "load", "search"]
