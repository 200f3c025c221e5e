"""Weights of runs, for whoever reads them: encoder and heads as safetensors, or as the newest checkpoint has them.

Nothing here imports Lightning, which takes longer than all that it would be needed for.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor, nn

from .errors import UserError
from .files import write_together
from .models.backbones import build_backbone, plain_weights, weight_bytes
from .recipes import Recipe
from .regressor import Regressor
from .run import Run, found_checkpoints

TEACHER = "framework.momentum_encoder.net."
HEAD_NAMES = {
    "framework.encoder.net.projector": "projector",
    f"{TEACHER}projector": "projector",
    "framework.h": "h",
    "strategy.regressor": "regressor",
}
"""Heads that a run's file names otherwise than a checkpoint; all others have one name, so that no two can meet."""
PREFIX = "framework.encoder.net.backbone."
MODEL, RECORD = "model.safetensors", "model.json"
"""Files of a model that was trained on an encoder; a folder as on the Hugging Face Hub has the first."""
NETWORK = ("backbone", "stem", "pooling")
"""What names a network; runs of before 20 November 2026 have no pooling."""


def named_heads(weights: Mapping[str, Tensor], heads: Iterable[str]) -> dict[str, Tensor]:
    """The weights of these heads of a checkpoint or module, named as in a run's file."""
    return {
        HEAD_NAMES.get(head, head) + key.removeprefix(head): value
        for head in heads
        for key, value in weights.items()
        if key == head or key.startswith(f"{head}.")
    }


def load_backbone(run: Run | str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """The pretrained backbone of a run (or its folder) in eval mode, and what its input needs: mean, std, size."""
    run = run if isinstance(run, Run) else Run.existing(run)
    if not run.backbone_file.is_file():
        raise UserError(f"{run.path} has no {run.backbone_file.name} yet; {run.how_to_resume()}.")
    weights, needs = read_backbone(run.backbone_file)
    return _backbone(weights, needs), needs


def read_backbone(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in a file of a backbone or classifier, and its metadata: backbone, stem, mean, std, size, classes."""
    weights, metadata = read_tensors(path)
    return weights, needs_of(metadata)


def needs_of(metadata: Mapping[str, str]) -> dict[str, Any]:
    """What metadata say of a network."""
    needs = {name: json.loads(metadata[name]) for name in ("mean", "std", "size", "classes") if name in metadata}
    return needs | {"pooling": "default"} | {k: metadata[k] for k in NETWORK if k in metadata}


def save_model(folder: Path, network: nn.Module, metadata: Mapping[str, str], record: str) -> None:
    """Write a model that was trained on an encoder, and how that was done: both or neither."""
    weights = weight_bytes(plain_weights(network.state_dict()), metadata)
    write_together({folder / MODEL: weights, folder / RECORD: record.encode()})


def load_heads(run: Run, backbone: nn.Module) -> tuple[nn.Module, Regressor | None]:
    """The projector of a run in eval mode, and its regressor where its strategy has one."""
    if not run.heads_file.is_file():
        raise UserError(f"{run.path} has no {run.heads_file.name} yet; {run.how_to_resume()}.")
    weights, metadata = read_tensors(run.heads_file)
    return build_heads(Recipe.from_json(metadata["recipe"]), weights, backbone)


def build_heads(recipe: Recipe, weights: dict[str, Tensor], backbone: nn.Module) -> tuple[nn.Module, Regressor | None]:
    """Projector and regressor of a recipe with these weights, as they are named in a run's file."""

    def of(name: str) -> dict[str, Tensor]:
        return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}

    features: Any = backbone.num_features
    projector = recipe.framework.build(backbone, features).encoder.projector
    projector.load_state_dict(of("projector"))
    regressor = recipe.strategy.build(recipe.crops.n_global, recipe.crops.n_local, recipe.framework.dim).regressor
    if regressor is not None:
        regressor.load_state_dict(of("regressor"))
        regressor.eval()
    return projector.eval(), regressor


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
    saved = inf if run.is_finished and run.backbone_file.is_file() else _saved_step(run)
    if run.newest_step() <= saved or (newest := newest_whole(run.checkpoints)) is None:
        return None
    state = load(newest)
    if state["global_step"] <= saved:  # what is newer by its name is torn
        return None
    recipe, step, per_epoch = json.loads(state["recipe"]), state["global_step"], state["steps_per_epoch"]
    needs = {"mean": list(state["mean"]), "std": list(state["std"]), "size": recipe["crops"]["global_size"]}
    needs |= {"pooling": "default"} | {name: recipe[name] for name in NETWORK if name in recipe}
    weights = state["state_dict"]
    prefix = f"{TEACHER}backbone." if f"{TEACHER}projector" in state["kept"] else PREFIX
    backbone = _backbone({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}, needs)
    progress, ended = f"epoch {-(-step // per_epoch)} of {recipe['epochs']}", step == per_epoch * recipe["epochs"]
    return Unfinished(backbone, needs, progress, named_heads(weights, state["kept"]), ended and run.is_finished)


def _saved_step(run: Run) -> float:
    """Of which step the run's own encoder is, -1 without one."""
    try:
        with safetensors.safe_open(run.backbone_file, framework="pt") as file:
            return float(file.metadata()["step"])
    except (OSError, safetensors.SafetensorError):  # there is none, or a torn one
        return -1


def _backbone(weights: dict[str, Tensor], needs: dict[str, Any]) -> nn.Module:
    backbone = build_backbone(needs["backbone"], needs["stem"], len(needs["mean"]), needs["size"], needs["pooling"])
    backbone.load_state_dict(weights)
    return backbone.eval()


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The weights in a safetensors file, and its metadata."""
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def load(file: Path) -> dict[str, Any]:
    """What a checkpoint holds, without running any code in it."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever the torn bytes lead it to
        raise UserError(
            f"{file} cannot be read ({type(error).__name__}); remove it to continue from the one before it."
        ) from error


def newest_whole(folder: Path, say: Callable[[str], None] = lambda sentence: None) -> Path | None:
    """The newest checkpoint that is whole; None if there is none at all."""
    files = found_checkpoints(folder)
    for file in files:
        with suppress(OSError):
            if file.stem.endswith(f"-{digest(file)}"):
                return file
        say(f"{file} is damaged; the checkpoint before it is used.")
    if files:
        raise UserError(
            f"All {len(files)} checkpoints in {folder} are damaged; remove them to start from the beginning."
        )
    return None


def digest(file: Path) -> str:
    """Sixteen hexadecimal digits that change with any byte of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, partial(hashlib.blake2b, digest_size=8)).hexdigest()
