"""Classifiers that are trained on an encoder and kept: a folder with weights as safetensors, and how they were made."""

import os
import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..data import ImageSet
from ..encoders import metadata_of
from ..eval.features import Extraction, brought_back
from ..eval.finetune import FineTune
from ..eval.linear import Linear
from ..eval.protocol import CLEAR, DataProtocol, Measurement, about_data, content_of, data_for, show
from ..files import check_output_folder
from ..weights import save_model
from .embeddings import Encoder
from .module import Classifier, load_classifier
from .module import frozen as known_encoder


def finetune(
    encoder: Encoder,
    data: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    frozen: bool = False,
    epochs: int = FineTune.epochs,
    lr: float = FineTune.lr,
    batch_size: int = FineTune.batch_size,
    seed: int = FineTune.seed,
    device: str = "auto",
    workers: int = -1,
    max_bad: float = Extraction.max_bad,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Classifier:
    """A classifier of labelled images, trained on an encoder, tested, and kept in the folder `out`.

    With `frozen`, a linear classifier is trained as by `eval linear`, and the encoder stays as it is; `epochs`, `lr`
    and `batch_size` are those of the fine-tuning of all weights. `encoder` is as for `embed`, `data` a name or a path.
    """
    tuning = FineTune("", epochs=epochs, lr=lr, batch_size=batch_size, seed=seed)
    how = Extraction(
        device, workers=workers, max_bad=max_bad, cache=False, say=say or Extraction.say, progress=progress
    )
    check_output_folder(Path(out), overwrite)
    known = known_encoder(encoder)
    told = say or partial(warnings.warn, stacklevel=2)
    images = data_for(known, None if data is None else os.fspath(data), told)
    with brought_back(known.backbone):
        keep(_protocol(tuning, frozen).measure(known, images, how), images, Path(out), how)
    return load_classifier(out)


def _protocol(tuning: FineTune, frozen: bool) -> DataProtocol:
    return Linear(tuning.encoder, seed=tuning.seed) if frozen else tuning


def keep(found: Measurement, data: ImageSet, folder: Path, how: Extraction) -> None:
    """Write a classifier that was trained and measured: its weights, and what is known of it."""
    assert found.classifier is not None
    record = found.record | about_data(data, how) | {"figures": found.figures, "classes": found.classifier.classes}
    content = content_of(found.name, record, found.classifier, how)
    metadata = metadata_of(found.classifier, found.classifier.classes)
    save_model(folder, found.classifier.classifier.backbone, metadata, content)


@dataclass(frozen=True)
class Finetune(FineTune):
    """Train a classifier on an encoder and keep it, for `logo-ssl predict`.

    All weights are trained, as by `eval finetune`; with --frozen a linear classifier on the encoder as it is, as by
    `eval linear`. The figures are those of the kept classifier, on images that did not train it: those of test/ or
    val/, else a fifth of all. `logo-ssl export MODEL --to onnx` writes it with its classes.

    example: logo-ssl finetune runs/photos --data labelled/ --out model
    """

    out: Path = field(kw_only=True)
    """Folder for the model: model.safetensors, and model.json about it."""
    frozen: bool = False
    """Leave the encoder as it is; --epochs, --lr and --batch-size do not matter then."""

    def run(self) -> None:
        """Train, test, keep, and show what it reached."""
        encoder, console = self.open()
        check_output_folder(self.out, self.overwrite)
        protocol = _protocol(self, self.frozen)
        with self.extraction(console) as how:
            data = self.images(encoder, how.say)
            found = protocol.measure(encoder, data, how)
            keep(found, data, self.out, how)
        show(console, protocol.title, [{encoder.name: found}])
        metric, value = next(iter(found.figures.items()))
        chance = (found.record if self.frozen else found.record["results"][0])["chance"]
        if value < chance + CLEAR * found.record["standard_errors"][metric]:
            console.print(f"This is not measurably better than guessing ({chance:.2f} %): more labels may help.")
        model = shlex.quote(str(self.out))
        console.print(f"Saved: {self.out}\nNext: logo-ssl predict {model} --data NEW --out predictions.csv")
