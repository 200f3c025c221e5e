"""A recipe: every setting of a run, as frozen dataclasses; its JSON, changes by name, validation, what may differ."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from math import inf
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import tyro
from typeguard import TypeCheckError, check_type

from ..augment import CropPlan
from ..augself import AugSelfConfig
from ..data import LoadingConfig
from ..errors import UserError, nearest
from ..files import read_json
from ..frameworks import FRAMEWORKS, FrameworkConfig, FrameworkTraits, MoCoConfig
from ..models.backbones import Pooling, refuse_unknown_backbone
from ..models.external_checkpoints import SUFFIXES
from ..ranges import Allowed, Count, NotNegative, Positive, Seed, at_least, check_range
from ..run import Run
from ..strategies import STRATEGIES, LoGoConfig, StrategyConfig, StrategyTraits

PARTS: dict[str, dict[str, type]] = {"framework": FRAMEWORKS, "strategy": STRATEGIES}
"""What can be swapped by name, and others may add to."""
MOST_CROPS = 32

Differences = dict[str, tuple[Any, Any]]

HARMLESS = (
    "data",  # the images may have moved; that they are the same is checked elsewhere
    "epochs",
    "device",
    "devices",
    "nodes",
    "compile",
    "knn_every",
    "loading",
    "log_every",
    "checkpoint_every",
    "checkpoint_minutes",
    "checkpoint_keep",
    "on_collapse",
    "deterministic",
    "loggers",
)
"""What may change between two sessions of a run: none of it decides what the next step learns (epochs: how slowly)."""
BUT = ("loading.max_side",)
"""Inner fields of these that do: smaller photographs are other images."""
ALWAYS_WRITTEN = ("name", "data", "epochs", "batch_size", "seed", "framework", "strategy", "crops")

NoFlag = tyro.conf.Suppress


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper that a recipe reproduces: top-1 in percent."""

    table: int
    row: str
    knn: float | None = None
    linear: float | None = None


