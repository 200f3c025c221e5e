"""The protocols `detect` and `segment`: fine-tune a detector on an encoder, test it, save figures and detections."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ..data.workers import fitting_workers
from ..errors import DataMissing, UserError
from ..eval.encoder import FrozenEncoder
from ..eval.features import Extraction
from ..eval.protocol import EvalOptions, check_result, place_of, save_about, say_unless_saved
from ..files import clear_folder, refuse_existing
from ..hardware import best_device
from ..launch import is_first
from ..paper_tables import DETECTION, DETECTION_COLUMNS, DETECTION_MEASURES
from ..run import found_checkpoints
from ..text import counted
from ..train.trainer import processes_for
from .config import VOC_RECIPE, DetectionRecipe, DetectorConfig, RecipeOptions, check_recipe, recipe_for, schedule
from .data import OFFICIAL, AnnotatedImage, AnnotatedImages, DetectionData, UnusableImage, load_detection
from .masks import coco_library, encoded
from .metrics import AveragePrecision, Detections, coco_metric, result_files, voc07_metric, write_results
from .model import Detector, build_detector, check_backbone
from .preview import preview_files, save_previews
from .samples import BYTES, Progress, TestImages, TrainingImages, check_images, raise_errors, read
from .train import KEPT, TrainerConfig, TrainingSummary, claim_folder, train_detector

PROTOCOL = (
    "{model} on the encoder, all weights fine-tuned (batch norms {norm}); SGD with steps, images resized and mirrored "
    "by chance; batch-norm statistics recomputed before the test; last iteration, nothing chosen on test images"
)
MANY = 100
"""Classes that a result counts, and does not name."""
Results = dict[tuple[str, str], AveragePrecision]
"""By what was found (box, mask) and the measure."""


class DetectionFigure(NamedTuple):
    """What was measured: boxes or masks, by which measure, which figure."""

    of: str
    measure: str
    figure: str

    def __str__(self) -> str:
        return f"{self.of} {self.figure} ({self.measure})"


@dataclass(frozen=True)
class Detect(RecipeOptions, EvalOptions):
    """Faster R-CNN on the encoder, fine-tuned: AP of boxes on voc07+12, coco, or any folder in either layout.

    example: logo-ssl eval detect runs/photos --data my/coco/folder --dry-run
    """

    data: str = field(kw_only=True)
    """voc07+12, coco, or a folder in VOC's or COCO's layout."""
    agnostic: bool = False
    """Make one class of all categories."""
    devices: int | Literal["auto"] = 1
    """Processes that share each batch, one on each GPU; auto: as many as there are (docs/scaling.md)."""
    dry_run: bool = False
    """Show the schedule, and stop."""
    max_bad: float = 0.0
    """Share of training images that may be left out: unreadable, or of another size than their annotation has."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: into the run folder)")] = None
    """JSON file; NAME-pictures/ (with COCO's results) and, while training, NAME-training/ are next to it."""

    size: tyro.conf.Suppress[int | None] = None
    masks: tyro.conf.Suppress[bool] = False

    def run(self) -> None:
        """Train a detector, test it, and show the figures above the paper's."""
        check_recipe(self.applied_to(VOC_RECIPE))
        if self.out is not None:
            check_result(self.out, self.overwrite)
        encoder, console = replace(self, size=self.test_side or DetectorConfig.test_side).open()
        check_backbone(encoder.backbone)
        try:
            data = load_detection(self.data, self.agnostic, self.masks)
        except DataMissing as missing:
            if not self.dry_run or self.data not in OFFICIAL:
                raise
            console.print(str(missing), markup=False, highlight=False)
            return _show_schedule(console, self.data, OFFICIAL[self.data].train, True, self)
        for line in data.about():
            console.print(line, markup=False, highlight=False)
        if self.masks:
            _check_masks(data)
        if self.dry_run:
            return _show_schedule(console, data.name, len(data.train), data.official, self)
        recipe = self.applied_to(recipe_for(data.name, len(data.train), data.official))
        with self.extraction(console) as how:
            settings = {"masks": self.masks, "out": self.out, "overwrite": self.overwrite, "devices": self.devices}
            figures = list(detect(encoder, data, recipe, how, max_bad=self.max_bad, **settings))
        _show(console, encoder.name, figures, data.name if data.comparable_with_paper else None)
        say_unless_saved(self, encoder, console)


@dataclass(frozen=True)
class Segment(Detect):
    """Mask R-CNN on the encoder, fine-tuned: AP of boxes and of instance masks, on coco or any folder in its layout.

    example: logo-ssl eval segment torchvision/resnet50 --data my/coco/folder --out segment.json
    """

    data: str = field(kw_only=True)
    """coco, or a folder in COCO's layout, with masks."""
    masks: tyro.conf.Suppress[bool] = True


