"""The base class of frameworks, and what their configs answer."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import nn

from ..models import Encoder, Teacher
from ..types import Crops, Latent, PerImage, Projections, Roles


class FrameworkTraits(NamedTuple):
    """What others ask of a framework's config.

    It answers by a field, a property or a `ClassVar` of the same name; where it has none, the default here holds.
    """

    teacher: str = ""
    """The frozen encoder that answers, where one does: `Framework.take_teacher` is given it."""
    labelled: bool = False
    """Whether labels teach. Its field `dim` becomes the number of classes."""
    least_global: int = 2
    """The fewest global crops that it can compare."""
    queue: int = 0
    """How many keys of earlier steps it compares with. A field: it is cut to half of the images."""
    splits: int = 1
    """Into how many parts a batch should divide evenly."""
    constant_lr: bool = True
    """Whether a predictor keeps its learning rate while the rest decays; latents may collapse where it does not."""
    sharpness: str = ""
    """The field to lower if targets become even, so that nothing is learned."""

    @classmethod
    def of(cls, config: object) -> "FrameworkTraits":
        """What a config says of itself."""
        return cls(**{name: getattr(config, name) for name in cls._fields if hasattr(config, name)})


class Framework(nn.Module, ABC):
    """An encoder, a similarity loss, and whatever answers: a momentum encoder, a queue, or the encoder itself."""

    encoder: Encoder
    kept: tuple[str, ...] = ("encoder.net.projector", "h")
    """What a run keeps beside the backbone: names of networks, parameters or buffers. `h`, a predictor, need not be."""

    @property
    def final_encoder(self) -> Encoder:
        """What is measured, and kept in the end; a framework may prefer its momentum encoder."""
        return self.encoder

    def take_teacher(self, teacher: Teacher) -> None:
        """Take the encoder that the config calls `teacher`, when training begins or goes on."""
        raise NotImplementedError

    @abstractmethod
    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """l_s(q, t). Pure: a strategy calls it once per pair of crops, so it may change nothing."""

    @abstractmethod
    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Latents, queries and targets of a batch; `roles` says which global crops ask and which answer."""

    def after_step(self, p: Projections, progress: float) -> None:
        """Move the framework's own state (queue, momentum encoder); `progress` runs from 0 to 1 over training."""

    def constant_lr_parameters(self) -> list[nn.Parameter]:
        """Parameters whose learning rate does not decay."""
        return []
