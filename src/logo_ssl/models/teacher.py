"""A frozen encoder that teaches another one."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..errors import UserError

Looks = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel."""


class Teacher(nn.Module):
    """A network in eval mode, whatever its surroundings are in, that no gradient reaches.

    It is fed with crops that were normalised for its student. A checkpoint holds its fingerprint in place of its
    weights, which may be larger than all the rest: they are still where they came from, and a run goes on with the same
    ones alone.
    """

    scale: Float[Tensor, "C 1 1"]
    shift: Float[Tensor, "C 1 1"]
    fingerprint: Tensor

    def __init__(
        self, name: str, network: nn.Module, num_features: int, own: Looks, students: Looks, fingerprint: str
    ) -> None:
        super().__init__()
        self.name, self.num_features = name, num_features
        self.network = network.eval().requires_grad_(False)
        (mean, std), (other_mean, other_std) = (map(torch.tensor, looks) for looks in (own, students))
        self.register_buffer("scale", (other_std / std)[:, None, None])
        self.register_buffer("shift", ((other_mean - mean) / std)[:, None, None])
        self.register_buffer("fingerprint", torch.tensor(list(bytes.fromhex(fingerprint)), dtype=torch.uint8))
        self.register_state_dict_post_hook(_leave_weights_out)
        self.register_load_state_dict_pre_hook(_keep_weights)

    def train(self, mode: bool = True) -> "Teacher":
        """It never trains."""
        return super().train(False)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B F"]:
        """Its features of its student's crops."""
        return self.network(x * self.scale + self.shift)


def _leave_weights_out(teacher: Any, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    for name in [name for name in state if name.startswith(f"{prefix}network.")]:
        del state[name]


def _keep_weights(teacher: Any, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Put its own weights among those to load; UserError if the others are of another teacher's student."""
    if not torch.equal(state[f"{prefix}fingerprint"].cpu(), teacher.fingerprint.cpu()):
        raise UserError(f"framework.teacher={teacher.name}: has other weights than when this run began; restore them.")
    state |= {f"{prefix}network.{name}": value for name, value in teacher.network.state_dict().items()}
