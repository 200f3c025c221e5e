"""Which settings make a run? A `Recipe`: nested, frozen, saved as JSON."""

import json
import os
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import tyro

from ..augment import CropPlan
from ..augself import AugSelfConfig
from ..data import LoadingConfig
from ..errors import UserError, WrongValue, nearest
from ..frameworks import FRAMEWORKS, FrameworkConfig, FrameworkTraits, MoCoConfig
from ..strategies import STRATEGIES, LoGoConfig, StrategyConfig, StrategyTraits

NoFlag = tyro.conf.Suppress
PARTS: dict[str, dict[str, type]] = {"framework": FRAMEWORKS, "strategy": STRATEGIES}
"""What can be swapped by name, and others may add to."""


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
    lr: float = 0.06
    """Peak learning rate (eta_max), for the batch size of the recipe."""
    eta_min: float = 0.0
    """Learning rate at the end of the cosine."""
    warmup_epochs: float = 0.0
    """Epochs of linear warm-up."""
    momentum: float = 0.9
    """Momentum of SGD and LARS."""
    weight_decay: float = 1e-4
    """Weight decay; LARS and AdamW spare biases and norms."""
    clip: float = 0.0
    """Largest norm of the encoder's gradient; 0 does not clip."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run's result."""

    name: NoFlag[str]
    """Name of the recipe."""
    data: str = "scenes"
    """A name (scenes, cifar10, ...), a folder of images or of .tar shards, a text file of paths, or an .npz file."""
    backbone: str = "resnet18"
    """tiny, small-alexnet, resnet18, resnet34, resnet50, timm/NAME, or one of your own."""
    stem: Literal["imagenet", "cifar"] = "imagenet"
    """First layers of a ResNet: 7x7 stride 2 and max-pool, or 3x3 stride 1 for small images."""
    init: str | None = None
    """Start from these backbone weights: a .safetensors file, a run folder, or `pretrained` (torchvision, timm)."""
    initialisation: Literal["library", "torch"] = "library"
    """How convolutions begin without `init`: as their library draws them, or by torch's default (in a ResNet mostly
    smaller, by which steps turn them further)."""
    epochs: int = 200
    """Passes over the data."""
    batch_size: int = 512
    """Images per step, of all processes together."""
    seed: int = 0
    """Decides initial weights, order and augmentation."""
    framework: FrameworkConfig = field(default_factory=MoCoConfig)
    """How crops are compared."""
    strategy: StrategyConfig = field(default_factory=LoGoConfig)
    """Which crops are compared."""
    crops: CropPlan = field(default_factory=CropPlan)
    """How crops are made."""
    augself: AugSelfConfig = field(default_factory=AugSelfConfig)
    """An objective beside: predict how the augmentations of two crops differ."""
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    """How the encoder learns."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """bf16 autocast for the encoder, or fp32; auto takes bf16 on CUDA alone. Losses and regressor always run in fp32.
    fp32 leaves TF32 to cuDNN's convolutions, which is torch's own default."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train."""
    devices: int | Literal["auto"] = 1
    """Processes on each machine, one GPU each; auto: as many as it has GPUs. Under torchrun and Slurm, theirs."""
    nodes: int = 1
    """Machines."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile for crops and networks, CUDA graphs for the step; auto: on CUDA. Takes a minute at the start."""
    knn_every: int = 10
    """Epochs between two online kNN evaluations; 0 for none."""
    loading: LoadingConfig = field(default_factory=LoadingConfig)
    """How images get to the device."""
    log_every: int = 20
    """Steps between two lines in metrics.jsonl."""
    checkpoint_every: int = 1
    """Epochs between two checkpoints."""
    checkpoint_minutes: float = 10.0
    """Minutes between two checkpoints, inside an epoch if need be (the first comes after a tenth of them); 0 for epochs
    only."""
    checkpoint_keep: int = 2
    """How many checkpoints stay on disk."""
    on_collapse: Literal["warn", "stop"] = "warn"
    """What to do when the latents collapse to a point."""
    deterministic: bool = False
    """Make CUDA repeat itself bit by bit, which is slower; a CPU always does."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ("tensorboard",)
    """Loggers beside metrics.jsonl."""
    paper: NoFlag[tuple[PaperRow, ...]] = ()
    """The rows of the paper that this recipe stands for."""
    chosen: NoFlag[tuple[str, ...]] = ()
    """Why values are what they are, where they were chosen for the data (recipe `auto`)."""

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
            elif lacking := recipe.lacks(path.replace("__", ".")):
                raise WrongValue(lacking)
            else:
                recipe = _set(recipe, path.split("__"), changes[path])
        return recipe

    def with_part(self, part: str, value: Any) -> "Recipe":
        """The recipe with another framework or strategy, by name or with settings; unused local crops are left out."""
        known = PARTS[part]
        if isinstance(value, str):
            if value not in known:
                raise UserError(f"No {part} is called {value!r}; choose {', '.join(known)}.{nearest(value, known)}")
            value = known[value]()
        _kind(part, value)  # refuses what is none
        recipe = replace(self, **{part: value})
        if not recipe.strategy_traits.least_local:
            recipe = replace(recipe, crops=replace(recipe.crops, n_local=0))
        return recipe

    def lacks(self, name: str) -> str:
        """A sentence about a field, `strategy.lam`, that this recipe's part has not and another has; else nothing."""
        part, having = kinds_with(name)
        if not having or self.kind(part) in having:
            return ""
        field = name.partition(".")[2].replace("-", "_")
        return f"{part.capitalize()} {self.kind(part)} has no {field}; --{part} {' or '.join(having)} has."

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
        record = json.loads(text)
        for name, registry in PARTS.items():
            part = record[name]
            if part["kind"] not in registry:
                raise UserError(
                    f"The recipe's {name} is {part['kind']!r}, and there are {', '.join(registry)}; one of your own is "
                    "known where the file that registers it runs the command, as `python examples/own_framework.py "
                    "report runs/own` does."
                )
            record[name] = _build(registry[part.pop("kind")], part)
        record["crops"] = _build(CropPlan, record["crops"])
        record["augself"] = _build(AugSelfConfig, record.get("augself", {}))
        record["loading"] = _build(LoadingConfig, record.get("loading", {}))
        record["optimiser"] = _build(OptimiserConfig, record["optimiser"])
        record["paper"] = tuple(_build(PaperRow, row) for row in record["paper"])
        return _build(cls, record)


