"""What a kept model finds in new images, `logo-ssl predict`: the classes of a classifier, the objects of a detector."""

import csv
import io
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import safetensors
import torch
import tyro
from jaxtyping import Float32

from .data import BadImages
from .embedding.embeddings import Data, Device, Images, images_of, in_memory
from .embedding.module import Classifier, frozen
from .encoders import FrozenEncoder
from .errors import UserError
from .eval.features import Extraction
from .files import check_output, check_output_folder, write
from .system.terminal import counted, plain_console, progress_bars
from .weights import MODEL

TOP = 5
"""Classes of each image that a classifier tells, the likeliest first."""


class Predictions(NamedTuple):
    """What a model finds in images, in the order of the data; images that could not be read are left out."""

    paths: list[str]
    labels: list[tuple[str, ...]]
    """The likeliest classes of each image, the likeliest first: five, or all if there are fewer. By a detector, the
    class of each object."""
    probabilities: list[Float32[np.ndarray, " n"]]
    """Theirs."""
    bad: list[str]
    """Paths of the images that could not be read."""
    boxes: list[Float32[np.ndarray, "n 4"]] | None = None
    """By a detector: left, top, right and bottom of each object in pixels."""

    def __repr__(self) -> str:
        return f"Predictions({counted(len(self.paths), 'image')}, {len(self.bad):,} bad)"


