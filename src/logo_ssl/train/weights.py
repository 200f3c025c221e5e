"""Where do weights come from, and where do they go? Safetensors files, read and written without running code."""

import json
from pathlib import Path
from typing import Any, get_args

import safetensors
import safetensors.torch
import timm
import torchvision
from torch import Tensor, nn

from ..errors import UserError
from ..files import write_together
from ..models.backbones import Stem, build_backbone, load_weights
from ..models.hub import hub_if_reached
from ..models.saving import plain_weights, weight_bytes
from ..recipes import Recipe
from ..regressor import Regressor
from ..run import Run
from .folder import cure
from .heads import named_heads
from .module import Pretraining


def save_encoder(run: Run, module: Pretraining) -> None:
    """Write the backbone, which everybody loads, and the heads, which only LoGo needs: both or neither."""
    recipe, framework = module.recipe, module.framework
    if not all(value.isfinite().all() for value in framework.encoder.state_dict().values()):
        raise UserError(
            "Training diverged in its last steps: weights are not finite. Lower optimiser.lr and start again."
        )
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
    files = {run.backbone_file: framework.encoder.backbone.state_dict(), run.heads_file: heads}
    write_together({file: weight_bytes(plain_weights(weights), metadata) for file, weights in files.items()})


def load_backbone(run: Run | str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """The pretrained backbone of a run (or its folder) in eval mode, and what its input needs: mean, std, size."""
    run = run if isinstance(run, Run) else Run.existing(run)
    if not run.backbone_file.is_file():
        raise UserError(f"{run.path} has no {run.backbone_file.name} yet; {cure(run)}.")
    weights, needs = read_backbone(run.backbone_file)
    backbone = build_backbone(needs["backbone"], needs["stem"], len(needs["mean"]), needs["size"])
    backbone.load_state_dict(weights)
    return backbone.eval(), needs


def read_backbone(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights in a backbone's file, and what it says of itself: backbone, stem, mean, std, size."""
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    needs = {"mean": json.loads(metadata["mean"]), "std": json.loads(metadata["std"]), "size": int(metadata["size"])}
    return weights, needs | {"backbone": metadata["backbone"], "stem": metadata["stem"]}


def load_heads(run: Run, backbone: nn.Module) -> tuple[nn.Module, Regressor | None]:
    """The projector of a run in eval mode, and its regressor where its strategy has one."""
    if not run.heads_file.is_file():
        raise UserError(f"{run.path} has no {run.heads_file.name} yet; {cure(run)}.")
    _refuse_two_steps(run)
    with safetensors.safe_open(run.heads_file, framework="pt") as file:
        recipe = Recipe.from_json(file.metadata()["recipe"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    return build_heads(recipe, weights, backbone)


def build_heads(recipe: Recipe, weights: dict[str, Tensor], backbone: nn.Module) -> tuple[nn.Module, Regressor | None]:
    """Projector and regressor of a recipe with these weights, as they are named in a run's file."""
    features: Any = backbone.num_features
    projector = recipe.framework.build(backbone, features).encoder.projector
    projector.load_state_dict(_stripped("projector", weights))
    strategy = recipe.strategy.build(recipe.crops.n_global, recipe.crops.n_local, recipe.framework.dim)
    if strategy.regressor is not None:
        strategy.regressor.load_state_dict(_stripped("regressor", weights))
        return projector.eval(), strategy.regressor.eval()
    return projector.eval(), None


def _refuse_two_steps(run: Run) -> None:
    """Refuse a backbone and heads of different steps: power was cut between their two renames."""
    steps = []
    for path in (run.backbone_file, run.heads_file):
        with safetensors.safe_open(path, framework="pt") as file:
            steps.append(file.metadata()["step"])
    if steps[0] != steps[1]:
        raise UserError(
            f"{run.backbone_file} is of step {steps[0]} and {run.heads_file.name} of step {steps[1]}, so they do not "
            f"belong together; {cure(run)}, which writes both again."
        )


def initialise(backbone: nn.Module, recipe: Recipe) -> str:
    """Load the weights that `init` names; gives back a sentence about what fitted."""
    assert recipe.init is not None
    try:
        missing, unused = load_weights(backbone, _initial_weights(recipe))
    except LookupError as error:
        raise UserError(
            f"Nothing in {recipe.init} fits {recipe.backbone} with the {recipe.stem} stem; {_fitting(recipe)}."
        ) from error
    fitted = len(backbone.state_dict()) - len(missing)
    left = f"; left as they were: {', '.join(missing[:4])}" + (", ..." if len(missing) > 4 else "") if missing else ""
    return f"Started from {recipe.init}: {fitted} tensors fitted, {len(unused)} found no place{left}."


def _fitting(recipe: Recipe) -> str:
    """What to do where nothing fits: the options for what a run or an export says that it holds."""
    told: dict[str, str] = {}
    if recipe.init != "pretrained":
        with safetensors.safe_open(_initial_file(recipe), framework="pt") as file:
            told = file.metadata() or {}
    backbone, stem = told.get("backbone", ""), told.get("stem", "")
    if stem not in get_args(Stem) or (backbone, stem) == (recipe.backbone, recipe.stem):
        return "check both names"
    options = f"backbone={backbone}" + ("" if stem == recipe.stem else f" stem={stem}")
    return f"it holds {backbone} with the {stem} stem: use {options}, or another init"


def _initial_file(recipe: Recipe) -> Path:
    path = Path(str(recipe.init)).expanduser()
    return Run(path).backbone_file if path.is_dir() else path


def _initial_weights(recipe: Recipe) -> dict[str, Tensor]:
    if recipe.init == "pretrained":
        return _library_weights(recipe.backbone)
    file = _initial_file(recipe)
    if not file.is_file() or file.suffix != ".safetensors":
        raise UserError(f"init={recipe.init!r}: give a .safetensors file, a finished run, or `pretrained`.")
    try:
        return safetensors.torch.load_file(file)
    except safetensors.SafetensorError as error:
        raise UserError(f"{file} is not a whole safetensors file ({error}); write it again.") from error


def _library_weights(name: str) -> dict[str, Tensor]:
    try:
        if name.startswith("timm/"):
            return _timm_weights(name.removeprefix("timm/"))
        if name.startswith("resnet"):
            return torchvision.models.get_model(name, weights="DEFAULT").state_dict()
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"The pretrained weights of {name} could not be fetched ({error}); give a .safetensors file with --init."
        ) from error
    raise UserError(f"Nobody publishes pretrained weights for {name!r}; choose a resnet or a timm/ model.")


def _timm_weights(name: str) -> dict[str, Tensor]:
    """As timm publishes them; an OSError where its hub is out of reach and its cache does not have them."""
    with hub_if_reached() as out_of_reach:
        try:
            return timm.create_model(name, pretrained=True).state_dict()
        except (OSError, RuntimeError) as error:
            raise OSError(out_of_reach or error) from error


def _stripped(name: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
