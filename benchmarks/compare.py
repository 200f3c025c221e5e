"""How often is the verdict of `compare` right? Twenty made-up pairs on scenes, with labels and without; JSON lines.

Ten pairs are an encoder and the same with noise on its weights, of decreasing strength; ten are an epoch of a run and a
later one. Truth is how the pair was made, so the last pairs of each kind may be alike in fact: `points` is their true
difference, by kNN of 2,000 other scenes. For example: compare.py --out runs/compare (which trains it, if needed).
"""

import argparse
import copy
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from logo_ssl.data import Split, load_data
from logo_ssl.data.scenes import make_scenes
from logo_ssl.encoders import baselines, load_encoder, weights_fingerprint
from logo_ssl.eval.compare import TAU, K, class_scores, crop_scores, judge, sample
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.knn import KNN
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.system.hardware import hardware, provenance
from logo_ssl.train import pretrain

STRENGTHS = (4.0, 2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)
"""Standard deviations of the noise, in those of each layer's weights."""
EPOCHS = ((1, 2), (1, 4), (2, 3), (4, 6), (6, 9), (8, 10), (10, 13), (13, 16), (14, 20), (17, 20))
TRAIN, OTHERS, SEED = 2000, 2000, 7
"""Labelled scenes to learn from, and others that tell the truth, with the seed of these."""


def with_weights(encoder, weights, name):
    backbone = copy.deepcopy(encoder.backbone)
    backbone.load_state_dict(weights)
    known = weights_fingerprint(weights, *encoder.architecture)
    return replace(encoder, name=name, backbone=backbone.eval(), fingerprint=known, run=None)


def noisy(encoder, strength):
    generator = torch.Generator().manual_seed(0)
    weights = {name: value.clone() for name, value in encoder.backbone.state_dict().items()}
    for value in weights.values():
        if value.dim() > 1:
            value += strength * value.std() * torch.randn(value.shape, generator=generator)
    return with_weights(encoder, weights, f"noise {strength}")


def at_epoch(encoder, epoch):
    """The encoder as it was in a checkpoint of its run."""
    files = sorted(encoder.run.saved(), key=lambda file: file.name)
    looks = {"size": encoder.size, "mean": encoder.mean, "std": encoder.std}
    return replace(load_encoder(str(files[epoch - 1]), backbone="tiny", **looks), name=f"epoch {epoch}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run, recipe = Run(arguments.out), find_recipe("tiny")
    if not run.is_finished:
        kept = {"knn_every": 0, "checkpoint_keep": recipe.epochs, "seed": arguments.seed, "device": "cpu"}
        pretrain(recipe, run.path, console=Console(file=sys.stderr), **kept)
    how = Extraction("cpu", workers=0, look_for_copies=False)
    end = replace(load_encoder(str(run.path)), name="last epoch")
    data = load_data("scenes", end.size)
    data = replace(data, train=data.train.thinned(TRAIN))
    others = replace(data, test=Split(*make_scenes(OTHERS, end.size, SEED)))
    squares, scores, truth = sample(data, end.size, how), {}, {}

    def measured(encoder):
        if encoder.name not in scores:
            with_labels, _ = class_scores(encoder, data, how, arguments.seed)
            scores[encoder.name] = with_labels, crop_scores(encoder, squares, how, arguments.seed)
            figures = KNN(encoder.name, protocols=((K, TAU),)).measure(encoder, others, how).figures
            truth[encoder.name] = next(iter(figures.values()))
        return encoder.name, scores[encoder.name]

    pairs = [("ruined", end, noisy(end, strength), "worse") for strength in STRENGTHS]
    pairs += [("later", at_epoch(end, before), at_epoch(end, after), "better") for before, after in EPOCHS]
    pairs += [("baseline", end, other, "worse") for other in baselines(end) if other.name != "raw pixels"]
    about = provenance(hardware(torch.device("cpu")))
    counts = {(kind, labels): Counter() for kind, *_ in pairs for labels in ("labels", "no labels")}
    for kind, first, second, made in pairs:
        (name, before), (other, after) = measured(first), measured(second)
        line = {"benchmark": "compare", "pair": [name, other], "points": round(truth[other] - truth[name], 2)}
        for labels, own, theirs in zip(("labels", "no labels"), after, before, strict=True):
            verdict = judge(own, theirs)
            found = "right" if verdict == made else "undecided" if verdict.startswith("no") else "wrong"
            counts[kind, labels][found] += 1
            line |= {labels: found} | {each: round((own[each] - theirs[each]).mean().item(), 2) for each in own}
        print(json.dumps(line), flush=True)
    summary = {f"{kind}, {labels}": dict(count) for (kind, labels), count in counts.items()}
    print(json.dumps({"benchmark": "compare", "seed": arguments.seed, "verdicts": summary} | about))


if __name__ == "__main__":
    main()