def detect(
    encoder: FrozenEncoder,
    data: DetectionData,
    recipe: DetectionRecipe,
    how: Extraction | None = None,
    *,
    masks: bool = False,
    out: Path | None = None,
    overwrite: bool = False,
    devices: int | Literal["auto"] = 1,
    max_bad: float = 0.0,
) -> Iterator[tuple[DetectionFigure, float]]:
    """Yield (("box", "COCO", "AP50"), percent) and so on; save them in the run, or at `out`.

    Next to the file are NAME-pictures/ with previews and COCO's results and, until all is done, NAME-training/, from
    which an interrupted training continues. Of several processes, only the first yields. Up to a share of `max_bad`,
    training images that cannot be used are left out.
    """
    how = how or Extraction()
    check_recipe(recipe)
    coco_library()
    best_device(how.device)
    check_result(out, overwrite, encoder.run)
    check_backbone(encoder.backbone)
    if masks:
        _check_masks(data)
    where = TrainerConfig(str(how.device), devices, workers=how.workers)
    data = check_images(
        data,
        masks=masks,
        whole=recipe.iterations * recipe.batch_size >= len(data.train),  # else but some of them are drawn
        max_bad=max_bad,
        workers=how.workers,
        sharers=max(1, processes_for(where).devices),
        progress=how.progress,
        say=how.say,
    )
    this = identify(encoder, data, recipe, masks, out)
    if this.file is not None:
        for file in (*preview_files(this.previews).values(), *result_files(this.previews).values()):
            refuse_existing(file, overwrite or out is None)  # previews in a run are ours
    images = TrainingImages(data.train, recipe, masks)
    how.say(f"Training on {counted(len(images.images), 'image')}, testing on {counted(len(data.test), 'image')}.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        detector = build_detector(
            encoder.backbone, encoder.mean, encoder.std, len(data.train.classes), recipe.detector, masks
        )
    with claim_folder(this.state), _naming_kept_training(this.state):
        where = replace(where, folder=this.state, identity=this.identity)
        trained = train_detector(detector, images, recipe, where, how.progress, how.say)
        if not is_first():
            return
        began = time.time()
        found = find_objects(detector, data.test.images, best_device(how.device), how.workers, how.progress)
        results = measure(data, found, masks)
        for (of, measure_name), precision in results.items():
            for name, value in precision.overall.items():
                if value is not None:
                    yield DetectionFigure(of, measure_name, name), value
        record = this.about | _record(data, recipe, masks, results, trained, time.time() - began)
        record["train_pictures"] = len(images.images)
        if this.file is not None:
            files = {"pictures": preview_files(this.previews), "found": result_files(this.previews, masks)}
            record |= {name: [f"{this.previews.name}/{f.name}" for f in of.values()] for name, of in files.items()}
        save_about(this.protocol, record, encoder, how, out, this.settings)
        if this.file is not None:
            for earlier in (*preview_files(this.previews).values(), *result_files(this.previews).values()):
                earlier.resolve().unlink(missing_ok=True)
            write_results(data.test, found, this.previews, masks)
            save_previews(data.test.images, found, data.test.classes, this.previews, masks)
            how.say(f"Previews, and all detections in COCO's format: {this.previews}")
            clear_folder(this.file.with_name(f"{this.file.stem}-training"), KEPT)


class Identity(NamedTuple):
    """What tells an evaluation from others: another encoder, other data or settings give another."""

    protocol: str
    settings: dict[str, Any]
    about: dict[str, Any]
    """The data, as they are saved."""
    identity: str
    """What a training that is continued must have begun with."""
    file: Path | None
    """Where the result is saved, if it is."""

    @property
    def state(self) -> Path | None:
        """The folder from which an interrupted training continues."""
        return None if self.file is None else self.file.with_name(f"{self.file.stem}-training")

    @property
    def previews(self) -> Path:
        """The folder of previews and of COCO's results."""
        assert self.file is not None
        return self.file.with_name(f"{self.file.stem}-pictures")


def identify(
    encoder: FrozenEncoder, data: DetectionData, recipe: DetectionRecipe, masks: bool, out: Path | None
) -> Identity:
    """The identity of an evaluation."""
    protocol, settings = "segment" if masks else "detect", {"recipe": asdict(recipe), "masks": masks}
    prints = {"train": fingerprint(data.train, masks), "test": fingerprint(data.test, masks)}
    about = {"data": data.name, "data_fingerprint": prints}
    identity = json.dumps([encoder.fingerprint, about, settings], sort_keys=True)
    return Identity(protocol, settings, about, identity, place_of(protocol, about, encoder, out, settings))


