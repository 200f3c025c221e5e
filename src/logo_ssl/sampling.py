"""How far may a share of some images be from that of all, by the choice of these images alone?"""

import math


def standard_error(value: float, n_images: int) -> float:
    """Of a percentage; all or none of a few is taken for half an image less or more, since it is no certainty."""
    share = min(max(value / 100, 0.5 / n_images), 1 - 0.5 / n_images)
    return 100 * math.sqrt(share * (1 - share) / n_images)
