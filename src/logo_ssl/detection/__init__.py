"""Detection and instance segmentation with an encoder as backbone: images with boxes, a detector, average precision."""

from .data import AnnotatedImage, AnnotatedImages, DetectionData, load_detection

__all__ = ["AnnotatedImage", "AnnotatedImages", "DetectionData", "load_detection"]
