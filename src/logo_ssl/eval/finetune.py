"""Fine-tuning of all weights: `eval finetune` on all labels, `eval semi` on class-balanced shares of them."""

import time
from copy import deepcopy
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar

import torch
import tyro
from torch import nn

from ..data import BadImages, ImageSet, LoadingConfig, Split
from ..encoders import FrozenEncoder, Pixels
from ..errors import UserError
from ..frameworks import SupervisedConfig
from ..ranges import Allowed, Count, Positive, Seed, at_least
from ..recipes import OptimiserConfig, Recipe
from ..run import Run
from ..strategies import TwoViewConfig
from ..system.randomness import stream
from ..system.terminal import counted, plain_console
from ..train import Pretraining
from ..train.loggers import JsonlLogger, ProgressDisplay
from ..train.monitors import Diverged, is_finite
from ..train.pretrain import fit
from ..train.trainer import build_trainer
from .features import Extraction, exact_convolutions, in_channels, labelled_features, readable
from .lbfgs import select_weight
from .linear import STANDARD_CROPS
from .protocol import DataProtocol, Measurement, standard_errors, top_k, tops_for
from .splits import balanced_share, class_names, count_copies, guessing, labelled_splits, labels_of, split_test

PROTOCOL = (
    "all weights fine-tuned end to end with a linear classifier: SGD, "
    f"momentum {OptimiserConfig.momentum}, weight decay {OptimiserConfig.weight_decay:g}, cosine, "
    "random crops and flips; last epoch, no choice on any held-out image"
)
Fractions = Annotated[
    tuple[float, ...], Allowed(lambda parts: parts and all(0 < part <= 1 for part in parts), "above 0 and at most 1")
]
CURE = "nothing of the fine-tuning is kept, and the same command starts it again"


