"""The protocols `detect` and `segment`: fine-tune a detector on an encoder, test it, save figures and previews."""

import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import torch
import tyro
from jaxtyping import Float32, UInt8
from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torchvision.transforms.functional import pil_to_tensor, to_pil_image
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from ..data.workers import fitting_workers
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..eval.features import Extraction
from ..eval.protocol import EvalOptions, check_result, content_of, place_of, save
from ..files import check_output_folder, clear_folder, refuse_existing, write
from ..recipes.paper import DETECTION, DETECTION_COLUMNS, DETECTION_MEASURES
from ..run import locked
from ..system.hardware import best_device
from ..system.launch import is_first
from ..system.randomness import stream
from ..system.terminal import counted
from ..train.trainer import processes_for
from .data import AnnotatedImage, AnnotatedImages, DetectionData, UnusableImage, first_of, load_detection
from .formats import coco_library, decoded, encoded
from .metrics import (
    RESULTS,
    SURE,
    AveragePrecision,
    Detections,
    coco_metric,
    judge,
    voc07_metric,
    write_results,
)
from .model import Detector, DetectorConfig, build_detector, check_backbone
from .saved import SavedDetector
from .train import (
    BYTES,
    KEPT,
    SMALL,
    VOC_RECIPE,
    DetectionRecipe,
    Progress,
    Schedule,
    TrainerConfig,
    TrainingImages,
    estimate,
    pixels_of,
    read,
    recipe_for,
    scaled,
    train_detector,
)

PROTOCOL = (
    "{model} on the encoder, all weights fine-tuned (batch norms {norm}); SGD with steps, images resized and mirrored "
    "by chance; batch-norm statistics recomputed before the test; last iteration, nothing chosen on test images"
)
MANY = 100
"""Classes that a result counts, and does not name."""
CHUNK = 16
"""Images that a worker process checks in one go."""
ALONE = 64
"""Images for which a worker process is not worth its start."""
Results = dict[tuple[str, str], AveragePrecision]
"""By what was found (box, mask) and the measure."""
NUMBERS = {
    name: kind
    for part in (DetectionRecipe, DetectorConfig)
    for name, kind in get_type_hints(part).items()
    if name != "detector"
}
"""Numbers of a recipe, and their types."""


OWN = tyro.conf.arg(help_behavior_hint="(default: the protocol's)")
RecipeOptions: Any = make_dataclass(
    "RecipeOptions",
    [
        *((name, Annotated[kind | None, OWN], None) for name, kind in NUMBERS.items()),
        ("detector", tyro.conf.Suppress[Any], None),
    ],
    bases=(DetectorConfig, DetectionRecipe),
    frozen=True,
)
"""Every number of a recipe as an option; None keeps the protocol's."""