def predict(
    model: Classifier | str | os.PathLike[str],
    data: Data,
    *,
    out: str | os.PathLike[str] | None = None,
    draw: str | os.PathLike[str] | None = None,
    batch_size: int = Extraction.batch_size,
    device: str = "auto",
    workers: int = -1,
    max_bad: float = Extraction.max_bad,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Predictions:
    """The likeliest classes of all images, or the objects in them, by a model that was kept.

    `model` is a folder of `finetune`, what `load_classifier` gave, or a folder of `eval detect --save-model`. `data` is
    a name or a path as for `pretrain`, a list of paths, or an array of images [N C H W]. `out` is a .csv file for
    classes, and a .json file in COCO's results format for objects; `draw` a folder for images with the objects whose
    score is 0.5 or more. Images that cannot be read are left out and, with `out`, listed in OUT-bad-images.csv.
    """
    how = Extraction(device, batch_size, workers, max_bad, False, say or partial(warnings.warn, stacklevel=4), progress)
    file, folder = (None if place is None else Path(place) for place in (out, draw))
    detector = None if isinstance(model, Classifier) or not _is_detector(Path(model)) else Path(model)
    kind, suffix = ("classifier", ".csv") if detector is None else ("detector", ".json")
    if file is not None and file.suffix.lower() != suffix:
        raise UserError(f"out={file}: must be a {suffix} file, since {model} is a {kind}.")
    if folder is not None and detector is None:
        raise UserError(f"draw={folder}: {model} is a classifier, which has no boxes to draw.")
    if file is not None:
        check_output(file, overwrite)
    if folder is not None:
        check_output_folder(folder, overwrite)
    listed = None if file is None else file.with_name(f"{file.name}-bad-images.csv")
    if detector is None:
        predictions, content = _classes(frozen(model).classifier, data, how, listed)
    else:
        predictions, content = _objects(detector, data, how, listed, folder)
    if file is not None:
        write(file, content)
    return predictions


def _is_detector(folder: Path) -> bool:
    if not (folder / MODEL).is_file():
        raise UserError(f"{folder} has no {MODEL}; `logo-ssl finetune` and `eval detect --save-model` write a model.")
    with suppress(OSError, safetensors.SafetensorError), safetensors.safe_open(folder / MODEL, framework="pt") as file:
        return "detector" in (file.metadata() or {})
    return False


def _bad_images(chosen: list[Images], how: Extraction, file: Path | None) -> BadImages:
    if file is not None:
        file.unlink(missing_ok=True)  # of an earlier call
    return BadImages(sum(len(images.split) for images in chosen), how.max_bad, file)


def _classes(classifier: FrozenEncoder, data: Data, how: Extraction, listed: Path | None) -> tuple[Predictions, bytes]:
    """The likeliest classes, and a table with a line for each image: its path, then class and probability by turns."""
    chosen = images_of(classifier, data, "all", how.say)
    found = in_memory(classifier, chosen, how, _bad_images(chosen, how, listed))
    top = torch.from_numpy(found.vectors).softmax(dim=1).topk(min(TOP, len(classifier.classes)), dim=1)
    labels = [tuple(classifier.classes[label] for label in row) for row in top.indices.tolist()]
    predictions = Predictions(found.paths, labels, list(top.values.numpy()), found.bad)
    places = ["", *(f"_{place}" for place in range(2, top.values.shape[1] + 1))]
    writer = csv.writer(text := io.StringIO())
    writer.writerow(["path", *(f"{name}{place}" for place in places for name in ("label", "probability"))])
    for path, names, shares in zip(*predictions[:3], strict=True):
        pairs = zip(names, (f"{share:.4f}" for share in shares), strict=True)
        writer.writerow([path, *(cell for pair in pairs for cell in pair)])
    return predictions, text.getvalue().encode(errors="surrogateescape")  # names may be any bytes


def _objects(
    folder: Path, data: Data, how: Extraction, listed: Path | None, drawings: Path | None
) -> tuple[Predictions, bytes]:
    """The objects in each image, and all of them in COCO's results format."""
    from .detection.metrics import results_json
    from .detection.predicting import coco_results, draw, find  # slow to import: only where it is needed
    from .detection.saved import SavedDetector

    saved = SavedDetector.load(folder)
    chosen = images_of(saved.encoder, data, "all", how.say)
    bad, results = _bad_images(chosen, how, listed), list[dict[str, Any]]()
    paths, labels, scores, boxes = list[str](), list[tuple[str, ...]](), list[np.ndarray](), list[np.ndarray]()
    for images in chosen:
        for row, pixels, objects in find(saved, images.split, how, bad):
            (path,) = images.names([row])
            results += coco_results(saved, path, objects)
            if drawings is not None:
                draw(saved, pixels, objects, drawings / f"{len(paths):05}-{Path(path).stem}.png")
            paths.append(path)
            labels.append(tuple(saved.classes[label - 1] for label in objects.labels))
            scores.append(objects.scores)
            boxes.append(objects.boxes)
    content = results_json(results).encode(errors="surrogateescape")
    return Predictions(paths, labels, scores, sorted(bad.names), boxes), content


@dataclass(frozen=True)
class Predict:
    """Write what a kept model finds in new images: the classes of a classifier, or the objects of a detector.

    A classifier comes from `logo-ssl finetune`, a detector from `logo-ssl eval detect --save-model`. Images that cannot
    be read are left out and listed.

    example: logo-ssl predict model --data new/ --out predictions.csv
    """

    model: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
    """The folder of the model."""
    data: str = field(kw_only=True)
    """A name or a path, as for `pretrain`."""
    out: Path = field(kw_only=True)
    """Of a classifier a .csv file: path, label, probability, and the same of the next four classes. Of a detector a
    .json file: boxes in COCO's results format."""
    draw: Path | None = None
    """Folder for images with the objects whose score is 0.5 or more."""
    batch_size: int = Extraction.batch_size
    """Images that a classifier sees at a time."""
    device: Device = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops the command; fewer are left out."""
    overwrite: bool = False
    """Replace --out, and files in --draw, if they exist."""

    def run(self) -> None:
        """Predict, and say where it is written."""
        console = plain_console()
        with progress_bars(console) as progress:
            found = predict(**vars(self), say=console.print, progress=progress)
        console.print(f"Predictions: {self.out} ({counted(len(found.paths), 'image')})")
        if found.bad:
            n = counted(len(found.bad), "image")
            console.print(f"{n} cannot be read and had to be left out; see {self.out}-bad-images.csv.")
