"""What the processes of test_ddp.py do.

`python together.py die ARGUMENTS` is `logo-ssl ARGUMENTS`, in which process 1 is killed in its second epoch unless
it was started again. `python together.py never ARGUMENTS` is told to stop before its first step.
`python together.py learn FOLDER DATA` does everything that two processes can do alive.
"""

import io
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from small_runs import compile_to_the_same

from logo_ssl.augment import CropPlan
from logo_ssl.augself import AugSelfConfig
from logo_ssl.cli import main
from logo_ssl.data import BadImages, ImageSet, Split
from logo_ssl.frameworks import (
    BarlowTwinsConfig,
    BYOLConfig,
    DINOConfig,
    DistilConfig,
    MoCoConfig,
    NNCLRConfig,
    SimCLRConfig,
    SimSiamConfig,
    SupervisedConfig,
    SwAVConfig,
    VICRegConfig,
)
from logo_ssl.recipes import OptimiserConfig, Recipe, find_recipe
from logo_ssl.run import Run
from logo_ssl.strategies import KoLeoConfig, LoGoConfig, MultiCropConfig, TwoViewConfig
from logo_ssl.train import checkpoint, compile
from logo_ssl.train.build import adapt_to_data, build
from logo_ssl.train.loggers import JsonlLogger, ProgressDisplay
from logo_ssl.train.monitors import CollapseGauge
from logo_ssl.train.pretrain import fit, pretrain, resume
from logo_ssl.train.trainer import build_trainer

FRAMEWORKS = {
    "moco": MoCoConfig(dim=8, queue=24, splits=4),
    "simsiam": SimSiamConfig(dim=8, hidden=4, layers=2),
    "byol": BYOLConfig(dim=8, hidden=16, m=0.9),
    "simclr": SimCLRConfig(dim=8),
    "nnclr": NNCLRConfig(dim=8, hidden=16, queue=24),
    "swav": SwAVConfig(dim=8, hidden=16, prototypes=5, queue=24),
    "dino": DINOConfig(dim=8, hidden=16, out_dim=5, m=0.9),
    "vicreg": VICRegConfig(dim=8),
    "barlow-twins": BarlowTwinsConfig(dim=8),
    "distil": DistilConfig("random/tiny", dim=8, hidden=16, queue=24),
    "supervised": SupervisedConfig(dim=8),
}
LOGO = LoGoConfig(depth=2, width=16, lam=0.5)
STRATEGIES = {
    "two-view": TwoViewConfig(),
    "multi-crop": MultiCropConfig(),
    "logo": LOGO,
    "koleo": KoLeoConfig(weight=1.0),
}
BASE = Recipe(
    "together",
    backbone="tiny",
    stem="cifar",
    epochs=2,
    batch_size=8,
    crops=CropPlan(global_size=16, local_size=8),
    optimiser=OptimiserConfig(lr=0.05),
    knn_every=0,
    log_every=1,
    loggers=(),
    device="cpu",
)
CASES = {
    f"{name} {kind}": replace(
        BASE,
        framework=FRAMEWORKS[name],
        strategy=STRATEGIES[kind],
        crops=replace(BASE.crops, n_local=0 if kind == "two-view" else 2),
    )
    for name, kind in [
        *((name, "logo") for name in FRAMEWORKS),
        *(("moco", "two-view"), ("moco", "multi-crop"), ("byol", "multi-crop"), ("moco", "koleo")),
        *(("simclr", "two-view"), ("supervised", "two-view")),
    ]
}
CASES |= {
    "lambda at the parameters": CASES["simclr logo"].changed(strategy=replace(LOGO, balance="parameters")),
    "noise, cosine, more crops": CASES["moco logo"].changed(
        strategy=replace(LOGO, affinity="cosine", noise=0.3), crops=replace(BASE.crops, n_global=3, n_local=3)
    ),
    "noise": CASES["simsiam logo"].changed(strategy=replace(LOGO, noise=0.3, bound="mean-difference", lr=0.003)),
    "LARS and clipping": CASES["byol logo"].changed(optimiser=OptimiserConfig(kind="lars", lr=0.5, clip=0.1)),
    "AugSelf": CASES["simsiam logo"].changed(augself=AugSelfConfig(crop=0.5, colour=0.5)),
}