def kinds_with(name: str) -> tuple[str, list[str]]:
    """Of a field, `strategy.lam`, the part, and the names of those that have it."""
    part, _, field = name.partition(".")
    field = field.replace("-", "_")
    return part, [kind for kind, config in PARTS.get(part, {}).items() if field in {f.name for f in fields(config)}]


def _set(part: Any, path: list[str], value: Any) -> Any:
    known = [f.name for f in fields(part)]
    if path[0] not in known:
        raise UserError(
            f"{type(part).__name__} has no field {path[0]!r}; it has {', '.join(known)}.{nearest(path[0], known)}"
        )
    inner = getattr(part, path[0])
    return replace(part, **{path[0]: _set(inner, path[1:], value) if path[1:] else _fitting(part, path[0], value)})


def as_python(value: Any) -> Any:
    """Numpy's numbers and arrays, lists and paths as numbers, tuples and text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(as_python, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _fitting(part: Any, name: str, value: Any) -> Any:
    """The value as Python has it; a UserError where it is not of the field's type."""
    value, hint = as_python(value), get_type_hints(type(part))[name]
    if _fits(value, hint):
        return value
    if get_origin(hint) is Literal:
        known = [str(each) for each in get_args(hint)]
        raise WrongValue(f"--{name} is {value!r}; choose {', '.join(known)}.{nearest(str(value), known)}")
    raise UserError(f"{name} is {value!r}, which cannot be; give something like {getattr(part, name)!r}.")


def _kind(part: str, config: object) -> str:
    for name, kind in PARTS[part].items():
        if type(config) is kind:
            return name
    registry = "STRATEGIES of logo_ssl.strategies" if part == "strategy" else "FRAMEWORKS of logo_ssl.frameworks"
    known = ", ".join(PARTS[part])
    raise UserError(
        f"{part} is {config!r}, which cannot be; choose {known}, or give a class of your own a name in {registry}."
    )


def _build(cls: Any, record: Any) -> Any:
    if not isinstance(record, dict):
        raise UserError(f"{record!r} in the recipe is no {cls.__name__}.")
    hints = get_type_hints(cls)
    for key in record.keys() - hints.keys():
        raise UserError(f"Unknown field {key!r} in the recipe's {cls.__name__}.{nearest(key, hints)}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}
    for key, value in values.items():
        if not is_dataclass(value) and not _fits(value, hints[key]):  # parts are built and checked before
            raise UserError(f"{key} is {record[key]!r} in the recipe's {cls.__name__}, which cannot be.")
    return cls(**values)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number passes for a float, and a config for its base."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            if hint is float:
                return isinstance(value, int | float) and not isinstance(value, bool)
            return isinstance(value, hint or type(None)) and (hint is bool or not isinstance(value, bool))
        case origin if origin is Literal:
            return value in arguments
        case origin if origin is tuple:
            inner = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
            return len(value) == len(inner) and all(map(_fits, value, inner)) if isinstance(value, tuple) else False
        case _:
            return any(_fits(value, each) for each in arguments)