def changed(recipe: DetectionRecipe, **changes: Any) -> DetectionRecipe:
    """The recipe with other numbers, checked; what follows from `iterations` and `batch_size` is scaled with them."""
    if changes.get("iterations", 0) > 0:
        recipe = scaled(recipe, changes["iterations"])
    if "batch_size" in changes:
        changes = {"lr": recipe.lr * max(1, changes["batch_size"]) / recipe.batch_size} | changes
    of_detector = {field.name: changes.pop(field.name) for field in fields(DetectorConfig) if field.name in changes}
    return replace(recipe, detector=replace(recipe.detector, **of_detector), **changes)


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
    schedule: Schedule = "auto"
    """The protocol's or a small one; auto: small without a GPU. Other options change its numbers."""
    dry_run: bool = False
    """Check the annotations, show the schedule, time an iteration, and stop."""
    max_bad: float = 0.0
    """Share of training images that may be left out: unreadable, or of another size than their annotation has."""
    save_model: Path | None = None
    """Folder in which the detector is kept, for `logo-ssl predict`."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: into the run folder)")] = None
    """JSON file; NAME-pictures/ (with COCO's results) and, while training, NAME-training/ are next to it."""

    size: tyro.conf.Suppress[int | None] = None
    masks: tyro.conf.Suppress[bool] = False

    def __post_init__(self) -> None:
        EvalOptions.__post_init__(self)  # what is None is the protocol's

    def run(self) -> None:
        """Train a detector, test it, and show the figures above the paper's."""
        given = {name: value for name in NUMBERS if (value := getattr(self, name)) is not None}
        small = self.schedule == "small" or (self.schedule == "auto" and best_device(self.device).type == "cpu")
        # wrong numbers are refused before anything is loaded
        side = changed(SMALL if small else VOC_RECIPE, **given).detector.test_side
        encoder, console = replace(self, size=side).open()
        check_backbone(encoder.backbone)
        data = load_detection(self.data, self.agnostic, self.masks)
        data = data._replace(official=data.official and not small)
        for line in data.about():
            console.print(line)
        recipe = changed(recipe_for(data.name, len(data.train), data.official, small), **given)
        if small and self.schedule == "auto":
            console.print("Schedule: small, since there is no GPU; --schedule protocol is that of the tables.")
        if self.dry_run:
            table, values = Table("option", "value", title="Schedule"), vars(recipe) | vars(recipe.detector)
            for name in NUMBERS:
                table.add_row(name, " ".join(map(str, np.atleast_1d(values[name]))))
            console.print(table)
            detector, images = prepare(encoder, data, recipe, self.masks)
            return console.print(estimate(detector, images, recipe, best_device(self.device)))
        settings = {name: getattr(self, name) for name in ("masks", "out", "overwrite", "devices", "save_model")}
        with self.extraction(console) as how:
            results = detect(encoder, data, recipe, how, **settings)
        _show(console, encoder.name, results, data.name if data.comparable_with_paper else None)


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
    save_model: Path | None = None,
) -> Results:
    """Train a detector on the encoder, test it, and save the figures in the run, or at `out`.

    Next to the file are NAME-pictures/ with previews and COCO's results and, until all is done, NAME-training/, from
    which an interrupted training continues. Of several processes, only the first has results. The detector is kept in
    the folder `save_model`, if one is named.
    """
    how = how or Extraction(max_bad=0.0)
    if save_model is not None:
        check_output_folder(save_model, overwrite)
    coco_library()
    check_result(out, overwrite, encoder.run)
    data = check_images(data, how, masks)
    protocol, settings = "segment" if masks else "detect", {"recipe": asdict(recipe), "masks": masks}
    prints = {"train": fingerprint(data.train, masks), "test": fingerprint(data.test, masks)}
    about = {"data": data.name, "data_fingerprint": prints}
    file = place_of(protocol, about, encoder, out, settings)
    pictures = state = None
    if file is not None:
        pictures, state = (file.with_name(f"{file.stem}-{name}") for name in ("pictures", "training"))
        refuse_existing(pictures, overwrite or out is None)  # those in a run are ours
    identity = json.dumps([encoder.fingerprint, about, settings], sort_keys=True)
    where = TrainerConfig(how.device, devices, workers=how.workers, folder=state, identity=identity)
    detector, images = prepare(encoder, data, recipe, masks)
    how.say(f"Training on {counted(len(images.images), 'image')}, testing on {counted(len(data.test), 'image')}.")
    if (device := best_device(how.device)).type == "cpu" and processes_for(where).total == 1:
        how.say(estimate(detector, images, recipe, device))
    with locked(state) if state is not None and is_first() else nullcontext():
        trained = train_detector(detector, images, recipe, where, how.progress, how.say)
        if not is_first():
            return {}
        began = time.time()
        found = find_objects(detector, data.test.images, device, how.workers, how.progress)
        tested = data.test.images, found, data.test.classes
        results = {("box", "VOC07"): voc07_metric(*tested)} if data.is_voc else {}
        results |= {("box", "COCO"): coco_metric(*tested)}
        results |= {("mask", "COCO"): coco_metric(*tested, "segm")} if masks else {}
        model = f"{'Mask' if masks else 'Faster'} R-CNN with a {recipe.detector.head.upper()} head"
        record = about | trained
        record |= {
            "protocol": PROTOCOL.format(model=model, norm=recipe.detector.norm),
            "results": [{"of": of, "measure": name, **figures._asdict()} for (of, name), figures in results.items()],
            "classes": list(data.test.classes) if len(data.test.classes) < MANY else len(data.test.classes),
            "about_data": data.about(),
            "train_pictures": len(images.images),
            "test_pictures": len(data.test),
            "detection_recipe": asdict(recipe),
            "official": data.comparable_with_paper,
            "seconds": {"training": trained["seconds"], "testing": round(time.time() - began, 1)},
        }
        if pictures is not None:
            record["pictures"] = [f"{pictures.name}/{name}.png" for name in PREVIEWS]
            record["found"] = [f"{pictures.name}/{name}" for kind, name in RESULTS.items() if kind == "bbox" or masks]
        save(protocol, record, encoder, how, out, settings)
        if save_model is not None:
            content = content_of(protocol, record, encoder, how)
            SavedDetector(detector, encoder, data.test.classes, data.test.numbers, masks).save(save_model, content)
            how.say(f"Detector: {save_model}")
        if pictures is not None and state is not None:
            write_results(data.test, found, pictures, masks)
            save_previews(data.test, found, pictures, masks)
            how.say(f"Previews, and all detections in COCO's format: {pictures}")
            clear_folder(state, KEPT)
    return results


