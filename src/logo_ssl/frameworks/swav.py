"""SwAV (Caron et al. 2020): crops predict each other's assignment to prototypes."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..models import Encoder, Prototypes, Queue, mlp, pick
from ..ranges import Count, Positive, Share, at_least
from ..system.distributed import all_gather, local_slice
from ..types import Crops, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class SwAVConfig:
    """Settings of SwAV."""

    sharpness: ClassVar[str] = "epsilon"
    dim: Count = 128
    """Width of the latents."""
    hidden: Count = 2048
    """Hidden width of the projector."""
    prototypes: Count = 512
    """Number of prototypes; 3000 on ImageNet."""
    tau: Positive = 0.1
    """Temperature of the predictions."""
    epsilon: Positive = 0.02
    """How soft assignments are; 0.05 on ImageNet. On scenes, where 0.03 and more leave the loss at log(prototypes),
    0.02 learns."""
    sinkhorn_iterations: Count = 3
    """Iterations of Sinkhorn-Knopp, which makes assignments."""
    queue: Annotated[int, at_least(0)] = 0
    """Number of earlier latents that are assigned together with the batch; of use if batches are small."""
    freeze_prototypes: Share = 0.005
    """Share of training at whose beginning the prototypes are frozen."""

    def build(self, backbone: nn.Module, n_features: int) -> "SwAV":
        """The framework on a backbone."""
        return SwAV(self, backbone, n_features)


class SwAV(Framework):
    """Cross-entropy between a prediction and an assignment that uses all prototypes equally."""

    kept = (*Framework.kept, "prototypes.weight")

    def __init__(self, config: SwAVConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, config.hidden, config.dim]))
        self.prototypes = Prototypes(config.prototypes, config.dim, config.freeze_prototypes)
        self.queue = Queue(config.queue, config.dim) if config.queue else None

    def similarity(self, q: Float[Tensor, "B P"], t: Float[Tensor, "B P"]) -> PerImage:
        """Cross-entropy; `q` are cosines to the prototypes, `t` is an assignment."""
        return -(t * F.log_softmax(q / self.config.tau, dim=-1)).sum(dim=-1)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are cosines to the prototypes; targets are assignments of global crops."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        q_g, q_l = self.prototypes(z_g), self.prototypes(z_l)
        with torch.no_grad():
            t_g = torch.stack([self._assigned(cosines) for cosines in pick(q_g, roles.targets)])
        return Projections(z_g, z_l, pick(q_g, roles.queries), q_l, t_g)

    def after_step(self, p: Projections, progress: float) -> None:
        """Prototypes are unit vectors again, and free after a while; latents are enqueued after their use."""
        with torch.no_grad():
            self.prototypes.weight.copy_(F.normalize(self.prototypes.weight, dim=-1))
        self.prototypes.after_step(progress)
        if self.queue is not None:
            self.queue.push(all_gather(p.z_g[0]))

    def _assigned(self, cosines: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        """The assignments of this process's images, made for the whole batch and the queue together."""
        everyone = all_gather(cosines)
        n_images, present = len(everyone), None
        if self.queue is not None:
            everyone = torch.cat([everyone, self.prototypes(self.queue.keys)])
            present = F.pad(~self.queue.vacant, (n_images, 0), value=True)
        code = sinkhorn(everyone / self.config.epsilon, self.config.sinkhorn_iterations, present)
        return local_slice(code[:n_images])


def sinkhorn(
    scores: Float[Tensor, "N P"], iterations: int, present: Bool[Tensor, " N"] | None = None
) -> Float[Tensor, "N P"]:
    """Assignments near exp(scores) in which every image weighs 1 and every prototype as much as the others."""
    code = (scores - scores.max()).exp()
    if present is not None:
        code = code * present[:, None]
    for _ in range(iterations):
        code = code / code.sum(dim=0, keepdim=True).clamp_min(1e-30)
        code = code / code.sum(dim=1, keepdim=True).clamp_min(1e-30)
    return code
