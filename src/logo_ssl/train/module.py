"""What happens in one step? Algorithm 1, as a Lightning module."""

import lightning as L
import torch
from torch import Tensor

from ..augment import make_crops
from ..frameworks import Framework
from ..randomness import stream
from ..recipes import Recipe
from ..strategies import Strategy
from ..types import Images, Latents, Objective
from .optimisers import encoder_optimiser, learning_rate, regressor_optimiser, set_learning_rate


class Pretraining(L.LightningModule):
    """A framework, a strategy, and the step that trains both from one encoder forward and one encoder backward."""

    def __init__(
        self,
        recipe: Recipe,
        framework: Framework,
        strategy: Strategy,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        steps_per_epoch: int,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.recipe, self.framework, self.strategy = recipe, framework, strategy
        self.mean, self.std = mean, std
        self.steps_per_epoch = steps_per_epoch
        self.logged: dict[str, Tensor] = {}
        self.z: Latents | None = None

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.recipe.epochs

    def training_step(self, images: Images, batch_idx: int) -> None:
        """Algorithm 1: encode, argmax over theta_d, min over theta_e."""
        step = self.global_step
        draws = stream(self.recipe.seed, "step", step, self.global_rank)
        crops = make_crops(images, self.recipe.crops, draws, self.mean, self.std)  # x~ from tau^g and tau^l
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            p = self.framework.project(crops, self.strategy.roles)  # z = f_theta_e(x~)

        inner = self.strategy.inner(p.z_l.detach(), draws)  # Eqs. 6 and 7
        self._update_regressor(inner)
        outer = self.strategy.outer(self.framework.similarity, p, draws, self._theta_e())  # Eqs. 3-5, 8 and 9
        lr = self._update_encoder(outer)
        self.framework.after_step(p, progress=step / self.steps)

        terms = {"loss": outer.loss, **outer.terms, **(inner.terms if inner else {})}
        self.logged = {name: term.detach() for name, term in terms.items()} | {"lr": torch.tensor(lr)}
        self.z = p.z_g[0].detach()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        """One optimiser for theta_e and, where there is a regressor, one for theta_d."""
        optimisers = [encoder_optimiser(self.recipe.optimiser, self.framework)]
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

    def _update_regressor(self, objective: Objective | None) -> None:
        """One ascent step on Omega. Plain autograd: the encoder's backward must stay the only one that DDP sees."""
        if objective is None:
            return
        theta_d = list(self.strategy.parameters())
        for parameter, gradient in zip(theta_d, torch.autograd.grad(objective.loss, theta_d), strict=True):
            parameter.grad = gradient
        # Lightning counts the steps of its own wrappers; this one must not count (Lightning issue 17958).
        _, optimiser = self.optimizers(use_pl_optimizer=False)  # type: ignore[misc] (typed as one or many)
        optimiser.step()

    def _update_encoder(self, objective: Objective) -> float:
        """One descent step on Eq. 9; gives back the learning rate."""
        config = self.recipe.optimiser
        lr = learning_rate(config, self.global_step, self.steps, config.warmup_epochs * self.steps_per_epoch)
        wrapped = self.optimizers()
        optimiser = wrapped[0] if isinstance(wrapped, list) else wrapped
        set_learning_rate(optimiser.optimizer, lr)
        optimiser.zero_grad()
        self.manual_backward(objective.loss)
        if config.clip:
            torch.nn.utils.clip_grad_norm_(self.framework.parameters(), config.clip)
        optimiser.step()
        return lr

    def _theta_e(self) -> list[torch.nn.Parameter]:
        return [parameter for parameter in self.framework.encoder.parameters() if parameter.requires_grad]
