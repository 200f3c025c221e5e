"""The NamedTuples that travel between the stages, with their shapes.

V crops of one kind (G global, L local), B images, C channels, H x W pixels, D latent dimensions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from jaxtyping import Float, Int, UInt8
from torch import Tensor

Images: TypeAlias = UInt8[Tensor, "B C H W"]
CropStack: TypeAlias = Float[Tensor, "V B C H W"]
Latents: TypeAlias = Float[Tensor, "V B D"]
Latent: TypeAlias = Float[Tensor, "B D"]
PerImage: TypeAlias = Float[Tensor, " B"]
Scalar: TypeAlias = Float[Tensor, ""]

Similarity: TypeAlias = Callable[[Latent, Latent], PerImage]
"""l_s: a loss for each image, from what one crop asks and what another answers."""

Affinity: TypeAlias = Callable[[Float[Tensor, "N D"], Float[Tensor, "N D"]], Float[Tensor, " N"]]
"""f_theta_d, or l_a: how alike two latents are, pair by pair."""


class Crops(NamedTuple):
    """The augmented views of a batch: x~^g and x~^l."""

    x_g: Float[Tensor, "G B C H W"]
    x_l: Float[Tensor, "L B C h w"]
    labels: Int[Tensor, " B"] | None = None
    """Only where labels teach: in supervised learning."""
    parameters_g: Float[Tensor, "G B 9"] | None = None
    """What was done to each global crop, if something learns from it: box, colour and flip (`augment.describe`)."""
    parameters_l: Float[Tensor, "L B 9"] | None = None
    """The same of each local crop."""


class ImageBatch(NamedTuple):
    """Images in the top left corners of equal canvases."""

    pixels: Images
    sizes: Int[Tensor, "B 2"] | None = None
    """Height and width of each, on the CPU; None where all fill their canvas."""
    rows: Int[Tensor, " B"] | None = None
    """Which images of the data set are really shown, on the CPU: others where some cannot be read, -1 for none."""


class Roles(NamedTuple):
    """Which global crops ask (rows of q_g), which answer (rows of t_g), and who asks whom, as (row, row)."""

    queries: tuple[int, ...]
    targets: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]


class Projections(NamedTuple):
    """What a framework makes of the crops: latents z, queries q = h(z) or z, and targets t, the paper's sg(z^g).

    Rows of z_g are the global crops that the encoder saw: all, or only those that ask when a momentum encoder answers.
    The step adds the rest, some of it only if the strategy's config asks for it (`StrategyTraits`).
    """

    z_g: Float[Tensor, "encoded B D"]
    z_l: Float[Tensor, "L B D"]
    q_g: Float[Tensor, "Q B P"]
    """As wide as the latents, or as there are prototypes."""
    q_l: Float[Tensor, "L B P"]
    t_g: Float[Tensor, "T B P"]
    progress: Scalar | None = None
    """Of training, from 0 to 1."""
    features_g: Float[Tensor, "encoded B F"] | None = None
    """Before the projector, if `uses_features`."""
    features_l: Float[Tensor, "L B F"] | None = None
    parameters_g: Float[Tensor, "G B 9"] | None = None
    """As in `Crops`, if `uses_parameters`: of all global crops."""
    parameters_l: Float[Tensor, "L B 9"] | None = None
    maps_g: Float[Tensor, "encoded B C H W"] | None = None
    """What the layer of the backbone gives that `uses_feature_maps` names."""
    maps_l: Float[Tensor, "L B C h w"] | None = None
    extra: Any = None
    """What a framework of one's own hands to a strategy of one's own."""


class StepRandomness(NamedTuple):
    """What LoGo draws for one step, before anything is computed; another strategy may draw a NamedTuple of its own.

    Whole numbers are places in the batch of all processes; others belong to images, along their second dimension, and
    each process gets its own.
    """

    inner_partner: Int[Tensor, " B"] | None = None
    """Another image for each image, in the regressor's step (Eq. 6)."""
    outer_partner: Int[Tensor, " B"] | None = None
    """The same in the encoder's step (Eq. 5)."""
    noise: Float[Tensor, "L B D"] | None = None
    """Standard normal numbers."""


class Objective(NamedTuple):
    """A loss to minimise, and the named parts of it that the log shows."""

    loss: Scalar
    terms: dict[str, Scalar]
