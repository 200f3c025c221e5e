"""How large is a picture shown? In training each at a scale by chance, in a test all at one; then side by side.

What is found in it is brought back to the picture as it was.

torchvision would send its mean, its deviation and four numbers for each picture's boxes to the device one by one, and
wait for each.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from .draws import Draws
from .pasting import pasted
from .recipe import DetectorConfig

Target = dict[str, Tensor]


class Scales(GeneralizedRCNNTransform):
    """Normalises, resizes and stacks pictures, and moves their boxes and masks along."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: DetectorConfig, mean: list[float], std: list[float], draws: Draws) -> None:
        super().__init__(config.test_side, config.longest, mean, std)
        self.config, self.draws = config, draws
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[ImageList, list[Target] | None]:
        """The pictures as one tensor, each in its upper left corner, and what is in them."""
        shapes = [self.shape(image.shape[1], image.shape[2], self._side(place)) for place, image in enumerate(images)]
        shown = [self._shown(image, shape) for image, shape in zip(images, shapes, strict=True)]
        if targets is not None:
            pairs = zip(images, targets, shapes, strict=True)
            targets = [_moved(target, image.shape[1:], shape) for image, target, shape in pairs]
        return ImageList(self.batch_images(shown, self.size_divisible), shapes), targets

    def postprocess(
        self,
        result: list[dict[str, Tensor]],
        image_shapes: list[tuple[int, int]],
        original_image_sizes: list[tuple[int, int]],
    ) -> list[dict[str, Tensor]]:
        """Boxes and masks [n 1 H W] of what was found, in pixels of the pictures that were given."""
        for found, shown, given in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = _resized(found["boxes"], shown, given)
            if "masks" in found:
                found["masks"] = pasted(found["masks"][:, 0], found["boxes"], *given)[:, None]
        return result

    def shape(self, height: int, width: int, side: int) -> tuple[int, int]:
        """Height and width with that short side, or with the longer one at its limit; whole pixels, rounded."""
        scale = min(side / min(height, width), self.config.longest / max(height, width))
        return max(int(height * scale + 0.5), 1), max(int(width * scale + 0.5), 1)

    def _side(self, place: int) -> int:
        if not self.training:
            return self.config.test_side
        sides = self.config.short_sides
        return sides[int(torch.randint(len(sides), (1,), generator=self.draws.of("side", place)))]

    def _shown(self, image: Shaped[Tensor, "3 H W"], shape: tuple[int, int]) -> Float[Tensor, "3 h w"]:
        pixels = image if image.is_floating_point() else image.float() / 255
        pixels = (pixels - self.mean) / self.std
        shrinks = shape[0] < image.shape[1]
        return F.interpolate(pixels[None], shape, mode="bilinear", align_corners=False, antialias=shrinks)[0]


def _moved(target: Target, before: torch.Size, after: tuple[int, int]) -> Target:
    """Boxes and masks of a picture that was resized."""
    moved = target | {"boxes": _resized(target["boxes"], before, after)}
    if "masks" in target:
        moved["masks"] = F.interpolate(target["masks"][:, None].float(), after)[:, 0].byte()
    return moved


def _resized(boxes: Float[Tensor, "n 4"], before: Sequence[int], after: Sequence[int]) -> Float[Tensor, "n 4"]:
    """Boxes of a picture whose height and width changed."""
    down, across = (new / old for new, old in zip(after, before, strict=True))
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack((left * across, top * down, right * across, bottom * down), 1)
