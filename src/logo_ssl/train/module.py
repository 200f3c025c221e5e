"""Algorithm 1 as a Lightning module: crops, one encoder forward and backward, the regressor's step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ..augment import make_crops
from ..augself import AugSelf
from ..frameworks import Framework
from ..models.batch_norm import average_statistics
from ..recipes import Recipe
from ..strategies import Strategy
from ..system.distributed import all_mean, gather_objects, index_device, local_slice, rank, world_size
from ..system.hardware import to_device
from ..system.randomness import global_streams, seed_global_streams, set_global_streams, stream
from ..types import Crops, ImageBatch, Latent, Objective, PerImage, Projections, Roles, Similarity
from .optim import (
    StartingWeights,
    encoder_optimiser,
    is_frozen,
    is_fused,
    planned_step,
    rate_at,
    set_learning_rate,
    weight_decay_at,
)


class NonFiniteGuard(nn.Module):
    """Leaves out a step whose gradient is not finite, without waiting for the device.

    Fused optimisers leave it out themselves; for others its gradient counts as 0, and momentum and decay go on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(3), persistent=False)
        """All, those in a row up to now, and the most in a row."""
        self.broken: Tensor
        self.register_buffer("broken", torch.zeros(()), persistent=False)
        """1 if the encoder's step is to be left out."""

    def check(self, gradients: list[Tensor], regressor_broken: Tensor, fused: bool) -> None:
        """Note whether the encoder's gradients are finite, and make them 0 if not; count it, and the regressor's."""
        broken = ~get_total_norm(gradients).isfinite()
        self.broken.copy_(broken)
        for gradient in () if fused else gradients:  # a kernel each: 1.5 % of a step
            gradient.masked_fill_(broken, 0)
        broken = broken | regressor_broken
        skipped, in_a_row, most = self.counts
        in_a_row = (in_a_row + 1) * broken
        self.counts.copy_(torch.stack((skipped + broken, in_a_row, torch.maximum(most, in_a_row))))

    def terms(self) -> dict[str, Tensor]:
        """The counts, for the log."""
        skipped, _, most_in_a_row = self.counts
        return {"skipped": skipped, "skipped_in_a_row": most_in_a_row}


