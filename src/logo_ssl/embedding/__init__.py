"""What is a pretrained encoder good for? Loading it elsewhere, features of images, search, export."""

from .embedding import Embeddings, embed
from .exporting import Exported, export
from .loading import Transform, load
from .searching import Neighbour, search

__all__ = ["Embeddings", "Exported", "Neighbour", "Transform", "embed", "export", "load", "search"]
