"""What happens in one step? Algorithm 1, as a Lightning module."""

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ..augment import make_crops
from ..augself import AugSelf
from ..frameworks import Framework
from ..hardware import to_device
from ..models.norm import average_statistics
from ..randomness import global_streams, seed_global_streams, set_global_streams, stream
from ..ranks import averaged, listed, order_device, own, rank, world_size
from ..recipes import Recipe
from ..strategies import Strategy
from ..types import Chance, Crops, ImageBatch, Latent, Objective, Projections
from .compiling import compile_networks, first_line, has_compiler, uncompile_networks
from .optimisers import encoder_optimiser, learning_rate, regressor_optimiser, set_learning_rate
from .replay import Replay


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
        self.mean, self.std = mean, std
        self.batch_size = min(recipe.batch_size, n_images)
        self.steps_per_epoch = n_images // self.batch_size
        self.labels, self.say = labels, say
        self._ddp_params_and_buffers_to_ignore = [f"strategy.{name}" for name, _ in strategy.named_parameters()]
        """Where DDP looks: theta_d gets no gradient from the one backward that it sees."""
        self.augself = None
        if recipe.augself.weights:
            self.augself = AugSelf(recipe.augself, getattr(framework.encoder.backbone, "num_features"))  # noqa: B009
            framework.encoder.keeps_features = True
        self.compiled = self.compiles_crops = self.prepared = False
        self.data_identity = ""
        self.lr_scale = 1.0  # halved each time that training goes back after it diverged
        self.streams: dict[str, Any] | None = None
        self.resumed_at = 0
        self.skipped: Tensor
        self.register_buffer("skipped", torch.zeros(4), persistent=False)
        """Steps without a finite gradient: the encoder's, the regressor's, either in a row, and the most in a row."""
        self.learn: Callable[[Crops, Chance], tuple[Projections, dict[str, Tensor]]] = self.algorithm_1
        self.logged: dict[str, Tensor] = {}
        self.lr = 0.0
        self.z: Latent | None = None

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.recipe.epochs

    def training_step(self, batch: ImageBatch, batch_idx: int) -> None:
        """One step: draw (every process for the whole batch, so that their number changes nothing), crop, learn."""
        draws = stream(self.recipe.seed, "step", self.global_step, 0)
        crops = self.crop(batch, draws)  # x~ from tau^g and tau^l
        self.learn_from(crops, self.strategy.draw(len(batch.pixels) * world_size(), draws))

    def learn_from(self, crops: Crops, chance: Chance) -> None:
        """Learn by Algorithm 1, and let the framework's own state follow."""
        progress = self.global_step / self.steps
        p, self.logged = self.learn(crops, self._brought_here(chance))
        self.lr = self._step_encoder()
        self.framework.after_step(p, progress)
        average_statistics(self.framework)
        self.z = p.z_g[0]

    def _brought_here(self, chance: Chance) -> Chance:
        """What was drawn for the whole batch, where this process needs it."""
        partners = (chance.inner_partner, chance.outer_partner)
        inner, outer = (None if x is None else to_device(x, order_device(self.device)) for x in partners)
        return Chance(inner, outer, None if chance.noise is None else to_device(own(chance.noise, 1), self.device))

    def algorithm_1(self, crops: Crops, chance: Chance) -> tuple[Projections, dict[str, Tensor]]:
        """Algorithm 1: encode, argmax over theta_d, gradient over theta_e; what was projected and measured."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            p = self.framework.project(crops, self.strategy.roles)  # z = f_theta_e(x~)

        inner = self.strategy.inner(p.z_l.detach(), chance)  # Eqs. 6 and 7
        broken = self._update_regressor(inner)
        outer = self.strategy.outer(self.framework.similarity, p, chance, self._theta_e())  # Eqs. 3-5, 8 and 9
        if self.augself is not None:
            outer = self._with_augself(outer, crops)
        self._encoder_optimiser().zero_grad()
        self.manual_backward(outer.loss)
        self._leave_out_unless_finite(broken)

        terms = {"loss": outer.loss, **outer.terms, **(inner.terms if inner else {})}
        terms |= {
            "skipped": self.skipped[0],
            "skipped_by_regressor": self.skipped[1],
            "skipped_in_a_row": self.skipped[3],
        }
        return Projections(*(x.detach() for x in p)), {name: term.detach() for name, term in terms.items()}

    def try_batch(self, size: int) -> None:
        """Forward and backward of so many made-up images, to see whether they fit into memory."""
        plan, channels = self.recipe.crops, len(self.mean)
        stacks = ((plan.n_global, plan.global_size), (plan.n_local, plan.local_size))
        crops = Crops(*(torch.zeros(n, size, channels, side, side, device=self.device) for n, side in stacks))
        if self.labels is not None:
            crops = crops._replace(labels=torch.zeros(size, dtype=torch.long, device=self.device))
        chance = self._brought_here(self.strategy.draw(size, stream(0, "trial")))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            p = self.framework.project(crops, self.strategy.roles)
        self.strategy.outer(self.framework.similarity, p, chance, self._theta_e()).loss.backward()
        self.framework.zero_grad()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what is no weight."""
        kept = {"recipe": self.recipe.to_json(), "data": self.data_identity, "steps_per_epoch": self.steps_per_epoch}
        kept |= {"mean": list(self.mean), "std": list(self.std)}
        checkpoint |= kept | {"lr_scale": self.lr_scale, "streams": listed(global_streams(self.device))}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take it back; a checkpoint of version 0.1.0 has none of it."""
        self.lr_scale = min(self.lr_scale, checkpoint.get("lr_scale", 1.0))
        streams = checkpoint.get("streams", [])
        self.streams = streams[rank()] if len(streams) == world_size() else None
        self.resumed_at = checkpoint["global_step"]

    def on_train_start(self) -> None:
        """Set the streams and rates that are no part of a checkpoint's weights."""
        if self.streams is None:  # a fresh run, or one of another number of processes
            seed_global_streams(self.recipe.seed, self.resumed_at, rank())
        else:
            set_global_streams(self.streams, self.device)
        self.skipped.zero_()
        for optimiser in self.trainer.optimizers[1:]:  # the regressor's
            set_learning_rate(optimiser, self.lr_scale * self.strategy.inner_lr)

    def on_train_batch_start(self, batch: ImageBatch, batch_idx: int) -> None:
        """Before the first step: compile and record, where the recipe and the device allow it."""
        if self.prepared:
            return
        self.prepared = True
        if self.recipe.compile == "on" or (self.recipe.compile == "auto" and has_compiler(self.device)):
            self.say("Compiling (a minute or two; `--compile off` trains at once, and slower).")
            if failure := self._try_compiled(batch):
                self.say(f"Compiling is off, and training slower: {failure}")
        if self.compiled and self.device.type == "cuda" and self.trainer.world_size == 1:
            self.learn = Replay(self.algorithm_1, self.say)

    def _try_compiled(self, batch: ImageBatch) -> str | None:
        """Compile everything on a batch, leaving no trace of it; what went wrong, if anything did."""
        kept = {name: buffer.clone() for name, buffer in self.framework.named_buffers()}
        self.compiled, self.compiles_crops, failure = True, True, None
        compile_networks(self.framework)
        try:
            crops = self._with_labels(self._make_crops(batch, stream(0, "trial"), compiled=True), batch)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                p = self.framework.project(crops, self.strategy.roles)
            (p.q_g.sum() + p.q_l.sum()).backward()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # compilers fail in many ways, and none of them must stop a run
            self.compiled, self.compiles_crops, failure = False, False, first_line(error)
            uncompile_networks(self.framework)
        finally:
            self.framework.zero_grad()
            for name, buffer in self.framework.named_buffers():
                buffer.copy_(kept[name])
        return failure

    def crop(self, batch: ImageBatch, draws: torch.Generator) -> Crops:
        """The crops of a batch by the recipe's plan, and whatever else something learns from."""
        state = draws.get_state()
        try:
            crops = self._make_crops(batch, draws, self.compiles_crops)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # another canvas may need another compilation, which may fail
            if not self.compiles_crops:
                raise
            self.compiles_crops = False
            self.say(f"Compiling crops is off, and training slower: {first_line(error)}")
            crops = self._make_crops(batch, draws.set_state(state), False)
        return self._with_labels(crops, batch)

    def _with_labels(self, crops: Crops, batch: ImageBatch) -> Crops:
        if self.labels is None or batch.rows is None:
            return crops
        labels = torch.where(batch.rows >= 0, self.labels[batch.rows], -1)  # of those that are shown
        return crops._replace(labels=to_device(labels, self.device))

    def _make_crops(self, batch: ImageBatch, draws: torch.Generator, compiled: bool) -> Crops:
        return make_crops(
            batch.pixels,
            self.recipe.crops,
            draws,
            self.mean,
            self.std,
            sizes=batch.sizes,
            part=(rank(), world_size()),
            compiled=compiled,
            described=self.augself is not None,
            dtype=torch.bfloat16 if self.bf16 else torch.float32,  # what the first layer would round them to
        )

    def _with_augself(self, outer: Objective, crops: Crops) -> Objective:
        """Add the auxiliary objective on the features of the global crops."""
        features = self.framework.encoder.features
        assert self.augself is not None
        assert crops.parameters is not None
        assert features is not None
        aside = self.augself(features, crops.parameters)
        return Objective(outer.loss + aside.loss, outer.terms | aside.terms)

    def transfer_batch_to_device(self, batch: ImageBatch, device: torch.device, dataloader_idx: int) -> ImageBatch:
        """Leave the batch alone: its pixels are where they should be, and its sizes belong on the CPU."""
        return batch

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One optimiser for theta_e and, where there is a regressor, one for theta_d."""
        beside = [] if self.augself is None else list(self.augself.parameters())
        optimisers = [encoder_optimiser(self.recipe.optimiser, self.framework, beside)]
        theta_d = list(self.strategy.parameters())
        if theta_d:
            optimisers.append(regressor_optimiser(self.strategy.inner_lr, theta_d))
        return optimisers

    @property
    def bf16(self) -> bool:
        """Whether the encoder runs in bfloat16."""
        if self.recipe.precision == "auto":
            return self.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return self.recipe.precision == "bf16"

    def _update_regressor(self, objective: Objective | None) -> Tensor:
        """One ascent step on Omega; whether its gradient was not finite, and left out.

        Plain autograd: the encoder's backward must stay the only one that DDP sees.
        """
        if objective is None:
            return torch.zeros((), dtype=torch.bool, device=self.device)
        theta_d = list(self.strategy.parameters())
        gradients = averaged(torch.autograd.grad(objective.loss, theta_d))
        broken = ~get_total_norm(gradients).isfinite()
        for parameter, gradient in zip(theta_d, gradients, strict=True):
            parameter.grad = gradient.masked_fill(broken, 0)
        # Lightning counts the steps of its own wrappers; this one must not count (Lightning issue 17958).
        _, optimiser = self.optimizers(use_pl_optimizer=False)  # type: ignore[misc] (typed as one or many)
        optimiser.step()
        return broken

    def _leave_out_unless_finite(self, regressor_broken: Tensor) -> None:
        """A gradient that is not finite teaches nothing. Decided on the device, which nobody waits for."""
        gradients = [p.grad for p in self._trained() if p.grad is not None]
        broken = ~get_total_norm(gradients).isfinite()
        for gradient in gradients:
            gradient.masked_fill_(broken, 0)
        encoder, regressor, in_a_row, most = self.skipped
        in_a_row = (in_a_row + 1) * (broken | regressor_broken)
        counts = (encoder + broken, regressor + regressor_broken, in_a_row, torch.maximum(most, in_a_row))
        self.skipped.copy_(torch.stack(counts))

    def _step_encoder(self) -> float:
        """One descent step on Eq. 9; gives back the learning rate."""
        config = self.recipe.optimiser
        warmup = config.warmup_epochs * self.steps_per_epoch
        lr = self.lr_scale * learning_rate(config, self.global_step, self.steps, warmup)
        optimiser = self._encoder_optimiser()
        set_learning_rate(optimiser.optimizer, lr, self.lr_scale * config.lr)
        if config.clip:
            torch.nn.utils.clip_grad_norm_(self._trained(), config.clip)
        optimiser.step()
        return lr

    def _encoder_optimiser(self) -> LightningOptimizer:
        wrapped = self.optimizers()
        return wrapped[0] if isinstance(wrapped, list) else wrapped  # type: ignore[return-value] (wrapped by default)

    def _trained(self) -> list[nn.Parameter]:
        """theta_e, and whatever learns with it."""
        return [p for group in self._encoder_optimiser().param_groups for p in group["params"]]

    def _theta_e(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.framework.encoder.parameters() if parameter.requires_grad]
