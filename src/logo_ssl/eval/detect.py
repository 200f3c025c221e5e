"""How well does an encoder detect objects, fine-tuned by MoCo's protocol? The paper's Table 6, or any pictures."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from ..detection.body import refuse_other_networks
from ..detection.checking import usable
from ..detection.coco_metric import coco_metric
from ..detection.detector import Detector, build_detector
from ..detection.drawing import draw_found, drawn_files
from ..detection.finds import found_files, write_found
from ..detection.masks import coco_library
from ..detection.pictures import BadPicture
from ..detection.precision import AveragePrecision, Detected
from ..detection.recipe import DetectionRecipe, check_recipe
from ..detection.samples import TrainingPictures
from ..detection.sources import Detection
from ..detection.testing import find_objects
from ..detection.training import KEPT, Trained, Workshop, alone_in, train_detector
from ..detection.voc_metric import voc07_metric
from ..errors import UserError
from ..files import clear_folder, refuse_existing
from ..hardware import best_device
from ..launch import is_first
from ..run import found_checkpoints
from ..text import counted
from ..train.trainer import processes_for
from .detect_identity import named, pictures_beside, training_beside
from .encoder import FrozenEncoder
from .options import Extraction, check_result
from .results import save_about

PROTOCOL = (
    "{model} on the encoder, all weights fine-tuned (batch norms {norm}); SGD with steps, pictures resized and "
    "mirrored by chance; batch-norm statistics recomputed before the test; last iteration, nothing "
    "chosen on test pictures"
)
MANY = 100
"""So many classes are counted and not named."""
Results = dict[tuple[str, str], AveragePrecision]
"""Of what, and by which measure."""


class DetectionFigure(NamedTuple):
    """What was measured: of boxes or masks, by whose measure, which figure."""

    of: str
    measure: str
    figure: str

    def __str__(self) -> str:
        return f"{self.of} {self.figure} ({self.measure})"


def refuse_without_masks(data: Detection) -> None:
    """Raise a UserError where an object has no mask."""
    for picture in (*data.train.pictures, *data.test.pictures):
        if any(segmentation is None for segmentation in picture.segmentations):
            raise without_masks(f"{data.name} has objects without masks ({picture.path.name})")


def without_masks(what: str) -> UserError:
    """The sentence that says what segmentation needs."""
    return UserError(
        f"{what}; segmentation needs COCO's layout with a segmentation for each object, and `eval detect` needs boxes "
        "only."
    )


def claim_beside(file: Path, overwrite: bool = False) -> None:
    """UserError, before the work, if a picture or list beside a result would be replaced."""
    folder = pictures_beside(file)
    for each in (*drawn_files(folder).values(), *found_files(folder).values()):
        refuse_existing(each, overwrite)


def detect(
    encoder: FrozenEncoder,
    data: Detection,
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

    Beside the file lie NAME-pictures/, where COCO's results are, too, and, until all is done, NAME-training/, from
    which an interrupted training goes on. Of several processes, only the first yields. All pictures are looked at
    first: of those to train on, up to a share of `max_bad` may be left out; one to test on that cannot be used is
    refused.
    """
    how = how or Extraction()
    _refuse_unusable(encoder, data, recipe, masks, how, out, overwrite)
    data = _checked(data, recipe, how, masks, devices, max_bad)
    this = named(encoder, data, recipe, masks, out)
    ours = overwrite or out is None  # pictures in a run are ours
    _claim_beside_or_say(this.file, ours, how)
    pictures = TrainingPictures(data.train, recipe, masks)
    used, tested = (counted(len(some), "picture") for some in (pictures.pictures, data.test.pictures))
    how.say(f"Training on {used}, testing on {tested}.")
    detector = _begun(encoder, data, recipe, masks)
    with alone_in(this.state), _telling_what_is_kept(this.state):
        where = Workshop(str(how.device), devices, workers=how.workers, folder=this.state, identity=this.identity)
        trained = train_detector(detector, pictures, recipe, where, how.progress, how.say)
        if not is_first():
            return
        began = time.time()
        found = find_objects(detector, data.test.pictures, best_device(how.device), how.workers, how.progress)
        results = _measured(data, found, masks)
        yield from _figures(results)
        record = this.about | _results_with_protocol(data, recipe, masks, results)
        record |= {"train_pictures": len(pictures.pictures)} | _to_be_written(this.file, masks)
        record |= _timed(trained, time.time() - began)
        save_about(this.protocol, record, encoder, how, out, this.settings)
        if this.file is not None and _draw_or_say(data, found, masks, this.file, how):
            clear_folder(training_beside(this.file), KEPT)


def _refuse_unusable(
    encoder: FrozenEncoder,
    data: Detection,
    recipe: DetectionRecipe,
    masks: bool,
    how: Extraction,
    out: Path | None,
    overwrite: bool,
) -> None:
    """UserError for all that can be refused before the pictures are looked at."""
    check_recipe(recipe)
    coco_library()
    best_device(how.device)
    check_result(out, overwrite, encoder.run)
    refuse_other_networks(encoder.backbone)
    if masks:
        refuse_without_masks(data)


