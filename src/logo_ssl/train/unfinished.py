"""Which encoder has a run that is not finished? That of its newest checkpoint, read without running any code in it."""

import json
from math import inf
from typing import Any, NamedTuple

import safetensors
from torch import Tensor, nn

from ..errors import UserError
from ..models.backbones import build_backbone
from ..run import Run
from .checkpoints import is_whole, load
from .folder import is_finished
from .heads import named_heads

PREFIX = "framework.encoder.net.backbone."
TRIES = 3  # a run that goes on may remove a checkpoint while it is read


class Unfinished(NamedTuple):
    """A backbone in eval mode, what its input needs, and how far it was trained."""

    backbone: nn.Module
    needs: dict[str, Any]
    progress: str
    """epoch 12 of 200."""
    heads: dict[str, Tensor]
    """The weights of projector, predictor, regressor and other heads, named as in a run's file."""
    ended: bool
    """Whether the run ended here, so that its own file held the same."""


def newest_encoder(run: Run) -> Unfinished | None:
    """The encoder of the newest checkpoint; None for a run whose own file is as new, or that has no checkpoint."""
    saved = inf if is_finished(run) and run.backbone_file.is_file() else _saved_step(run)
    if not run.saved() or run.newest_step() <= saved:
        return None
    state = _newest(run)
    if state["global_step"] <= saved:  # what is newer by its name is torn
        return None
    recipe, step, per_epoch = json.loads(state["recipe"]), state["global_step"], state["steps_per_epoch"]
    needs = {"mean": list(state["mean"]), "std": list(state["std"]), "size": recipe["crops"]["global_size"]}
    backbone = build_backbone(recipe["backbone"], recipe["stem"], len(needs["mean"]), needs["size"])
    weights = state["state_dict"]
    backbone.load_state_dict({k.removeprefix(PREFIX): v for k, v in weights.items() if k.startswith(PREFIX)})
    heads = named_heads(weights, state["kept"])
    needs |= {"backbone": recipe["backbone"], "stem": recipe["stem"]}
    progress, ended = f"epoch {-(-step // per_epoch)} of {recipe['epochs']}", step == per_epoch * recipe["epochs"]
    return Unfinished(backbone.eval(), needs, progress, heads, ended and is_finished(run))


def _newest(run: Run) -> dict[str, Any]:
    for _ in range(TRIES):
        for file in run.saved():
            if is_whole(file):
                try:
                    return load(file)
                except UserError:
                    continue
    raise UserError(f"None of the checkpoints in {run.checkpoints} is whole; `logo-ssl resume {run.path}` says more.")


def _saved_step(run: Run) -> float:
    """Of which step the run's own encoder is, -1 without one."""
    try:
        with safetensors.safe_open(run.backbone_file, framework="pt") as file:
            return float(file.metadata()["step"])
    except (OSError, safetensors.SafetensorError):  # there is none, or a torn one
        return -1
