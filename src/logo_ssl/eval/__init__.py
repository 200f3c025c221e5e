"""Evaluation of encoders: the registry of the protocols of `logo-ssl eval`. Nothing large is imported."""

from typing import Literal, NamedTuple


class Protocol(NamedTuple):
    """A protocol: its line of help, its command, and what the report reads from its results."""

    about: str
    command: str
    """The class of its options, "module:Class", whose `run` measures and shows."""
    figure: Literal["top1", "value", "AP"]


PROTOCOLS = {
    "knn": Protocol("weighted nearest neighbours on frozen features", "eval.knn:KNN", "top1"),
    "linear": Protocol("a linear classifier on frozen features", "eval.linear:Linear", "top1"),
    "transfer": Protocol(
        "logistic regression on frozen features of other data sets", "eval.transfer:Transfer", "value"
    ),
    "multilabel": Protocol(
        "logistic regression for each class of images that have several", "detection.multilabel:Multilabel", "value"
    ),
    "finetune": Protocol("all weights trained with all labels", "eval.finetune:FineTune", "top1"),
    "semi": Protocol("all weights trained with few labels", "eval.finetune:Semi", "top1"),
    "detect": Protocol("object detection with the encoder as backbone", "detection.evaluate:Detect", "AP"),
    "segment": Protocol("instance segmentation with the encoder as backbone", "detection.evaluate:Segment", "AP"),
}
