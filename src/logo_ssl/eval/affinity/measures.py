"""How alike are two crops, by the run's learned measure and by cosine? Both on projected latents, in eval mode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor, nn

from ...augment import CropPlan, draw_boxes
from ...augment.transforms import normalise, resized_crop
from ...errors import UserError
from ...hardware import best_device
from ...recipes import flat, read_recipe
from ...regressor import Regressor
from ...run import Run
from ...train.weights import build_heads, load_heads
from ..encoders import FrozenEncoder, load_encoder
from ..extraction import exactly

MEASURES = ("learned", "cosine")
PAIRS = 2**15  # that the regressor sees at a time
CROPS = 256  # that the encoder sees at a time


class Seen(NamedTuple):
    """What the encoder makes of N crops."""

    features: Float[Tensor, "N F"]
    z: Float[Tensor, "N D"]


@dataclass(frozen=True)
class Measures:
    """Encoder, projector and regressor of a run, and how its local crops are cut."""

    encoder: FrozenEncoder
    projector: nn.Module
    regressor: Regressor
    plan: CropPlan
    device: torch.device

    def draw(self, image: UInt8[Tensor, "C H W"], n: int, generator: Generator) -> Int[Tensor, "n 4"]:
        """Boxes (top, left, height, width) of n local crops, drawn as in training."""
        return draw_boxes(n, (image.shape[1], image.shape[2]), self.plan.local_scale, self.plan.ratio, generator)

    def cut(self, image: UInt8[Tensor, "C H W"], boxes: Int[Tensor, "n 4"]) -> Float[Tensor, "n C s s"]:
        """The crops as they are: neither mirrored nor recoloured, in [0, 1]."""
        return resized_crop(image[None], boxes.float(), self.plan.local_size)

    @torch.no_grad()
    def see(self, crops: Float[Tensor, "N C s s"]) -> Seen:
        """Features and latents of crops, on the CPU."""
        found = []
        for batch in crops.split(CROPS):
            with exactly():
                features = self.encoder.backbone(
                    normalise(batch.to(self.device), self.encoder.mean, self.encoder.std)
                ).float()
                found.append((features.cpu(), self.projector(features).cpu()))
        features, z = (torch.cat(part) for part in zip(*found, strict=True))
        if not z.isfinite().all():
            raise UserError(f"{self.encoder.name} gives latents that are not finite; train it again.")
        return Seen(features, z)

    def boxes_seen(self, image: UInt8[Tensor, "C H W"], boxes: Int[Tensor, "n 4"]) -> Seen:
        """Features and latents of parts of an image."""
        return self.see(self.cut(image, boxes))

    @torch.no_grad()
    def affinities(
        self, references: Float[Tensor, "R D"], others: Float[Tensor, "N D"]
    ) -> dict[str, Float[np.ndarray, "R N"]]:
        """Each reference against each of the others, by each measure."""
        learned = torch.empty(len(references), len(others))
        rows = max(1, PAIRS // len(others))
        answers = others.to(self.device)
        for begin in range(0, len(references), rows):
            asks = references[begin : begin + rows].to(self.device)
            pairs = asks.repeat_interleave(len(answers), dim=0), answers.repeat(len(asks), 1)
            learned[begin : begin + rows] = self.regressor(*pairs).view(len(asks), -1).cpu()
        cosine = F.normalize(references, dim=1) @ F.normalize(others, dim=1).T
        return {"learned": learned.numpy(), "cosine": cosine.numpy()}


def load_measures(run: Run, device: str = "auto") -> Measures:
    """The measures of a run that learned one; of an unfinished run, those of its newest checkpoint."""
    return measures_of(run, load_encoder(str(run.path)), device)


def measures_of(run: Run, encoder: FrozenEncoder, device: str = "auto") -> Measures:
    """The measures that belong to a run's encoder."""
    recipe, place = read_recipe(run), best_device(device)
    backbone = encoder.backbone.cpu()
    try:
        if encoder.heads is None:
            projector, regressor = load_heads(run, backbone)
        else:
            projector, regressor = build_heads(recipe, encoder.heads, backbone)
    except (safetensors.SafetensorError, RuntimeError, KeyError, TypeError) as error:
        where = run.checkpoints if encoder.heads else run.heads_file
        raise UserError(f"{where} holds no whole heads ({error}); train it or copy it again.") from error
    if regressor is None:
        settings = flat(recipe)
        raise UserError(
            f"{run.path} has no regressor, since it was trained with --strategy {settings['strategy.kind']}"
            f"{_cosine(settings)}; give a run that learned its affinity (--strategy logo)."
        )
    parts = backbone, projector, regressor
    for part in parts:
        part.to(place).requires_grad_(False)
    return Measures(encoder, projector, regressor, recipe.crops, place)


def normalised(values: Sequence[float] | Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """From 0, the least alike, to 1, the most alike of what is shown together; all 0 where all are equal."""
    array = np.asarray(values, dtype=float)
    low, high = array.min(), array.max()
    return (array - low) / (high - low) if high > low else np.zeros_like(array)


def _cosine(settings: dict[str, Any]) -> str:
    return " --strategy.affinity cosine" if settings.get("strategy.affinity") == "cosine" else ""
