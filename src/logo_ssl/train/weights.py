"""Weights out of and into training: what a run writes in the end, and what it begins with (`init`)."""

import json
from pathlib import Path

import timm
import torchvision
from torch import Tensor, nn

from ..errors import UserError
from ..files import write_together
from ..models.backbones import load_weights, plain_weights, weight_bytes, with_our_positions
from ..models.external_checkpoints import SUFFIXES, guess_resnet, matching_keys, read_checkpoint
from ..recipes import Recipe, read_recipe
from ..run import Run
from ..weights import load_backbone, named_heads, newest_encoder, read_tensors
from .module import Pretraining


def save_encoder(run: Run, module: Pretraining) -> None:
    """Write the backbone, which everybody loads, and the heads, which only LoGo needs: both or neither."""
    recipe, framework = module.recipe, module.framework
    metadata = {
        "format": "pt",
        "backbone": recipe.backbone,
        "stem": recipe.stem,
        "pooling": recipe.pooling,
        "size": str(recipe.crops.global_size),
        "mean": json.dumps(module.mean),
        "std": json.dumps(module.std),
        "recipe": recipe.to_json(),
        "step": str(module.global_step),
    }
    heads = named_heads(module.state_dict(), module.kept)
    # The backbone comes last: if power is cut between the two, the newest checkpoint is newer than it, and is taken.
    files = {run.heads_file: heads, run.backbone_file: framework.final_encoder.backbone.state_dict()}
    write_together({file: weight_bytes(plain_weights(weights), metadata) for file, weights in files.items()})


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
    if path.suffix == ".safetensors" and (told := read_tensors(path)[1]).keys() >= {"backbone", "stem"}:
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
