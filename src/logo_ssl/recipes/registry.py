"""All recipes by name: one for each row of Tables 1, 2, 3, 4 and 7 of the paper, and our own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..augment import CropPlan
from ..augself import AugSelfConfig
from ..errors import UserError, nearest
from ..frameworks import (
    BarlowTwinsConfig,
    BYOLConfig,
    DINOConfig,
    FrameworkConfig,
    MoCoConfig,
    NNCLRConfig,
    SimCLRConfig,
    SimSiamConfig,
    SupervisedConfig,
    SwAVConfig,
    VICRegConfig,
)
from ..run import Run
from ..strategies import LoGoConfig, MultiCropConfig, StrategyConfig, TwoViewConfig
from .config import PARTS, OptimiserConfig, Recipe, read_recipe
from .paper import PAPER

# "For each framework, we use the same lambda value for all datasets" (4.1).
LAMBDA = {"moco": 5e-4, "simsiam": 1e-4}
# MoCo v2's two views; the public code's local and global scales (docs/decisions/0003).
BASELINE_SCALE, GLOBAL_SCALE, LOCAL_SCALE = (0.2, 1.0), (0.4, 1.0), (0.05, 0.4)


def _strategy(kind: str, framework: str, papers: bool) -> StrategyConfig:
    """As the paper writes it where `papers` and it has such a row; else by the defaults, which average pairs.

    Pairs are then summed (Eq. 9), MoCo's baseline asks one way, and lambda is the paper's; Omega is bounded in either
    (docs/decisions/0005, 0002).
    """
    literal = papers and framework in LAMBDA
    pairs = "paper" if literal else "mean"
    match kind:
        case "two-view":
            return TwoViewConfig(pairs if framework == "moco" else "mean")
        case "multi-crop":
            return MultiCropConfig(pairs)
        case _:
            return LoGoConfig(LAMBDA[framework], pairs=pairs) if literal else LoGoConfig()


def _family(
    base: Recipe, configs: dict[str, FrameworkConfig], lrs: dict[str, float], papers: bool = True
) -> list[Recipe]:
    """Every framework x strategy on one data set and backbone."""
    made = []
    for framework, config in configs.items():
        for kind, suffix in (("two-view", ""), ("multi-crop", "-multicrop"), ("logo", "-logo")):
            crops = base.crops
            if kind == "two-view":
                crops = replace(crops, n_local=0, global_scale=BASELINE_SCALE)
            optimiser = replace(base.optimiser, lr=lrs.get(framework, base.optimiser.lr))
            name = f"{base.name}-{framework}{suffix}"
            made.append(
                replace(
                    base,
                    name=name,
                    framework=config,
                    strategy=_strategy(kind, framework, papers),
                    crops=crops,
                    optimiser=optimiser,
                    paper=tuple(PAPER.get(name, ())),
                )
            )
    return made


def _supervised(base: Recipe) -> Recipe:
    """The baseline "Super": one crop with the standard augmentation of classifiers, 100 epochs."""
    crops = replace(base.crops, n_global=1, n_local=0, global_scale=(0.08, 1.0), jitter_p=0.0, grey_p=0.0, blur_p=0.0)
    return replace(
        base,
        name=f"{base.name}-supervised",
        epochs=100,
        batch_size=256,
        framework=SupervisedConfig(),
        strategy=TwoViewConfig(),
        crops=crops,
        optimiser=replace(base.optimiser, lr=0.1),
        paper=(),
    )


CIFAR10 = Recipe(
    "cifar10",
    data="cifar10",
    backbone="resnet18",
    stem="cifar",
    crops=CropPlan(global_size=32, local_size=32, global_scale=GLOBAL_SCALE, local_scale=LOCAL_SCALE),
    checkpoint_every=10,
)
STL10 = replace(
    CIFAR10,
    name="stl10",
    data="stl10",
    backbone="small-alexnet",
    stem="imagenet",
    batch_size=256,
    crops=replace(CIFAR10.crops, global_size=64, local_size=64),
)
IMAGENET100 = replace(
    CIFAR10,
    name="imagenet100",
    data="imagenet100",
    backbone="resnet34",
    stem="imagenet",
    batch_size=256,
    crops=replace(CIFAR10.crops, global_size=224, local_size=96, blur_p=0.5),
    checkpoint_every=1,
)

# Few steps: keys must be young (a short queue), and colour, which says nothing of a scene's class, must not help.
TINY = Recipe(
    "tiny",
    data="scenes",
    backbone="tiny",
    epochs=20,
    batch_size=64,
    framework=MoCoConfig(dim=64, head="mlp-bn", tau=0.2, m=0.99, queue=512, splits=2),
    crops=CropPlan(global_size=32, local_size=16, jitter=(0.8, 0.8, 0.8, 0.4), grey_p=0.5),
    optimiser=OptimiserConfig(lr=0.06, warmup_epochs=1, weight_decay=5e-4),
    knn_every=5,
    log_every=10,
)

# The rows on CIFAR-10 with settings of our choice: docs/decisions/0025.
TUNED = replace(
    CIFAR10,
    name="cifar10-tuned",
    batch_size=256,
    crops=replace(CIFAR10.crops, global_scale=BASELINE_SCALE),
    optimiser=OptimiserConfig(lr=0.12, weight_decay=5e-4),
)
TUNED_MOCO = MoCoConfig(head="mlp-bn", tau=0.2, m=0.99, queue=4096)
# MoCo's have small local crops and twice the weight decay: results/README.md, experiments 41 and 46.
TUNED_FOR_MOCO = replace(
    TUNED, crops=replace(TUNED.crops, local_size=16), optimiser=replace(TUNED.optimiser, weight_decay=1e-3)
)
LARGE_LOCAL = replace(TUNED.crops, local_scale=(0.2, 0.8))

# Six large crops, all pairs of them: results/README.md, experiment 21.
CIFAR10_BEST = replace(
    TUNED_FOR_MOCO,
    name="cifar10-best",
    framework=TUNED_MOCO,
    strategy=TwoViewConfig(pairs="mean"),
    crops=replace(TUNED.crops, n_global=6, n_local=0),
)

# On photographs, the settings that served CIFAR-10 with the public code's small local crops: experiment 17.
IMAGENETTE = replace(
    TUNED,
    name="imagenette",
    data="imagenette",
    stem="imagenet",
    crops=replace(IMAGENET100.crops, global_size=128, local_size=64, global_scale=BASELINE_SCALE),
)

# Not measured yet: learning rates and optimisers of lightly's CIFAR-10 and Imagenette benchmarks
# (docs/source/getting_started/benchmarks in its repository) for batches of 256; crops and heads are ours.
SGD = OptimiserConfig(lr=0.06, weight_decay=5e-4)
ADAMW = OptimiserConfig("adamw", lr=1e-3, weight_decay=1e-6)
LARS = OptimiserConfig("lars", lr=0.3, weight_decay=1e-4, warmup_epochs=20)
ON_IMAGENETTE: dict[str, tuple[FrameworkConfig, OptimiserConfig]] = {
    "simsiam": (SimSiamConfig(), SGD),
    "byol": (BYOLConfig(m=0.99), SGD),
    "simclr": (SimCLRConfig(tau=0.5), SGD),
    "nnclr": (NNCLRConfig(tau=0.5, queue=4096), SGD),
    "swav": (SwAVConfig(prototypes=3000, epsilon=0.05), ADAMW),
    "dino": (DINOConfig(m=0.99, tau_t=0.07, tau_t_start=0.04), SGD),
    "vicreg": (VICRegConfig(), LARS),
    "barlow-twins": (BarlowTwinsConfig(), SGD),
}
ON_CIFAR10: dict[str, tuple[FrameworkConfig, OptimiserConfig]] = {
    "nnclr": (NNCLRConfig(tau=0.5, queue=4096), replace(SGD, lr=0.12)),
    "swav": (SwAVConfig(hidden=512, epsilon=0.05), replace(ADAMW, lr=2e-3)),
    "dino": (DINOConfig(m=0.99, tau_t=0.07, tau_t_start=0.04), replace(SGD, lr=0.12)),
    "vicreg": (VICRegConfig(), LARS),  # lightly has no such row: its Imagenette's, and solo-learn's for CIFAR-10
    "barlow-twins": (BarlowTwinsConfig(layers=2), replace(SGD, lr=0.12)),
}
# Nor are vision transformers: DINO's and MoCo v3's optimisers for ViT-S on ImageNet (main_dino.py, CONFIG.md), with a
# last layer and a queue for 9,469 images.
VIT = replace(IMAGENETTE, backbone="timm/vit_small_patch16_224")
DINO_ADAMW = OptimiserConfig("adamw", 5e-4, 1e-6, warmup_epochs=10, weight_decay=0.04, weight_decay_end=0.4)
MOCO_V3_ADAMW = OptimiserConfig("adamw", 1.5e-4, warmup_epochs=27, weight_decay=0.1)
UNMEASURED = (
    (replace(TUNED, name="cifar10"), ON_CIFAR10),
    (IMAGENETTE, ON_IMAGENETTE),
    (
        replace(VIT, drop_path=0.1),
        {"dino-vit": (DINOConfig(batch_norm=False, tau_t=0.07, tau_t_start=0.04), DINO_ADAMW)},
    ),
    (VIT, {"moco-vit": (TUNED_MOCO, MOCO_V3_ADAMW)}),
)

RESNET50 = _family(
    replace(IMAGENET100, name="imagenet100-resnet50", backbone="resnet50"),
    {"moco": MoCoConfig(tau=0.07)},
    {"moco": 0.03},
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        TINY,
        *_family(
            CIFAR10,
            {
                "moco": MoCoConfig(tau=0.1, m=0.99, queue=4096),  # its head: docs/decisions/0026
                "simsiam": SimSiamConfig(layers=2),
                "byol": BYOLConfig(hidden=2048, m=0.99),
                "simclr": SimCLRConfig(tau=0.5),
            },
            {},
        ),
        *_family(TUNED_FOR_MOCO, {"moco": TUNED_MOCO}, {}, papers=False),
        *_family(
            replace(TUNED, batch_size=128, crops=LARGE_LOCAL),
            {"simsiam": SimSiamConfig(layers=2)},
            {"simsiam": 0.06},
            papers=False,
        ),
        CIFAR10_BEST,
        *_family(IMAGENETTE, {"moco": TUNED_MOCO}, {}, papers=False),
        *(
            recipe
            for base, rows in UNMEASURED
            for name, (config, optimiser) in rows.items()
            for recipe in _family(replace(base, optimiser=optimiser), {name: config}, {}, papers=False)
        ),
        *_family(
            STL10,
            {"moco": MoCoConfig(tau=0.2, queue=16384), "simsiam": SimSiamConfig()},
            {"moco": 0.03, "simsiam": 0.05},
        ),
        *_family(
            IMAGENET100, {"moco": MoCoConfig(tau=0.07), "simsiam": SimSiamConfig()}, {"moco": 0.03, "simsiam": 0.05}
        ),
        *RESNET50,
        replace(
            RESNET50[0],
            name="imagenet100-resnet50-moco-augself",
            strategy=TwoViewConfig(pairs="mean"),  # both crops must be encoded
            augself=AugSelfConfig(crop=0.5, colour=0.5),
            paper=(),
        ),
        _supervised(CIFAR10),
        _supervised(IMAGENET100),
        _supervised(replace(IMAGENET100, name="imagenet100-resnet50", backbone="resnet50")),
    )
}


def find_recipe(name: str) -> Recipe:
    """The recipe of that name, of a run folder, or in a .json or .yaml file."""
    if name in RECIPES:
        return RECIPES[name]
    path = Path(name)
    if path.is_dir():
        return replace(read_recipe(Run.existing(path)), replans=())
    if path.suffix in (".json", ".yaml", ".yml") and path.is_file():
        return recipe_in(path)
    raise UserError(
        f"recipe={name!r}: must be auto, a name that `logo-ssl recipes` lists, a run folder, or a .json or .yaml file."
        f"{nearest(name, RECIPES)}"
    )


def recipe_in(path: Path) -> Recipe:
    """The recipe in a file: any fields, in their parts or as `strategy.lam`; the others are those of its `recipe`.

    A run's recipe.json is such a file.
    """
    try:
        record = _values(yaml.load(path.read_text(), yaml.BaseLoader))  # which makes texts alone
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({str(error).splitlines()[0]}).") from error
    if not isinstance(record, dict):
        raise UserError(f"{path}: must have fields of a recipe, such as `epochs: 50`.")
    base = record.pop("recipe", None)
    record = {name: value for name, value in record.items() if name not in ("name", "paper", "chosen", "replans")}
    try:
        recipe = Recipe(path.stem) if base is None else replace(find_recipe(str(base)), name=path.stem, paper=())
        return recipe.changed(**_paths(record))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _values(part: Any) -> Any:
    """Texts as JSON reads them: YAML's own rules take `off` for False and 1e-4 for a text."""
    if isinstance(part, dict):
        return {name: _values(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_values(value) for value in part]
    try:
        return json.loads(str(part).lower())
    except ValueError:
        return part


def _paths(record: dict[str, Any], inside: str = "") -> dict[str, Any]:
    """Fields by the names that `Recipe.changed` takes."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        path = f"{inside}{name}".replace(".", "__")
        if path in PARTS and isinstance(value, dict):
            value = dict(value)
            found |= {path: value.pop("kind")} if "kind" in value else {}
        found |= _paths(value, f"{path}__") if isinstance(value, dict) else {path: value}
    return found


def tuned(recipe: Recipe) -> Recipe | None:
    """The same row with settings of our choice, if there is one."""
    data, _, row = recipe.name.partition("-")
    return RECIPES.get(f"{data}-tuned-{row}")


def literal(recipe: Recipe) -> Recipe:
    """The same row with the paper's settings, without any changes."""
    return RECIPES[recipe.name.replace("-tuned-", "-", 1)]