def prepare(
    encoder: FrozenEncoder, data: DetectionData, recipe: DetectionRecipe, masks: bool
) -> tuple[Detector, TrainingImages]:
    """A detector before its training, always the same, and what it learns from."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        n_classes = len(data.train.classes)
        detector = build_detector(encoder.backbone, encoder.mean, encoder.std, n_classes, recipe.detector, masks)
    return detector, TrainingImages(data.train, recipe, masks)


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


def check_images(data: DetectionData, how: Extraction, masks: bool = False) -> DetectionData:
    """The data without the training images that cannot be used, up to a share of `how.max_bad`; else a UserError.

    A test image that cannot be used is always refused: the figures would be those of another test. It runs before a
    training, so that no image stops that halfway.
    """
    for what, part, allowed in (("training", data.train, how.max_bad), ("test", data.test, 0.0)):
        rows = range(len(part))
        chunks = [rows[start : start + CHUNK] for start in rows[::CHUNK]]
        troubles: list[str] = []
        fitting = min(fitting_workers(how.workers, BYTES), len(rows) // ALONE)
        for some in read(partial(_trouble, part.images, masks), chunks, fitting):
            troubles += some
            how.progress(f"checking {what} images", len(troubles), len(rows))
        bad = [trouble for trouble in troubles if trouble]
        if not bad:
            continue
        message = f"{len(bad):,} of {len(rows):,} {what} images cannot be used: {first_of(bad, ' ')}"
        if len(bad) > allowed * len(rows) or len(bad) == len(rows):
            share = f" --max-bad (now {how.max_bad:g}) leaves out up to that share." if what == "training" else ""
            raise UserError(message + share)
        how.say(f"{message} These are left out.")
        kept = tuple(image for image, trouble in zip(part.images, troubles, strict=True) if not trouble)
        counts = part.counts + Counter({"unusable, left out": len(bad)})
        data = data._replace(train=replace(part, images=kept, counts=counts), official=False)
    return data


def _trouble(images: Sequence[AnnotatedImage], masks: bool, row: int) -> str:
    try:
        images[row].check(masks)
    except UnusableImage as error:
        return str(error)
    return ""


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
    for batch in read(partial(_pixels, images), one_by_one, fitting_workers(workers, BYTES)):
        found += find_in(detector, batch, device)
        progress("testing", len(found), len(images))
    return found


@torch.no_grad()
def find_in(detector: Detector, batch: Sequence[UInt8[Tensor, "3 H W"]], device: torch.device) -> list[Detections]:
    """What the detector, on its device, finds in the images of a batch."""
    found = []
    for each in detector([pixels.to(device, non_blocking=True) for pixels in batch]):
        boxes, scores, labels = (each[name].cpu().numpy() for name in ("boxes", "scores", "labels"))
        masks = each["masks"][:, 0].byte().cpu().numpy() if "masks" in each else ()
        shapes = tuple(encoded(mask) for mask in masks)
        found.append(Detections(boxes.astype(np.float32), scores.astype(np.float32), labels, shapes))
    return found


def _pixels(images: Sequence[AnnotatedImage], row: int) -> UInt8[Tensor, "3 H W"]:
    return pixels_of(images[row])


def _show(console: Console, encoder: str, results: Results, official: str | None) -> None:
    """Our rows above the paper's, in its order of columns, and each class; sizes are in what is saved."""
    table = Table("encoder", "of", "measure", *DETECTION_COLUMNS, title="Average precision (%)")
    for (of, measure_name), precision in results.items():
        ours = (precision.overall[name] for name in DETECTION_COLUMNS)
        table.add_row(encoder, of, measure_name, *("" if n is None else f"{n:.2f}" for n in ours), style="bold")
    for (data, of), rows in DETECTION.items():
        for row, numbers in rows.items() if data == official and of in {what for what, _ in results} else ():
            figures = (f"{number:.2f}" for number in numbers)
            table.add_row(f"paper, Table 6: {row}", of, DETECTION_MEASURES[data], *figures)
    console.print(table)
    by_class = Table("class", *(f"{of} AP, {name}" for of, name in results), title="Each class (%)")
    for name in next(iter(results.values())).per_class:
        ours = (precision.per_class[name] for precision in results.values())
        by_class.add_row(name, *("" if n is None else f"{n:.2f}" for n in ours))
    console.print(by_class)


