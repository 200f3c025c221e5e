"""Which settings make a run? A `Recipe`: nested, frozen, saved as JSON."""

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, get_type_hints

import tyro

from ..augment import CropPlan
from ..augself import AugSelfConfig
from ..data import LoadingConfig
from ..errors import UserError, nearest
from ..frameworks import FrameworkConfig, FrameworkTraits, MoCoConfig
from ..strategies import LoGoConfig, StrategyConfig, StrategyTraits
from .fields import built, fitting, refuse_other_type, refuse_wrong_fields
from .parts import PARTS, called, kind_of, kinds_with, refuse_wrong_part, registered

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
                raise UserError(lacking)
            else:
                recipe = _set(recipe, path.split("__"), changes[path])
        return recipe

    def with_part(self, part: str, value: Any) -> "Recipe":
        """The recipe with another framework or strategy, by name or with settings; unused local crops are left out."""
        value = called(part, value) if isinstance(value, str) else value
        refuse_wrong_part(part, value)
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
        return f"{part.capitalize()} {self.kind(part)} has no {field}; {part}={' or '.join(having)} has it."

    def kind(self, part: str) -> str:
        """The name of the framework or strategy: that of its own class, not of one which that extends."""
        return kind_of(part, getattr(self, part))

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
        for name in PARTS:
            part, registry = record[name], registered(name)
            if part["kind"] not in registry:
                raise UserError(
                    f"The recipe's {name} is {part['kind']!r}, and there are {', '.join(registry)}; one of your own is "
                    f"known where the file that registers it runs the command: `python FILE ...`."
                )
            record[name] = built(registry[part.pop("kind")], part)
        record["crops"] = built(CropPlan, record["crops"])
        record["augself"] = built(AugSelfConfig, record.get("augself", {}))
        record["loading"] = built(LoadingConfig, record.get("loading", {}))
        record["optimiser"] = built(OptimiserConfig, record["optimiser"])
        record["paper"] = tuple(built(PaperRow, row) for row in record["paper"])
        return built(cls, record)


def _set(part: Any, path: list[str], value: Any) -> Any:
    known = [f.name for f in fields(part)]
    if path[0] not in known:
        raise UserError(
            f"{type(part).__name__} has no field {path[0]!r}; it has {', '.join(known)}.{nearest(path[0], known)}"
        )
    inner = getattr(part, path[0])
    return replace(part, **{path[0]: _set(inner, path[1:], value) if path[1:] else fitting(part, path[0], value)})


def refuse_wrong_types(recipe: Recipe) -> None:
    """Refuse a recipe with a value that is not of its field's type, or that a run folder could not keep."""
    hints = get_type_hints(type(recipe))
    for name in (each.name for each in fields(recipe)):
        value = getattr(recipe, name)
        if name in PARTS:
            refuse_wrong_part(name, value)
            continue
        refuse_other_type(name, value, hints[name])
        if is_dataclass(value):
            refuse_wrong_fields(value, f"{name}.")
