"""How far may a share of some images lie from that of all, by the choice of these images alone?"""

import math


def standard_error(value: float, n_images: int) -> float:
    """Of a percentage; all or none of a few is taken for half an image less or more, since it is no certainty."""
    share = min(max(value / 100, 0.5 / n_images), 1 - 0.5 / n_images)
    return 100 * math.sqrt(share * (1 - share) / n_images)


class Share(float):
    """A percentage of so many images: the number that it is, which also knows how far chance may have moved it."""

    n_images: int

    def __new__(cls, value: float, n_images: int) -> "Share":
        """The percentage, and of how many."""
        share = super().__new__(cls, value)
        share.n_images = n_images
        return share

    def __reduce__(self) -> tuple[type["Share"], tuple[float, int]]:
        """A copy needs both."""
        return Share, (float(self), self.n_images)

    @property
    def standard_error(self) -> float:
        """By the choice of these images."""
        return standard_error(self, self.n_images)


def with_error(value: float) -> str:
    """92.16 ± 0.27; what is no share of some images, without."""
    return f"{value:.2f} ± {value.standard_error:.2f}" if isinstance(value, Share) else f"{value:.2f}"