PREVIEWS = ("best", "worst", "random")
EACH = 6
"""Images on a sheet."""
SIDE, GAP, LETTER = 360, 8, 13  # pixels
TRUE, RIGHT, WRONG, SPARED = "#009E73", "#0072B2", "#D55E00", "#969A9E"
"""Objects, what was found of them, what is none, and what does not count: told apart by the colour-blind."""
SHINE = 0.4
"""Of a mask over its image."""


def save_previews(test: AnnotatedImages, detected: Sequence[Detections], folder: Path, masks: bool = False) -> None:
    """Write sheets of the best, the worst and some random images: objects on the left, detections on the right."""
    scores = [judge(image, each).f1 for image, each in zip(test.images, detected, strict=True)]
    order = np.argsort(-np.array(scores), kind="stable").tolist()
    chance = torch.randperm(len(scores), generator=stream(0, "pictures to draw")).tolist()
    for name, rows in zip(PREVIEWS, (order, order[::-1], chance), strict=True):
        pairs = [_pair(test.images[row], detected[row], test.classes, masks) for row in rows[:EACH]]
        content = io.BytesIO()
        Image.fromarray(np.concatenate(pairs)).save(content, "png")
        write(folder / f"{name}.png", content.getvalue())


def _pair(
    image: AnnotatedImage, detected: Detections, classes: tuple[str, ...], masks: bool
) -> UInt8[np.ndarray, "h w 3"]:
    """An image with its objects, and the same with what was found."""
    right, wrong, f1 = judge(image, detected)
    sure = np.flatnonzero(detected.scores >= SURE)
    names = [classes[label - 1] for label in image.labels]
    found = [f"{classes[detected.labels[n] - 1]} {detected.scores[n]:.2f}" for n in sure]
    outlines = [image.mask(n) for n in range(len(names))] if masks else []
    found_masks = [decoded(detected.masks[n], image.height, image.width) for n in sure if detected.masks]
    asked = [TRUE if asked else SPARED for asked in image.asked]
    judged = [RIGHT if right[n] else WRONG if wrong[n] else SPARED for n in sure]
    seen = pixels_of(image)
    left = drawn(seen, image.boxes, names, asked, outlines)
    pair = Image.new("RGB", (2 * SIDE, left.height + 2 * LETTER + GAP), "white")
    pair.paste(left, (0, 2 * LETTER))
    pair.paste(drawn(seen, detected.boxes[sure], found, judged, found_masks), (SIDE, 2 * LETTER))
    pen, font = ImageDraw.Draw(pair), ImageFont.load_default(LETTER)
    title = f"{image.path.name}: {counted(int(image.asked.sum()), 'object')}"
    pen.text((2, LETTER // 2), title, "black", font)
    pen.text((SIDE + 2, LETTER // 2), f"found, F1 {f1:.2f}", "black", font)
    return np.asarray(pair)


def drawn(
    seen: UInt8[Tensor, "3 H W"],
    boxes: Float32[np.ndarray, "n 4"],
    names: list[str],
    colours: list[Any],
    masks: list[UInt8[np.ndarray, "H W"]],
    side: int = SIDE - GAP,
) -> Image.Image:
    """An image, shrunk or enlarged to the sheet's scale, with things on it."""
    size = max(seen.shape)
    if masks:
        seen = draw_segmentation_masks(seen, torch.from_numpy(np.stack(masks)).bool(), SHINE, colours)
    picture = ImageOps.contain(to_pil_image(seen), (side, side))
    if not names:
        return picture
    scaled = torch.from_numpy(boxes) * (max(picture.size) / size)
    return to_pil_image(draw_bounding_boxes(pil_to_tensor(picture), scaled, names, colours, width=2))