class Pretraining(L.LightningModule):
    """A framework, a strategy, and the step that trains both from one encoder forward and one encoder backward."""

    def __init__(
        self,
        recipe: Recipe,
        framework: Framework,
        strategy: Strategy,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        n_images: int,
        labels: Tensor | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.recipe, self.framework, self.strategy = recipe, framework, strategy
        self.batch_size = min(recipe.batch_size, n_images)
        self.steps_per_epoch = n_images // self.batch_size
        self.mean, self.std, self.labels, self.say = mean, std, labels, say
        inner = {id(parameter) for parameter in strategy.inner_parameters()}
        self._ddp_params_and_buffers_to_ignore = [
            f"strategy.{name}" for name, parameter in strategy.named_parameters() if id(parameter) in inner
        ]
        """Where DDP looks: theta_d gets no gradient from the one backward that it sees."""
        self.start = StartingWeights(framework.encoder.backbone) if recipe.optimiser.pull else None
        self.augself = None
        if recipe.augself.weights:
            self.augself = AugSelf(recipe.augself, getattr(framework.encoder.backbone, "num_features"))  # noqa: B009
        framework.encoder.keeps_features = self.augself is not None or recipe.strategy_traits.uses_features
        if layer := recipe.strategy_traits.uses_feature_maps:
            framework.encoder.keep_maps(layer)
        self.compiled = False
        self.data_identity: dict[str, Any] = {}
        """Number and fingerprint of the images: a run goes on with the same ones alone."""
        self.streams: dict[str, Any] | None = None
        self.resumed_at = 0
        self.guard = NonFiniteGuard()
        self.learn: Callable[[Crops, Any, Tensor], tuple[Projections, dict[str, Tensor]]] = self.algorithm_1
        self.logged: dict[str, Tensor] = {}
        self.lr = 0.0
        self.z: Latent | None = None

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.recipe.epochs

    @property
    def kept(self) -> list[str]:
        """What a run keeps beside the backbone, by name."""
        parts = {"framework": self.framework, "strategy": self.strategy}
        return [f"{name}.{head}" for name, part in parts.items() for head in part.kept]

    @property
    def bf16(self) -> bool:
        """Whether the encoder runs in bfloat16."""
        if self.recipe.precision == "auto":
            return self.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return self.recipe.precision == "bf16"

    def training_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """One step: draw (every process for the whole batch, so that their number changes nothing), crop, learn."""
        draws = stream(self.recipe.seed, "step", self.global_step, 0)
        crops = self.crop(batch, draws)  # x~ from tau^g and tau^l
        self.learn_from(crops, self.strategy.draw(len(batch.pixels) * world_size(), draws))

    def crop(self, batch: ImageBatch, draws: torch.Generator) -> Crops:
        """The crops of a batch by the recipe's plan."""
        return self.draw_crops(batch, draws, compiled=self.compiled)

    def trial(self, batch: ImageBatch, *, compiled: bool = False) -> Tensor:
        """A loss to differentiate that all crops and networks have a part in."""
        draws = stream(0, "trial")
        crops = self.draw_crops(batch, draws, compiled=compiled)
        randomness = self._on_this_device(self.strategy.draw(len(batch.pixels) * world_size(), draws))
        p = self._projections(crops, torch.zeros((), device=self.device))
        with tensor_float_32(self.bf16):
            inner = self.strategy.inner(_detached(p), randomness)
            outer = self.strategy.outer(self.framework.similarity, p, randomness, self._theta_e())
        return outer.loss if inner is None else outer.loss + inner.loss

    def draw_crops(self, batch: ImageBatch, draws: torch.Generator, *, compiled: bool) -> Crops:
        """This process's part of a batch's crops, with the labels of the images that are shown."""
        crops = make_crops(
            batch.pixels,
            self.recipe.crops,
            draws,
            self.mean,
            self.std,
            sizes=batch.sizes,
            part=(rank(), world_size()),
            compiled=compiled,
            described=self.augself is not None or self.recipe.strategy_traits.uses_parameters,
            dtype=torch.bfloat16 if self.bf16 else torch.float32,  # what the first layer would round them to
        )
        if self.labels is None or batch.rows is None:
            return crops
        labels = torch.where(batch.rows >= 0, self.labels[batch.rows], -1)
        return crops._replace(labels=to_device(labels, crops.x_g.device))

    def learn_from(self, crops: Crops, randomness: Any) -> None:
        """Learn by Algorithm 1, and let the state of framework and strategy follow."""
        place, last = planned_step(self.recipe, self.global_step, self.steps_per_epoch)
        progress = place / last
        p, self.logged = self.learn(
            crops, self._on_this_device(randomness), to_device(torch.tensor(progress), self.device)
        )
        self.lr = self._step_encoder()
        self.framework.after_step(p, progress)
        self.strategy.after_step(p, progress)
        average_statistics(self.framework)
        self.z = p.z_g[0]

    def algorithm_1(self, crops: Crops, randomness: Any, progress: Tensor) -> tuple[Projections, dict[str, Tensor]]:
        """Algorithm 1: encode, argmax over theta_d, gradient over theta_e; what was projected and measured."""
        p = self._projections(crops, progress)  # z = f_theta_e(x~)
        _check_shapes(p, crops, self.strategy.roles)
        detached = _detached(p)
        inner, broken = None, torch.zeros((), dtype=torch.bool, device=self.device)
        with tensor_float_32(self.bf16):
            for _ in range(self.strategy.inner_steps):
                inner = self.strategy.inner(detached, randomness)  # Eqs. 6 and 7
                broken = broken | self._update_regressor(inner)
            outer = self.strategy.outer(
                _checked(self.framework.similarity), p, randomness, self._theta_e()
            )  # Eqs. 3-5, 8 and 9
            if self.augself is not None:
                outer = self._with_augself(outer, p)
            if outer.loss.shape != () or not outer.loss.requires_grad:
                raise ValueError(
                    f"outer gives a loss of shape {tuple(outer.loss.shape)}; give a scalar with a gradient"
                )
            optimiser = self._encoder_optimiser()
            optimiser.zero_grad()
            self.manual_backward(outer.loss)
        gradients = [theta.grad for theta in self._trained() if theta.grad is not None]
        self.guard.check(gradients, broken, is_fused(optimiser.optimizer))

        terms = {"loss": outer.loss, **outer.terms, **(inner.terms if inner else {}), **self.guard.terms()}
        return detached, {name: term.detach() for name, term in terms.items()}

    def _projections(self, crops: Crops, progress: Tensor) -> Projections:
        """All that a strategy may ask for."""
        p = self.project(crops)
        return p._replace(progress=progress, parameters_g=crops.parameters_g, parameters_l=crops.parameters_l)

    def project(self, crops: Crops) -> Projections:
        """What the framework makes of the crops that the strategy asks for, in the precision of training."""
        encoder = self.framework.encoder
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            p = self.framework.project(crops, self.strategy.roles)
        p = p._replace(features_g=encoder.features_g, features_l=encoder.features_l)
        p = p._replace(maps_g=encoder.maps_g, maps_l=encoder.maps_l)
        # Features that outlive a step keep its graph, and with it a warm-up's stream, which no recording may use.
        encoder.features_g = encoder.features_l = encoder.maps_g = encoder.maps_l = None
        return p

    def _update_regressor(self, objective: Objective | None) -> Tensor:
        """One ascent step on Omega; whether its gradient was not finite, and left out.

        Plain autograd: the encoder's backward must stay the only one that DDP sees.
        """
        if objective is None:
            return torch.zeros((), dtype=torch.bool, device=self.device)
        theta_d = self._theta_d()
        gradients = all_mean(torch.autograd.grad(objective.loss, theta_d, allow_unused=True, materialize_grads=True))
        broken = ~get_total_norm(gradients).isfinite()
        for parameter, gradient in zip(theta_d, gradients, strict=True):
            parameter.grad = gradient.masked_fill(broken, 0)
        # Lightning counts the steps of its own wrappers; this one must not count (Lightning issue 17958).
        _, optimiser = self.optimizers(use_pl_optimizer=False)  # type: ignore[misc] (typed as one or many)
        optimiser.step()
        return broken

    def _with_augself(self, outer: Objective, p: Projections) -> Objective:
        """Add the auxiliary objective on the features of the global crops."""
        assert self.augself is not None
        assert p.parameters_g is not None
        assert p.features_g is not None
        other = self.augself(p.features_g, p.parameters_g)
        return Objective(outer.loss + other.loss, outer.terms | other.terms)

    def _step_encoder(self) -> float:
        """One descent step on Eq. 9; gives back the learning rate."""
        config = self.recipe.optimiser
        lr = rate_at(self.recipe, self.global_step, self.steps_per_epoch)
        optimiser = self._encoder_optimiser()
        weight_decay = weight_decay_at(self.recipe, self.global_step, self.steps_per_epoch)
        frozen = is_frozen(self.recipe, self.global_step, self.steps_per_epoch)
        set_learning_rate(optimiser.optimizer, lr, config.lr, weight_decay, frozen=frozen)
        if config.clip:
            torch.nn.utils.clip_grad_norm_(self._trained(), config.clip)
        if is_fused(optimiser.optimizer):
            setattr(optimiser.optimizer, "found_inf", self.guard.broken)  # noqa: B010 (as torch's GradScaler does)
        optimiser.step()
        if self.start is not None and not frozen:
            self.start.pull(self.framework.encoder.backbone, min(1.0, lr * config.backbone_lr * config.pull))
        return lr

    def _on_this_device(self, randomness: Any) -> Any:
        """This process's part of what was drawn for the whole batch."""

        def move(x: Tensor) -> Tensor:
            if x.is_floating_point():
                return to_device(local_slice(x, 1), self.device)
            return to_device(x, index_device(self.device))

        return type(randomness)(*(None if x is None else move(x) for x in randomness))

    def _encoder_optimiser(self) -> LightningOptimizer:
        wrapped = self.optimizers()
        return wrapped[0] if isinstance(wrapped, list) else wrapped  # type: ignore[return-value] (wrapped by default)

    def _trained(self) -> list[nn.Parameter]:
        """theta_e, and whatever learns with it."""
        return [p for group in self._encoder_optimiser().param_groups for p in group["params"]]

    def _theta_e(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.framework.encoder.parameters() if parameter.requires_grad]

    def _theta_d(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.strategy.inner_parameters() if parameter.requires_grad]

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One optimiser for theta_e and what else `outer` trains and, where there is a regressor, one for theta_d."""
        theta_d = self._theta_d()
        inner = {id(parameter) for parameter in theta_d}
        others = [] if self.augself is None else list(self.augself.parameters())
        others += [each for each in self.strategy.parameters() if each.requires_grad and id(each) not in inner]
        optimisers = [encoder_optimiser(self.recipe.optimiser, self.framework, others)]
        if theta_d:
            optimisers.append(self.strategy.inner_optimiser(theta_d))
        return optimisers

    def transfer_batch_to_device(self, batch: ImageBatch, device: torch.device, dataloader_idx: int) -> ImageBatch:
        """Leave the batch alone: its pixels are where they should be, and its sizes belong on the CPU."""
        return batch

    def setup(self, stage: str) -> None:
        """Normalise as the first process does: which of the images can be read may differ between machines."""
        self.mean, self.std = gather_objects((self.mean, self.std))[0]

    def on_train_start(self) -> None:
        """Set the random streams and learning rates, which are not weights."""
        if self.streams is None:  # a fresh run, or one of another number of processes
            seed_global_streams(self.recipe.seed, self.resumed_at, rank())
        else:
            set_global_streams(self.streams, self.device)
        self.guard.counts.zero_()
        for optimiser in self.trainer.optimizers[1:]:  # the regressor's
            set_learning_rate(optimiser, self.strategy.inner_lr)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what is no weight."""
        checkpoint |= {
            "recipe": self.recipe.to_json(),
            "data": self.data_identity,
            "steps_per_epoch": self.steps_per_epoch,
            "mean": list(self.mean),
            "std": list(self.std),
            "kept": self.kept,
            "streams": gather_objects(global_streams(self.device)),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back."""
        # images that were lost or came back since change nothing
        self.mean, self.std = tuple(checkpoint["mean"]), tuple(checkpoint["std"])
        streams = checkpoint["streams"]
        self.streams = streams[rank()] if len(streams) == world_size() else None
        self.resumed_at = checkpoint["global_step"]


@contextmanager
def tensor_float_32(wanted: bool) -> Iterator[None]:
    """Products of float32 on a GPU's tensor cores: their rounding is smaller than that of bf16 latents (0014)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if wanted else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _detached(p: Projections) -> Projections:
    return Projections(*(x.detach() if isinstance(x, Tensor) else x for x in p))  # type: ignore[arg-type] (None stays)


def _check_shapes(p: Projections, crops: Crops, roles: Roles) -> None:
    """ValueError for projections without a row for each crop, or a column for each image."""
    n_images, n_local = crops.x_g.shape[1], len(crops.x_l)
    rows = {"z_g": len(p.z_g), "q_g": len(roles.queries), "t_g": len(roles.targets)}
    for name, n in (rows | ({"z_l": n_local, "q_l": n_local} if n_local else {})).items():
        if (shape := tuple(getattr(p, name).shape))[:2] != (n, n_images):
            raise ValueError(f"project gives {name} of shape {shape}; give ({n} crops, {n_images} images, dim)")


def _checked(similarity: Similarity) -> Similarity:
    """The similarity; ValueError if it does not give one loss for each image."""

    def losses(q: Latent, t: Latent) -> PerImage:
        given = similarity(q, t)
        if given.shape != q.shape[:1]:
            raise ValueError(f"similarity gives shape {tuple(given.shape)}; give one loss for each of {len(q)} images")
        return given

    return losses