def _checked(
    data: Detection,
    recipe: DetectionRecipe,
    how: Extraction,
    masks: bool,
    devices: int | Literal["auto"],
    max_bad: float,
) -> Detection:
    """The pictures that can be used; a training that draws but some of them needs no look at all pixels."""
    whole = recipe.iterations * recipe.batch_size >= len(data.train)
    sharers = max(1, processes_for(Workshop(str(how.device), devices)).devices)
    asked = {"workers": how.workers, "sharers": sharers, "progress": how.progress, "say": how.say}
    return usable(data, masks=masks, whole=whole, max_bad=max_bad, **asked)


@contextmanager
def _telling_what_is_kept(state: Path | None) -> Iterator[None]:
    """A picture that breaks after the check costs no training."""
    try:
        yield
    except BadPicture as error:
        cure = "mend it, and start again"
        if state is not None and found_checkpoints(state):
            cure = f"the training is kept in {state}: mend the picture, and the same command goes on"
        raise UserError(f"{error}; {cure}.") from error


def _claim_beside_or_say(file: Path | None, overwrite: bool, how: Extraction) -> None:
    """Nothing beside a result is replaced unasked; if nothing will be saved, that is said."""
    if file is not None:
        claim_beside(file, overwrite)
    else:
        how.say("Without --out nothing is saved here, and an interrupted training starts again.")


def _begun(encoder: FrozenEncoder, data: Detection, recipe: DetectionRecipe, masks: bool) -> Detector:
    """The detector before its training, by the recipe's seed alone."""
    n_classes = len(data.train.classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return build_detector(encoder.backbone, encoder.mean, encoder.std, n_classes, recipe.detector, masks)


def _to_be_written(file: Path | None, masks: bool) -> dict[str, list[str]]:
    """The pictures and lists of what was found, as seen from the file."""
    if file is None:
        return {}
    folder = pictures_beside(file)
    beside = {"pictures": drawn_files(folder), "found": found_files(folder, masks)}
    return {what: [f"{folder.name}/{each.name}" for each in files.values()] for what, files in beside.items()}


def _draw_or_say(data: Detection, found: list[Detected], masks: bool, file: Path, how: Extraction) -> bool:
    """Whether what was found is listed and drawn beside the file; if not, it is said, and no earlier one stays."""
    folder = pictures_beside(file)
    try:
        for earlier in (*drawn_files(folder).values(), *found_files(folder).values()):
            earlier.resolve().unlink(missing_ok=True)
        write_found(data.test, found, folder, masks)
        draw_found(data.test.pictures, found, data.test.classes, folder, masks)
    except (UserError, OSError) as error:
        why = str(error).rstrip(".")
        kept = f"the training is kept in {training_beside(file)}, and the same command with --overwrite shows it"
        how.say(f"The figures are saved, but what was found could not all be shown ({why}); {kept}.")
        return False
    how.say(f"Pictures, and all that was found as COCO's results: {folder}")
    return True


def _figures(results: Results) -> Iterator[tuple[DetectionFigure, float]]:
    """All that could be measured, one by one."""
    for (of, measure), precision in results.items():
        for name, value in precision.overall.items():
            if value is not None:
                yield DetectionFigure(of, measure, name), value


def _results_with_protocol(data: Detection, recipe: DetectionRecipe, masks: bool, results: Results) -> dict[str, Any]:
    """What was measured on what, and by which protocol."""
    model = f"{'Mask' if masks else 'Faster'} R-CNN with a {recipe.detector.head.upper()} head"
    return {
        "protocol": PROTOCOL.format(model=model, norm=recipe.detector.norm),
        "results": [
            {"of": of, "measure": measure, **precision._asdict()} for (of, measure), precision in results.items()
        ],
        "classes": list(data.test.classes) if len(data.test.classes) < MANY else len(data.test.classes),
        "about_data": data.about(),
        "test_pictures": len(data.test),
        "detection_recipe": asdict(recipe),
        "official": data.beside_paper,
    }


def _timed(trained: Trained, testing_s: float) -> dict[str, Any]:
    """How long it took, in how many sessions."""
    return {
        "resumed_at": trained.resumed_at,
        "sessions": trained.sessions,
        "sessions_killed": trained.killed,
        "seconds": {"training": trained.seconds, "testing": round(testing_s, 1)},
    }


def _measured(data: Detection, found: list[Detected], masks: bool) -> Results:
    """Average precision by all measures that are the custom."""
    shown = data.test.pictures, found, data.test.classes
    results = {("box", "VOC07"): voc07_metric(*shown)} if data.is_voc else {}
    results["box", "COCO"] = coco_metric(*shown)
    if masks:
        results["mask", "COCO"] = coco_metric(*shown, "segm")
    return results
