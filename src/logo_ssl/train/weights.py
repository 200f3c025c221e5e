"""Weights out of and into training: a run's encoder and heads as safetensors, its newest checkpoint's, and `init`."""

import json
from collections.abc import Iterable, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import timm
import torchvision
from torch import Tensor, nn

from ..errors import UserError
from ..files import write_together
from ..models.backbones import build_backbone, load_weights, plain_weights, weight_bytes, with_our_positions
from ..models.external_checkpoints import SUFFIXES, guess_resnet, matching_keys, read_checkpoint
from ..recipes import Recipe, read_recipe
from ..regressor import Regressor
from ..run import Run
from .checkpoint import load, newest_whole
from .module import Pretraining

HEAD_NAMES = {"framework.encoder.net.projector": "projector", "framework.h": "h", "strategy.regressor": "regressor"}
"""Heads that a run's file names otherwise than a checkpoint; all others have one name, so that no two can meet."""
PREFIX = "framework.encoder.net.backbone."


def named_heads(weights: Mapping[str, Tensor], heads: Iterable[str]) -> dict[str, Tensor]:
    """The weights of these heads of a checkpoint or module, named as in a run's file."""
    return {
        HEAD_NAMES.get(head, head) + key.removeprefix(head): value
        for head in heads
        for key, value in weights.items()
        if key == head or key.startswith(f"{head}.")
    }


def save_encoder(run: Run, module: Pretraining) -> None:
    """Write the backbone, which everybody loads, and the heads, which only LoGo needs: both or neither."""
    recipe, framework = module.recipe, module.framework
    metadata = {
        "format": "pt",
        "backbone": recipe.backbone,
        "stem": recipe.stem,
        "size": str(recipe.crops.global_size),
        "mean": json.dumps(module.mean),
        "std": json.dumps(module.std),
        "recipe": recipe.to_json(),
        "step": str(module.global_step),
    }
    heads = named_heads(module.state_dict(), module.kept)
    # The backbone comes last: if power is cut between the two, the newest checkpoint is newer than it, and is taken.
    files = {run.heads_file: heads, run.backbone_file: framework.encoder.backbone.state_dict()}
    write_together({file: weight_bytes(plain_weights(weights), metadata) for file, weights in files.items()})


def load_backbone(run: Run | str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """The pretrained backbone of a run (or its folder) in eval mode, and what its input needs: mean, std, size."""
    run = run if isinstance(run, Run) else Run.existing(run)
    if not run.backbone_file.is_file():
        raise UserError(f"{run.path} has no {run.backbone_file.name} yet; {run.how_to_resume()}.")
    weights, needs = read_backbone(run.backbone_file)
    return _backbone(weights, needs), needs


def read_backbone(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in a backbone's file, and its metadata: backbone, stem, mean, std, size."""
    weights, metadata = _read(path)
    needs = {name: json.loads(metadata[name]) for name in ("mean", "std", "size")}
    return weights, needs | {"backbone": metadata["backbone"], "stem": metadata["stem"]}


def load_heads(run: Run, backbone: nn.Module) -> tuple[nn.Module, Regressor | None]:
    """The projector of a run in eval mode, and its regressor where its strategy has one."""
    if not run.heads_file.is_file():
        raise UserError(f"{run.path} has no {run.heads_file.name} yet; {run.how_to_resume()}.")
    weights, metadata = _read(run.heads_file)
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
    needs |= {"backbone": recipe["backbone"], "stem": recipe["stem"]}
    weights = state["state_dict"]
    backbone = _backbone({k.removeprefix(PREFIX): v for k, v in weights.items() if k.startswith(PREFIX)}, needs)
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
    backbone = build_backbone(needs["backbone"], needs["stem"], len(needs["mean"]), needs["size"])
    backbone.load_state_dict(weights)
    return backbone.eval()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The weights in a safetensors file, and its metadata."""
    with safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


def initialise(backbone: nn.Module, recipe: Recipe) -> str:
    """Load the weights that `init` names; gives back a sentence about what fitted."""
    init = str(recipe.init)
    if init == "pretrained":
        init = recipe.backbone if recipe.backbone.startswith("timm/") else f"torchvision/{recipe.backbone}"
    missing, unused = load_weights(backbone, _initial_weights(init, backbone))
    fitted, n_own = len(backbone.state_dict()) - len(missing), len(backbone.state_dict())
    if fitted < n_own / 2:
        raise UserError(
            f"init={recipe.init}: {fitted} of {n_own} tensors fit {recipe.backbone} with the {recipe.stem} stem; give "
            "its --backbone and --stem."
        )
    left = f"; unchanged: {', '.join(missing[:4])}" + (", ..." if len(missing) > 4 else "") if missing else ""
    return f"Started from {recipe.init}: {fitted} tensors fit, {len(unused)} are not used{left}."


def network_of(init: str | None) -> dict[str, str]:
    """Backbone and stem of the network whose weights `init` names; nothing if it does not tell."""
    library, _, name = str(init).partition("/")
    if library == "timm":
        return {"backbone": str(init)}
    if library == "torchvision":
        return {"backbone": name, "stem": "imagenet"}
    path = Path(str(init)).expanduser()
    if path.is_dir():
        recipe = read_recipe(Run.existing(path))
        return {"backbone": recipe.backbone, "stem": recipe.stem}
    if not (path.is_file() and path.name.endswith(SUFFIXES)):
        return {}
    if path.suffix == ".safetensors" and (told := _read(path)[1]).keys() >= {"backbone", "stem"}:
        return {"backbone": told["backbone"], "stem": told["stem"]}
    resnet, stem = guess_resnet(read_checkpoint(path))
    return {} if resnet is None else {"backbone": resnet, "stem": "imagenet" if stem == "imagenet" else "cifar"}


def _initial_weights(init: str, backbone: nn.Module) -> dict[str, Tensor]:
    """The weights that `init` names: published ones, of a run, or in a checkpoint, under the names of a backbone."""
    library, _, name = init.partition("/")
    if library in ("torchvision", "timm"):
        return _published_weights(library, name)
    path = Path(init).expanduser()
    if not path.is_dir():
        if not path.name.endswith(SUFFIXES):
            raise UserError(
                f"init={init!r}: must be `pretrained`, a run, torchvision/NAME, timm/NAME, or a checkpoint "
                f"({', '.join(SUFFIXES)})."
            )
        return matching_keys(backbone.state_dict(), with_our_positions(backbone, read_checkpoint(path)))
    run = Run.existing(path)
    newest = newest_encoder(run)
    return load_backbone(run)[0].state_dict() if newest is None else newest.backbone.state_dict()


def _published_weights(library: str, name: str) -> dict[str, Tensor]:
    """Weights as torchvision or timm publishes them."""
    try:
        if library == "torchvision":
            return torchvision.models.get_model(name, weights="DEFAULT").state_dict()
        return timm.create_model(name, pretrained=True).state_dict()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"The weights of {library}/{name} could not be fetched ({error}); give init a file.") from error