@dataclass(frozen=True)
class OptimiserConfig:
    """Settings of the encoder's optimiser."""

    kind: Literal["sgd", "lars", "adamw"] = "sgd"
    """SGD as in the paper, LARS for large batches, AdamW for transformers."""
    lr: Positive = 0.06
    """Peak learning rate (eta_max), for the batch size of the recipe."""
    eta_min: float = 0.0
    """Learning rate at the end of the cosine."""
    warmup_epochs: NotNegative = 0.0
    """Epochs of linear warm-up."""
    momentum: Annotated[float, Allowed(lambda value: 0 <= value < 1, "0 <= momentum < 1")] = 0.9
    """Momentum of SGD and LARS."""
    weight_decay: NotNegative = 1e-4
    """Weight decay; LARS and AdamW spare biases, norms, and a transformer's position embeddings and class token."""
    weight_decay_end: Annotated[float | None, Allowed(lambda end: end is None or 0 <= end < inf, "0 or more")] = None
    """Weight decay at the end of a cosine, as DINO's 0.4 from 0.04; by default it stays the same."""
    layer_decay: Annotated[float, Allowed(lambda factor: 0 < factor <= 1, "0 < layer_decay <= 1")] = 1.0
    """Factor of the learning rate from each layer of a timm network to the one before it; 1: all learn alike."""
    clip: NotNegative = 0.0
    """Largest norm of the encoder's gradient; 0 does not clip."""
    frozen_epochs: NotNegative = 0.0
    """Epochs in which the backbone's weights stand still, so that new heads do not spoil what `init` gave it."""
    backbone_lr: Annotated[float, Allowed(lambda factor: 0 < factor <= 1, "0 < backbone_lr <= 1")] = 1.0
    """Factor of the learning rate for the backbone."""
    pull: NotNegative = 0.0
    """Decay of the backbone towards the weights of `init` (L2-SP), in place of weight decay: a step goes back by lr x
    backbone_lr x pull of the way; 0: none."""

    @property
    def spares_backbone(self) -> bool:
        """Whether the backbone learns otherwise than the heads."""
        return self.frozen_epochs > 0 or self.backbone_lr < 1 or self.pull > 0


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run's result."""

    name: NoFlag[str]
    """Name of the recipe."""
    data: str = "scenes"
    """A name (scenes, cifar10, ...), a folder of images or of .tar shards, a text file of paths, or an .npz file."""
    backbone: str = "resnet18"
    """tiny, small-alexnet, resnet18 (34, 50, 101, 152), wide_resnet50_2, timm/NAME, or one of your own."""
    stem: Literal["imagenet", "cifar"] = "imagenet"
    """First layers of a ResNet: 7x7 stride 2 and max-pool, or 3x3 stride 1 for small images."""
    pooling: Pooling = "default"
    """Features of a vision transformer: its class token, or the mean of its patches; default: as timm has it."""
    drop_path: Annotated[float, Allowed(lambda rate: 0 <= rate < 1, "0 <= drop_path < 1")] = 0.0
    """Stochastic depth of a timm network: how often its last block is left out, earlier ones less."""
    init: str | None = None
    """Start from these backbone weights: `pretrained`, torchvision/NAME, timm/NAME, a run, a model, or a checkpoint."""
    init_key: str | None = None
    """Which weights of the checkpoint, such as student (default: of DINO the teacher, else not the momentum copy)."""
    initialisation: Literal["library", "torch"] = "library"
    """How convolutions begin without `init`: as their library draws them, or by torch's default, which is mostly
    smaller in a ResNet, so that steps turn the weights further."""
    epochs: Count = 200
    """Passes over the data."""
    batch_size: Annotated[int, at_least(2)] = 512
    """Images per step, of all processes together."""
    seed: Seed = 0
    """Decides initial weights, order and augmentation."""
    framework: FrameworkConfig = field(default_factory=MoCoConfig)
    """How crops are compared."""
    strategy: StrategyConfig = field(default_factory=LoGoConfig)
    """Which crops are compared."""
    crops: CropPlan = field(default_factory=CropPlan)
    """How crops are made."""
    augself: AugSelfConfig = field(default_factory=AugSelfConfig)
    """An additional objective: predict how the augmentations of two crops differ."""
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    """How the encoder learns."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 autocast for the encoder, or fp32; auto takes bf16 on CUDA only. Losses and regressor always run in fp32.
    fp32 leaves TF32 on for cuDNN's convolutions, which is torch's default."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train."""
    devices: Annotated[
        int | Literal["auto"], Allowed(lambda n: n == "auto" or n >= 1, "1 or more, or auto for every GPU")
    ] = 1
    """Processes on each machine, one GPU each; auto: one for each GPU. torchrun and Slurm decide this themselves."""
    nodes: Count = 1
    """Machines."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile for crops and networks, CUDA graphs for the step; auto: on CUDA. Takes a minute at the start."""
    knn_every: Annotated[int, at_least(0, " (0: never)")] = 10
    """Epochs between two online kNN evaluations; 0 for none."""
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    """How images get to the device."""
    log_every: Count = 20
    """Steps between two lines in metrics.jsonl."""
    checkpoint_every: Count = 1
    """Epochs between two checkpoints."""
    checkpoint_minutes: Annotated[float, at_least(0, " (0: only at the end of epochs)")] = 10.0
    """Minutes between two checkpoints within an epoch (the first comes after a tenth of them); 0: only at the end of
    epochs."""
    checkpoint_keep: Count = 2
    """How many checkpoints stay on disk."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """What to do when the latents collapse to a point."""
    deterministic: bool = False
    """Make CUDA repeat itself bit by bit, which is slower; a CPU always does."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    """Loggers in addition to metrics.jsonl."""
    paper: NoFlag[tuple[PaperRow, ...]] = ()
    """The rows of the paper that this recipe stands for."""
    chosen: NoFlag[tuple[str, ...]] = ()
    """Why the values of recipe `auto` were chosen for the data."""
    replans: NoFlag[tuple[tuple[int, int], ...]] = ()
    """When the run was cut short: the step, and the epochs planned until then."""

    @property
    def start(self) -> str | None:
        """What `init` names: `pretrained` are the published weights of the backbone."""
        if self.init != "pretrained":
            return self.init
        return self.backbone if self.backbone.startswith("timm/") else f"torchvision/{self.backbone}"

    @property
    def framework_traits(self) -> FrameworkTraits:
        """What the framework's config says of itself."""
        return FrameworkTraits.of(self.framework)

    @property
    def strategy_traits(self) -> StrategyTraits:
        """What the strategy's config says of itself."""
        return StrategyTraits.of(self.strategy)

    def evaluations_after(self, epochs_done: int) -> int:
        """How many online kNN evaluations come after so many epochs: every n, and after the last."""
        if not self.knn_every or epochs_done >= self.epochs:
            return 0
        return -(-self.epochs // self.knn_every) - epochs_done // self.knn_every

    def changed(self, **changes: Any) -> "Recipe":
        """The recipe with other values; `strategy__lam` is the field `lam` of the strategy, `strategy="logo"` names it.

        Whole parts come before their fields, however they are ordered.
        """
        recipe = self
        for path in sorted(changes, key=lambda path: (path not in PARTS, path.count("__"))):
            if path in PARTS:
                recipe = recipe.with_part(path, changes[path])
            else:
                recipe = _set(recipe, path.split("__"), changes[path], path.replace("__", "."))
        return recipe

    def with_part(self, part: str, value: Any) -> "Recipe":
        """The recipe with another framework or strategy, by name or with settings; unused local crops are left out."""
        if isinstance(value, str):
            if value not in PARTS[part]:
                raise UserError(f"{part}={value!r}: must be {', '.join(PARTS[part])}.{nearest(value, PARTS[part])}")
            value = PARTS[part][value]()
        _kind(part, value)
        recipe = replace(self, **{part: value})
        if not recipe.strategy_traits.least_local:
            recipe = replace(recipe, crops=replace(recipe.crops, n_local=0))
        return recipe

    def kind(self, part: str) -> str:
        """The name of the framework or strategy: that of its own class, not of one which that extends."""
        return _kind(part, getattr(self, part))

    def to_json(self) -> str:
        """The recipe as text; `from_json` reads it."""
        record = asdict(self)
        for part in PARTS:
            record[part] = {"kind": self.kind(part), **record[part]}
        return json.dumps(record, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Recipe":
        """The recipe in a text; unknown keys are errors."""
        record, parts = json.loads(text), dict[str, Any]()
        if record["loading"]["placement"] == "encoded":  # which runs of before 19 November 2026 may have asked for
            record["loading"]["placement"] = "auto"
        for part, kinds in PARTS.items():
            settings = record.pop(part)
            if (kind := settings.pop("kind")) not in kinds:
                raise UserError(
                    f"{part}={kind!r}: must be {', '.join(kinds)}. One of your own is known where the file that "
                    "registers it runs the command: `python FILE ...`."
                )
            parts[part] = _built(kinds[kind], settings, f"{part}.")
        return replace(_built(cls, record), **parts)


def _kind(part: str, config: Any) -> str:
    """The name that a config is registered by."""
    for name, kind in PARTS[part].items():
        if type(config) is kind:
            return name
    raise UserError(f"{part}={config!r}: must be {', '.join(PARTS[part])}, or a config registered with them.")


def _set(part: Any, path: list[str], value: Any, name: str) -> Any:
    """The part with another value of a field, or of a field in it; `name` is the field's full name."""
    hints = get_type_hints(type(part))
    if path[0] not in hints:
        raise UserError(f"{name}: {type(part).__name__} has no such field.{nearest(path[0], hints)}")
    if path[1:]:
        return replace(part, **{path[0]: _set(getattr(part, path[0]), path[1:], value, name)})
    value = as_python(value)
    _check_type(name, value, hints[path[0]])
    return replace(part, **{path[0]: value})


def as_python(value: Any) -> Any:
    """Numpy's numbers and arrays, lists and paths as numbers, tuples and text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(as_python, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _built(hint: Any, value: Any, inside: str = "") -> Any:
    """A value as its type has it, of what JSON keeps of it: dataclasses by their fields, tuples for lists."""
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, dict):
        hints = get_type_hints(hint)
        if unknown := sorted(value.keys() - hints.keys()):
            raise UserError(f"{inside}{unknown[0]}: there is no such field.{nearest(unknown[0], hints)}")
        return hint(**{name: _built(hints[name], each, f"{inside}{name}.") for name, each in value.items()})
    if isinstance(value, list) and get_origin(hint) is not list:
        kind = next(iter(get_args(hint)), None)
        value = tuple(_built(kind, each) if is_dataclass(kind) else as_python(each) for each in value)
    _check_type(inside.rstrip("."), value, hint)
    return value


def _check_type(name: str, value: Any, hint: Any) -> None:
    """UserError for a value that is not of its field's type."""
    try:
        check_type(value, hint)
    except TypeCheckError as error:
        if get_origin(hint) is Literal:
            known = [str(each) for each in get_args(hint)]
            raise UserError(f"{name}={value!r}: must be {', '.join(known)}.{nearest(str(value), known)}") from error
        kind = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
        raise UserError(f"{name}={value!r}: must be {kind}.") from error


def fields_of(part: Any, inside: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field of a recipe that is not a dataclass itself: full name, value and type."""
    hints = get_type_hints(type(part), include_extras=True)
    for name in (each.name for each in fields(part)):
        value = getattr(part, name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from fields_of(value, f"{inside}{name}.")
        else:
            yield f"{inside}{name}", value, hints[name]


def check(recipe: Recipe) -> None:
    """UserError for a value that is not of its field's type, or cannot work; it names the field and what is allowed."""
    for part in PARTS:
        recipe.kind(part)
    for name, value, hint in fields_of(recipe):
        _check_type(name, value, hint)
        check_range(name, value, hint)
    for problem in _conflicts(recipe):
        raise UserError(problem)
    refuse_unknown_backbone(recipe.backbone)


def _conflicts(recipe: Recipe) -> Iterator[str]:
    """What does not go together."""
    crops, optimiser, least = recipe.crops, recipe.optimiser, recipe.strategy_traits.least_local
    if recipe.stem == "cifar" and recipe.backbone.startswith("timm/"):
        yield f"stem=cifar: {recipe.backbone} keeps timm's first layers; must be imagenet."
    if recipe.init_key and not str(recipe.init).endswith(SUFFIXES):
        yield f"init_key={recipe.init_key}: init={recipe.init} must be a checkpoint file ({', '.join(SUFFIXES)})."
    if crops.n_global < recipe.framework_traits.least_global:
        yield f"crops.n_global={crops.n_global}: must be {recipe.framework_traits.least_global} or more."
    if crops.n_global + crops.n_local > MOST_CROPS:
        yield f"crops.n_global={crops.n_global}, crops.n_local={crops.n_local}: must be {MOST_CROPS} in all at most."
    if crops.n_local < least:
        yield f"crops.n_local={crops.n_local}: strategy {recipe.kind('strategy')} needs {least} or more."
    if crops.n_local and not least:
        yield f"crops.n_local={crops.n_local}: strategy {recipe.kind('strategy')} uses no local crops; must be 0."
    if optimiser.layer_decay < 1 and not recipe.backbone.startswith("timm/"):
        yield f"optimiser.layer_decay={optimiser.layer_decay}: must be 1; timm/NAME alone knows its layers."
    if optimiser.pull and recipe.init is None:
        yield f"optimiser.pull={optimiser.pull}: must be 0 without init, whose weights it leads back to."
    if not 0 <= optimiser.eta_min <= optimiser.lr:
        yield f"optimiser.eta_min={optimiser.eta_min}: must be 0 to the learning rate ({optimiser.lr})."
    if recipe.augself.weights and (crops.n_global < 2 or recipe.strategy_traits.pairs == "paper"):
        yield "augself compares two encoded global crops: needs crops.n_global=2 or more, and strategy.pairs=mean."


def read_recipe(run: Run) -> Recipe:
    """The recipe of a run folder, checked."""
    try:
        recipe = Recipe.from_json(run.recipe_file.read_text())
        check(recipe)
    except UserError as error:
        raise UserError(f"{run.recipe_file}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{run.recipe_file}: is not a whole recipe ({error!r}).") from error
    return recipe


def recipe_as_written(run: Run) -> dict[str, Any]:
    """The recipe of a run folder by its fields, for those who need no part of it: one's own may be unknown here."""
    record = read_json(run.recipe_file)
    if missing := [name for name in ALWAYS_WRITTEN if name not in record]:
        raise UserError(f"{run.recipe_file}: is not a whole recipe (it has no {missing[0]}).")
    return record


def flat(recipe: Recipe) -> dict[str, Any]:
    """Every field by its full name, values as JSON has them."""

    def walk(part: dict[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in part.items():
            found |= walk(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        return found

    return walk(json.loads(recipe.to_json()), "")


def differences(before: Recipe, after: Recipe) -> Differences:
    """The fields in which two recipes differ, inner ones with a dot, and both values; names do not count."""
    one, other = flat(before), flat(after)
    return {
        field: (one.get(field), other.get(field))
        for field in dict.fromkeys([*one, *other])
        if one.get(field) != other.get(field) and field not in ("name", "paper", "chosen")
    }


def is_harmless(field: str) -> bool:
    """Whether a field, by its full name, may change between two sessions."""
    return field.split(".")[0] in HARMLESS and field not in BUT


def unused(recipe: Recipe) -> set[str]:
    """Fields, by their full names, that have no part in what a recipe learns: what they are about is not there."""
    fields = {"framework.dim"} if recipe.framework_traits.labelled else set()  # as many as there are classes
    return fields if recipe.crops.n_local else fields | {"crops.local_size", "crops.local_scale"}


def refuse_harmful(changes: Differences) -> None:
    """Refuse changes after which the run would be neither the old one nor the new one."""
    for name, (before, after) in changes.items():
        if not is_harmless(name):
            raise UserError(f"{name}={after}: must be {before}, as this run has; start another with its own --out.")