@dataclass(frozen=True)
class FineTune(DataProtocol):
    """All weights trained end to end with all labels.

    example: logo-ssl eval finetune runs/first --data photos/ --epochs 20 --batch-size 64
    """

    epochs: Count = 50
    """Passes over the labelled images."""
    lr: Positive = 0.03
    """Peak learning rate; it does not follow the batch size."""
    batch_size: Annotated[int, at_least(2, ", since batch norm compares images")] = 256
    """Images per step; fewer need less memory."""
    seed: Seed = 0
    """Decides the shares, the classifier's start, order and augmentation."""
    fractions: tyro.conf.Suppress[Fractions] = (1.0,)
    baselines: tyro.conf.Suppress[bool] = False

    title = "Fine-tuned"
    name: ClassVar[str] = "finetune"

    def measure(self, encoder: FrozenEncoder, data: ImageSet, how: Extraction) -> Measurement:
        """Train a copy of the encoder on each share of the labels, and test it."""
        train, test, about_test = _split(encoder, data, self.seed, how)
        n_classes = int(labels_of(train).max()) + 1
        results, figures, classifier = [], dict[str, float](), encoder
        drawn = {part: balanced_share(labels_of(train), part, stream(self.seed, "share")) for part in self.fractions}
        for rows in {len(rows): rows for rows in drawn.values()}.values():  # a larger share holds the smaller
            asked = [part for part, same in drawn.items() if len(same) == len(rows)]
            began, fraction = time.time(), float(f"{len(rows) / len(train):.3g}")
            part = ImageSet(data.name, train[rows], None, data.classes)
            guess = guessing(labels_of(test), labels_of(part.train))
            how.say(
                f"Fine-tuning on {len(rows):,} of {len(train):,} labelled images, testing on {len(test):,}; chance "
                f"{guess['chance']:.2f} %."
            )
            trained = self._trained(encoder, part, n_classes, how)
            classifier = replace(encoder, **trained, classes=class_names(data))
            scores, labels = labelled_features(classifier.classifier, test, replace(how, cache=False), "test images")
            tops = {top: top_k(scores, labels, top) for top in tops_for(n_classes)}
            share = f"{100 * fraction:g} % of labels ({counted(len(rows), 'image')})"
            figures |= {f"finetune top-{top}, {share}": value for top, value in tops.items()}
            about = {"fraction": fraction, "fractions_asked": asked, "images": len(rows), **guess}
            about |= {"batch_size": min(self.batch_size, len(rows)), "seconds": round(time.time() - began, 1)}
            results.append(about | {f"top{top}": value for top, value in tops.items()})
        record = {
            "protocol": PROTOCOL,
            "results": results,
            "standard_errors": standard_errors(figures, len(test)),
            "epochs_of_tuning": self.epochs,
            "lr": self.lr,
            "seed_of_tuning": self.seed,
            "batch_of_tuning": self.batch_size,
            "test_images": len(test),
            "classes": n_classes,
            **about_test,
        }
        settings = {"fractions": list(self.fractions), "epochs": self.epochs, "lr": self.lr}
        settings |= {"batch_size": self.batch_size, "seed": self.seed}
        return Measurement(self.name, figures, record, settings, classifier)

    def _trained(self, encoder: FrozenEncoder, data: ImageSet, n_classes: int, how: Extraction) -> dict[str, nn.Module]:
        """A copy of the backbone and a head, trained on labelled images; of pixels the head alone."""
        if isinstance(encoder.backbone, Pixels):
            return {"head": select_weight(labelled_features(encoder, data.train, how), n_classes, None).probe.layer()}
        module = self._module(encoder, data, n_classes, how)
        _tune(module, data, how, encoder.name)
        trained = module.framework.encoder
        return {"backbone": trained.backbone, "head": trained.projector}

    def _module(self, encoder: FrozenEncoder, data: ImageSet, n_classes: int, how: Extraction) -> Pretraining:
        """A copy of the backbone with a fresh classifier, ready to be trained."""
        recipe = Recipe(
            "finetune",
            data=data.name,
            epochs=self.epochs,
            batch_size=min(self.batch_size, len(data.train)),
            seed=self.seed,
            framework=SupervisedConfig(n_classes),
            strategy=TwoViewConfig(),
            crops=replace(STANDARD_CROPS, global_size=encoder.size),
            optimiser=OptimiserConfig(lr=self.lr),
            device=how.device,  # type: ignore[arg-type] (one of the names)
            compile="off",  # compilers choose kernels by the clock, and then numbers do not repeat
            knn_every=0,
            loading=LoadingConfig(workers=how.workers, max_bad=how.max_bad),
            loggers=(),
        )
        backbone = deepcopy(encoder.backbone).cpu()
        with torch.no_grad():  # libraries name the width differently, or not at all
            n_features = backbone(torch.zeros(1, encoder.channels, encoder.size, encoder.size)).shape[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            framework = SupervisedConfig(n_classes).build(backbone.requires_grad_(True).train(), n_features)
        strategy = recipe.strategy.build(1, 0, n_classes)
        labels = labels_of(data.train)
        return Pretraining(recipe, framework, strategy, encoder.mean, encoder.std, len(data.train), labels, how.say)


@dataclass(frozen=True)
class Semi(FineTune):
    """All weights trained end to end with class-balanced shares of the labels.

    example: logo-ssl eval semi runs/first --data photos/ --fractions 0.01 0.1
    """

    fractions: Fractions = (0.01, 0.1)
    """Shares of each class's labels, at least one image of each."""
    baselines: bool = True
    """Also train the untrained network in the same way, and a linear classifier on pixels with colours."""

    name = "semi"


def _split(encoder: FrozenEncoder, data: ImageSet, seed: int, how: Extraction) -> tuple[Split, Split, dict[str, int]]:
    """What trains and what tests, of images that can be read, in the channels that the encoder sees; about the test."""
    train, test = labelled_splits(data)
    about = {**count_copies(train, test, how=how), "official_test": test is not None}
    train = readable(in_channels(encoder, train), how, "training images")
    if test is not None:
        return train, readable(in_channels(encoder, test), how, "test images"), about
    known, held_out = split_test(labels_of(train), seed, data.name)
    how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out.")
    return train[known], train[held_out], about


def _tune(module: Pretraining, data: ImageSet, how: Extraction, name: str) -> None:
    """Train the encoder of that name, and leave nothing on the disk."""
    with TemporaryDirectory() as folder, exact_convolutions():
        run, console = Run(folder), plain_console()
        journal = JsonlLogger(run)
        display = ProgressDisplay(journal, console, {"l_gg": "loss"})
        display.say(f"Tuning {name}:")
        trainer: Any = build_trainer(run, module.recipe, data, journal, display, benchmark=False)
        trainer.callbacks.remove(trainer.checkpoint_callback)  # so that a signal ends it at once
        try:
            fit(trainer, module, data, BadImages(len(data.train), how.max_bad), console, cure=CURE)
            if not is_finite(module):
                raise Diverged(trainer.global_step)
        except Diverged as error:
            lr = module.recipe.optimiser.lr
            raise UserError(f"lr={lr:g}: fine-tuning diverged at step {error.step}; use a lower one.") from error
