"""Does adapting a pretrained encoder to unlabelled images help? All images of a set and a few, by arm; kNN and linear.

    python benchmarks/adapt.py pets80 --start runs/imagenette --seeds 0 1 2 --jobs 4
    python benchmarks/adapt.py pets80 --start runs/imagenette --images 500 --arms start adapted

Arms: `start` is not trained; `adapted` has the settings that `auto` chooses for --init; `plain` spares the backbone
nothing; `nothing` begins from random weights and trains for as many steps. Finished runs are not run again, interrupted
ones go on.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from cpu_network import few_images
from l2l import LINEAR, figures

from logo_ssl.recipes import Recipe
from logo_ssl.reproduce.run import Runner
from logo_ssl.reproduce.tables import KNN, Evaluation, RowRun
from logo_ssl.system.terminal import plain_console
from logo_ssl.train.build import recipe_for

ARMS = ("start", "adapted", "plain", "nothing")
PLAIN = {"optimiser__frozen_epochs": 0.0, "optimiser__backbone_lr": 1.0, "optimiser__pull": 0.0}
MEASURES = ("knn-20", "knn-200", "linear")


class StartRow(NamedTuple):
    """Measures the encoder that others start from, as `RowRun` measures a run."""

    start: str
    folder: Path
    evaluations: tuple[Evaluation, ...]
    device: str

    @property
    def log(self) -> Path:
        """What its commands print, if rows run side by side."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def commands(self) -> Iterator[list[str]]:
        """What is left to do, as arguments of `logo-ssl`."""
        for evaluation in self.evaluations:
            result = self.folder / "evaluation" / f"reproduce-{evaluation.name}.json"
            result.parent.mkdir(parents=True, exist_ok=True)
            if not result.is_file():
                protocol, *options = evaluation.arguments
                where = ["--no-baselines", "--device", self.device, "--out", str(result)]
                yield ["eval", protocol, self.start, *options, *where]


def recipe_of(data: str, arm: str, options: argparse.Namespace) -> Recipe:
    """What `auto` chooses for an arm; all arms have the network, crops and steps of `adapted`."""
    recipe = recipe_for(data, options.device, {"init": options.start})
    recipe = recipe if options.epochs is None else replace(recipe, epochs=options.epochs)
    network = {name: getattr(recipe, name) for name in ("backbone", "stem", "pooling", "epochs")}
    if arm == "nothing":
        recipe = recipe_for(data, options.device, network).changed(**network)
    elif arm == "plain":
        recipe = recipe.changed(**PLAIN)
    if arm != "nothing":
        recipe = replace(recipe, init=options.start)
    return replace(recipe, name="tiny", device=options.device, knn_every=0)  # a name whose options say all that differs


def spread(runs: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, by measure."""
    known = {measure: [run[measure] for run in runs if measure in run] for measure in MEASURES}
    return {
        measure: [round(mean(values), 2), round(stdev(values), 2) if len(values) > 1 else None, len(values)]
        for measure, values in known.items()
        if values
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path, help="a folder with train/ and test/ or val/, or an .npz file")
    parser.add_argument("--start", required=True, help="the run, checkpoint or library's network to adapt")
    parser.add_argument("--images", type=int, nargs="+", default=[0, 500], help="how many to train on; 0: all")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, help="default: auto's")
    parser.add_argument("--out", type=Path, default=Path("runs/adapt"))
    options = parser.parse_args()
    if Path(options.start).exists():
        options.start = str(Path(options.start).absolute())
    out, whole = options.out.absolute(), str(options.set.absolute())
    evaluations = tuple(each._replace(arguments=(*each.arguments, "--data", whole)) for each in (KNN, LINEAR))
    rows = list[Any]()
    for seed in options.seeds:
        for n in options.images:
            data = str(few_images(options.set, out / "parts" / str(n), n)) if n else whole
            for arm in options.arms:
                if arm != "start":
                    recipe = replace(recipe_of(data, arm, options), data=data, seed=seed)
                    folder = out / f"{options.set.stem}-{n or 'all'}-{arm}" / f"seed{seed}"
                    rows.append(RowRun(recipe, folder, evaluations))
                elif not any(isinstance(row, StartRow) for row in rows):
                    folder = out / f"{options.set.stem}-start" / "seed0"
                    rows.append(StartRow(options.start, folder, evaluations, options.device))
    Runner(options.jobs, plain_console().print).run_all(rows, lambda outcomes: None)
    for folder in sorted({row.folder.parent for row in rows}):
        runs = [figures(run) for run in sorted(folder.glob("seed*"))]
        print(json.dumps({"benchmark": "adapt", "runs": folder.name, "start": options.start} | spread(runs)))


if __name__ == "__main__":
    main()