def fingerprint(data: AnnotatedImages, masks: bool) -> str:
    """sha256 of names, sizes and objects, of their masks where these are used, and not of pixels."""
    digest = hashlib.sha256(repr(data.classes).encode())
    for image in data.images:
        digest.update(repr((image.path.name, image.height, image.width)).encode())
        for values in (image.boxes, image.labels, image.crowd, image.difficult, image.area):
            digest.update(values.tobytes())
        if masks:
            hexadecimal = lambda numbers: bytes(numbers).hex()  # noqa: E731 (what JSON cannot hold)
            digest.update(json.dumps(image.segmentations, default=hexadecimal, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _check_masks(data: DetectionData) -> None:
    """Raise a UserError if an object has no mask."""
    for image in (*data.train.images, *data.test.images):
        if any(segmentation is None for segmentation in image.segmentations):
            raise UserError(f"{data.name} has objects without masks ({image.path.name}); `eval detect` needs none.")


@contextmanager
def _naming_kept_training(state: Path | None) -> Iterator[None]:
    """An image that breaks after the check costs no training."""
    try:
        yield
    except UnusableImage as error:
        kept = state is not None and found_checkpoints(state)
        raise UserError(f"{error} The training is kept in {state}." if kept else str(error)) from error


@torch.no_grad()
def find_objects(
    detector: Detector,
    images: Sequence[AnnotatedImage],
    device: torch.device,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> list[Detections]:
    """What the detector finds in each image, in float32; masks as run lengths."""
    detector.to(device).eval()
    found: list[Detections] = []
    one_by_one = [[row] for row in range(len(images))]
    for batch in read(TestImages(images), one_by_one, fitting_workers(workers, BYTES)):
        there = [pixels.to(device, non_blocking=True) for pixels in raise_errors(batch)]
        found += [_detections(each) for each in detector(there)]
        progress("testing", len(found), len(images))
    return found


def _detections(found: dict[str, Tensor]) -> Detections:
    boxes, scores, labels = (found[name].cpu().numpy() for name in ("boxes", "scores", "labels"))
    masks = found["masks"][:, 0].byte().cpu().numpy() if "masks" in found else ()
    return Detections(
        boxes.astype(np.float32), scores.astype(np.float32), labels, tuple(encoded(mask) for mask in masks)
    )


def measure(data: DetectionData, found: list[Detections], masks: bool) -> Results:
    """Average precision by all measures that are the custom."""
    arguments = data.test.images, found, data.test.classes
    results = {("box", "VOC07"): voc07_metric(*arguments)} if data.is_voc else {}
    results["box", "COCO"] = coco_metric(*arguments)
    if masks:
        results["mask", "COCO"] = coco_metric(*arguments, "segm")
    return results


def _record(
    data: DetectionData, recipe: DetectionRecipe, masks: bool, results: Results, trained: TrainingSummary, test_s: float
) -> dict[str, Any]:
    """What was measured on what, by which protocol, in how long."""
    model = f"{'Mask' if masks else 'Faster'} R-CNN with a {recipe.detector.head.upper()} head"
    return {
        "protocol": PROTOCOL.format(model=model, norm=recipe.detector.norm),
        "results": [{"of": of, "measure": name, **precision._asdict()} for (of, name), precision in results.items()],
        "classes": list(data.test.classes) if len(data.test.classes) < MANY else len(data.test.classes),
        "about_data": data.about(),
        "test_pictures": len(data.test),
        "detection_recipe": asdict(recipe),
        "official": data.comparable_with_paper,
        "resumed_at": trained.resumed_at,
        "sessions": trained.sessions,
        "sessions_killed": trained.killed,
        "seconds": {"training": trained.seconds, "testing": round(test_s, 1)},
    }


def _show_schedule(console: Console, name: str, n_images: int, official: bool, options: RecipeOptions) -> None:
    table = Table("what", "how much", title="Schedule")
    for row in schedule(name, options.applied_to(recipe_for(name, n_images, official)), n_images):
        table.add_row(*row)
    console.print(table)


def _show(
    console: Console, encoder: str, figures: Sequence[tuple[DetectionFigure, float]], official: str | None
) -> None:
    """Our rows above the paper's, in its order of columns; sizes are in what is saved."""
    by_row: dict[tuple[str, str], dict[str, float]] = {}
    for (of, measure_name, figure), value in figures:
        by_row.setdefault((of, measure_name), {})[figure] = value
    table = Table("encoder", "of", "measure", *DETECTION_COLUMNS, title="Average precision (%)")
    for (of, measure_name), ours in by_row.items():
        shown = (f"{ours[name]:.2f}" if name in ours else "" for name in DETECTION_COLUMNS)
        table.add_row(encoder, of, measure_name, *shown, style="bold")
    for (data, of), rows in DETECTION.items():
        for row, numbers in rows.items() if data == official and any(of == what for what, _ in by_row) else ():
            table.add_row(
                f"paper, Table 6: {row}", of, DETECTION_MEASURES[data], *(f"{number:.2f}" for number in numbers)
            )
    console.print(table)
