"""How much of L2L's push do the regressor's batch statistics take back? Gradients of L_ll, as one JSON line.

Made-up latents in float64: crops share their image's direction and have one of their own. Once the regressor tells them
apart, the gradient that training follows is compared with that of constant statistics, and with that of running ones.
"""

import argparse
import json
from collections.abc import Callable
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from torch import Tensor

from logo_ssl.equations import draw_partners, local_to_local, omega_logistic, other_image_pairs, same_image_pairs
from logo_ssl.models import BatchNorm
from logo_ssl.regressor import Regressor, frozen
from logo_ssl.strategies import LoGoConfig
from logo_ssl.system.hardware import hardware, provenance

IMAGES, DIM, SPREAD = 256, 128, 0.8
STEP = 0.05  # of the latents' norm: how far they go to see what a direction is worth


class ConstantStatistics(BatchNorm):
    """Normalises by the statistics of the batch as if the batch had no say in them."""

    def forward(self, x: Tensor) -> Tensor:
        """The same values, another gradient."""
        mean, variance = x.mean(0).detach(), x.var(0, unbiased=False).detach()
        return F.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.0, self.eps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="that the regressor learns")
    parser.add_argument("--depths", type=int, nargs="+", default=[5, 2], help="of the regressor, in blocks")
    parser.add_argument("--seeds", type=int, default=3, help="that mean and standard deviation are of")
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    result = {"benchmark": "l2l_gradient", "steps": options.steps, "n": options.seeds, "depths": {}}
    for depth in options.depths:
        seeds = [compared(depth, options.steps, seed) for seed in range(options.seeds)]
        told = {name: [figures[name] for figures in seeds] for name in seeds[0]}
        result["depths"][depth] = {name: [round(f(of), 3) for f in (mean, spread)] for name, of in told.items()}
    print(json.dumps(result | provenance(hardware(torch.device("cpu")))))


def spread(figures: list[float]) -> float:
    """Their standard deviation; one alone has none."""
    return stdev(figures) if len(figures) > 1 else 0.0


def compared(depth: int, steps: int, seed: int) -> dict[str, float]:
    """One regressor, trained, and the gradients of L_ll on fresh latents."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.randn(DIM, DIM) * torch.logspace(0, -1.2, DIM)  # some directions are far commoner than others
    regressor = Regressor(DIM, depth)
    optimiser = LoGoConfig(depth=depth).build(2, 2, DIM).inner_optimiser(list(regressor.parameters()))
    gap = torch.zeros(())
    for _ in range(steps):
        z_l = latents(spectrum)
        other = other_image_pairs(z_l, draw_partners(IMAGES, generator))
        gap = omega_logistic(regressor.score, same_image_pairs(z_l), other)
        optimiser.zero_grad()
        (-gap).backward()
        optimiser.step()
    z_l, partner = latents(spectrum).requires_grad_(), draw_partners(IMAGES, generator)
    followed = gradient(regressor, z_l, partner)
    constant = gradient(with_constant_statistics(regressor, depth), z_l, partner)

    def gained(measure: Callable[[Tensor], Tensor]) -> float:
        """What a step along the one lowers, over what a step along the other does."""
        return descent(measure, z_l, followed) / descent(measure, z_l, constant)

    by_batch = gained(lambda z: local_to_local(frozen(regressor), z, partner))
    regressor.eval()
    return {
        "omega": gap.item(),
        "norm_over_constant": (followed.norm() / constant.norm()).item(),
        "cosine_with_constant": cosine(followed, constant),
        "cosine_with_running": cosine(followed, gradient(regressor, z_l, partner)),
        "descent_by_batch_statistics": by_batch,
        "descent_by_running_statistics": gained(lambda z: regressor(*same_image_pairs(z)).mean()),
        "descent_by_cosine": gained(lambda z: F.cosine_similarity(*same_image_pairs(z), dim=-1).mean()),
    }


def latents(spectrum: Tensor) -> Tensor:
    """Two local crops of each image."""
    image, crops = torch.randn(IMAGES, DIM) @ spectrum.T, torch.randn(2, IMAGES, DIM) @ spectrum.T
    return F.normalize(image, dim=-1) + SPREAD * F.normalize(crops, dim=-1)


def with_constant_statistics(regressor: Regressor, depth: int) -> Regressor:
    """A copy of it whose statistics carry no gradient."""
    copy = Regressor(DIM, depth)
    for place, block in enumerate(copy.blocks):
        if isinstance(block, BatchNorm):
            copy.blocks[place] = ConstantStatistics(block.num_features)
    copy.load_state_dict(regressor.state_dict())
    return copy


def gradient(regressor: Regressor, z_l: Tensor, partner: Tensor) -> Tensor:
    """That of L_ll at the local latents."""
    return torch.autograd.grad(local_to_local(frozen(regressor), z_l, partner), z_l)[0]


@torch.no_grad()
def descent(measure: Callable[[Tensor], Tensor], z_l: Tensor, way: Tensor) -> float:
    """How far a measure falls after a step of fixed length."""
    return (measure(z_l) - measure(z_l - STEP * z_l.norm() / way.norm() * way)).item()


def cosine(one: Tensor, other: Tensor) -> float:
    """Of the angle between two gradients."""
    return F.cosine_similarity(one.flatten(), other.flatten(), dim=0).item()


if __name__ == "__main__":
    main()
