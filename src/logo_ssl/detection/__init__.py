"""How well does an encoder detect and segment objects? Pictures with boxes, a detector on the encoder, and its AP."""

from .pictures import Picture, PictureSet
from .sources import Detection, load_detection

__all__ = ["Detection", "Picture", "PictureSet", "load_detection"]