def states(case: str, folder: Path, devices: int = 1) -> list[dict[str, torch.Tensor]]:
    """Everything that a module holds after its first and after its fourth step in float64, with the last gradients."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20, 3, 20, 20), dtype=torch.uint8, generator=generator)
    data, console = ImageSet("noise", Split(images, torch.arange(20) % 5)), Console(file=io.StringIO())
    recipe = adapt_to_data(replace(CASES[case], devices=devices), data, console.print)
    module, run = build(recipe, data).double(), Run(folder / case)
    draw, step, seen = module.draw_crops, module.training_step, []

    def double(*arguments, **options):
        crops = draw(*arguments, **options)
        done = None if crops.parameters_g is None else crops.parameters_g.double()
        return crops._replace(x_g=crops.x_g.double(), x_l=crops.x_l.double(), parameters_g=done)

    def watched(batch, batch_idx):
        step(batch, batch_idx)
        if module.global_step in (1, 4):
            gradients = {f"gradient of {n}": p.grad for n, p in module.named_parameters() if p.grad is not None}
            seen.append({n: x.clone() for n, x in (module.state_dict() | gradients | ratio(module)).items()})

    module.draw_crops, module.training_step = double, watched
    journal = JsonlLogger(run)
    run.path.mkdir(parents=True, exist_ok=True)
    fit(
        build_trainer(run, recipe, data, journal, ProgressDisplay(journal, console)),
        module,
        data,
        BadImages(20, 1.0),
        console,
    )
    return seen


def ratio(module):
    return {name: value for name, value in module.logged.items() if name == "ratio"}


def small(data: str, devices: int) -> Recipe:
    """Six steps of the recipe tiny; it logs, checkpoints and evaluates."""
    sizes = {"crops__global_size": 16, "crops__local_size": 8, "framework__queue": 32, "strategy__depth": 2}
    often = {"knn_every": 1, "log_every": 1, "epochs": 2, "batch_size": 16}
    return find_recipe("tiny").changed(data=data, device="cpu", devices=devices, loggers=(), **sizes, **often)


OPTIONS = [
    *("--crops.global-size", "16", "--crops.local-size", "8", "--framework.queue", "32", "--strategy.depth", "2"),
    *("--knn-every", "1", "--log-every", "1", "--epochs", "2", "--batch-size", "16", "--device", "cpu", "--loggers"),
]
"""The same on the command line."""


def cut_short(recipe: Recipe, out: Path) -> None:
    """A run that ends inside its second epoch, with a checkpoint of every step."""
    original = CollapseGauge.on_train_batch_end

    def power_cut(self, trainer, *arguments):
        original(self, trainer, *arguments)
        if trainer.global_step == 5:
            raise ZeroDivisionError("power cut")

    CollapseGauge.on_train_batch_end = power_cut
    try:
        pretrain(replace(recipe, checkpoint_minutes=1e-9), out, console=Console(file=io.StringIO()))
    except ZeroDivisionError:
        assert Path(out, "checkpoints").is_dir()
    finally:
        CollapseGauge.on_train_batch_end = original


def die(arguments: list[str]) -> None:
    """The command line, and an end before the second checkpoint."""
    original = CollapseGauge.on_train_epoch_end

    def last_breath(self, trainer, module):
        if trainer.current_epoch == 1 and trainer.global_rank == 1 and not int(os.environ.get("AGAIN", "0")):
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, trainer, module)

    os.environ["AGAIN"] = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    CollapseGauge.on_train_epoch_end = last_breath
    main(arguments)


def stopped(ranks: str, step: int, arguments: list[str]) -> int:
    """The command line, with a SIGTERM to processes of these numbers ("1" or "01") after a step; its exit code."""
    original = CollapseGauge.on_train_batch_end

    def told(self, trainer, *arguments):
        original(self, trainer, *arguments)
        if trainer.global_step == step and str(trainer.global_rank) in ranks:
            os.kill(os.getpid(), signal.SIGTERM)

    CollapseGauge.on_train_batch_end = told
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        CollapseGauge.on_train_batch_end = original


def half_compiled(recipe: Recipe, out: Path) -> str:
    """A run with synchronised batch norm whose compiler fails in process 1; what was said."""
    said = Console(file=io.StringIO(), width=400)

    def broken(function, **options):
        raise RuntimeError("no compiler found\nwith a long tale")

    with pytest.MonkeyPatch.context() as patch:
        compile_to_the_same(patch)
        if os.environ.get("LOCAL_RANK") == "1":
            patch.setattr(torch, "compile", broken)
        pretrain(replace(recipe, framework=FRAMEWORKS["simsiam"], compile="on", epochs=1), out, console=said)
    return said.file.getvalue()


def never(arguments: list[str]) -> None:
    """The command line, in which process 0 is told to stop while it waits for process 1 to compile."""
    first, barrier = os.environ.get("LOCAL_RANK", "0") == "0", compile.barrier

    def no_answer(*arguments):
        if not first:
            threading.Event().wait(60)

    def wait_in_vain():
        if first:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        barrier()

    compile.try_to_compile, compile.barrier = no_answer, wait_in_vain
    main(arguments)


def learn_together(folder: Path, data: str) -> None:
    """A run, which starts the other process; one cut short and resumed; one left to others, one that others left."""
    begin = ["pretrain", "tiny", "--data", data, "--devices", "2", *OPTIONS, "--out"]
    with suppress(SystemExit):
        main([*begin, str(folder / "whole")])
    quiet = Console(file=io.StringIO())
    out = str(folder / "stopped")
    codes = [stopped("1", 2, [*begin, out]), stopped("01", 4, ["resume", out])]
    resume(out, console=quiet)
    (folder / f"codes-{os.environ['LOCAL_RANK']}.json").write_text(json.dumps(codes))
    said = half_compiled(small(data, devices=2), folder / "half-compiled")
    (folder / f"half-compiled-{os.environ['LOCAL_RANK']}.txt").write_text(said)
    cut_short(small(data, devices=2), folder / "cut-by-two")
    resume(folder / "cut-by-one", console=quiet, devices=2)
    learned = {case: states(case, folder / "cases", devices=2) for case in CASES}
    torch.save(learned, folder / f"states-{os.environ['LOCAL_RANK']}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoint.AGREE_EVERY = 1  # after every step
    if sys.argv[1] == "die":
        die(sys.argv[2:])
    elif sys.argv[1] == "never":
        never(sys.argv[2:])
    else:
        learn_together(Path(sys.argv[2]), sys.argv[3])
