"""How is one row run? Pretrained or gone on with, then measured; what is done already is left alone."""

from dataclasses import replace
from typing import IO

from ..data import ImageSet, load_data
from ..detection import load_detection
from ..errors import DataMissing
from ..eval import Extraction, FrozenEncoder, data_for, load_encoder
from ..eval.detect import detect
from ..eval.detect_schedule import recipe_for
from ..eval.knn import knn
from ..eval.linear import linear
from ..eval.transfer import transfer
from ..provenance import commit
from ..recipes import Recipe, with_harmless
from ..terminal import plain_console
from ..train.pretrain import begin, go_on
from .images import facts_about
from .plan import Place

TRANSFER_SIZE = 224  # Table 5
ABROAD = ("transfer-", "detect-", "segment-")
"""What is measured on other data than those of the pretraining."""


def perform(place: Place, measurements: list[str], log: IO[str] | None = None) -> None:
    """Do what is left of a row; what could not be measured for lack of images is told when all else is done.

    What it says is kept in a log, too.
    """
    recipe = place.asked()
    assert recipe is not None
    data = None if place.finished else _train(place, recipe, log)
    if left := [measurement for measurement in measurements if measurement not in place.figures()]:
        _measure_all(place, recipe, left, data, log)


def _train(place: Place, recipe: Recipe, log: IO[str] | None) -> ImageSet:
    """Pretrain a row or go on with it; gives back its images."""
    console = plain_console(advised=False, kept=log)
    data = load_data(recipe.data, recipe.crops.global_size)
    facts = facts_about(data)
    place.run.provenance_file.unlink(missing_ok=True)  # one that tells nothing
    if place.begun:
        go_on(place.run.path, with_harmless(place.recipe(), recipe), console, data)  # refuses other images
    else:
        place.note(images=facts)
        begin(recipe, place.run.path, console, data)
    place.note(images=facts)
    return data


def _measure_all(
    place: Place, recipe: Recipe, measurements: list[str], data: ImageSet | None, log: IO[str] | None
) -> None:
    """Measure a row that is trained, and note its figures."""
    console, path, missing = plain_console(advised=False, kept=log), place.run.path, list[str]()
    encoder = load_encoder(str(path))
    if data is None and any(not measurement.startswith(ABROAD) for measurement in measurements):
        data = data_for(encoder, recipe.data, console.print)
    for measurement in measurements:
        console.print(f"Measuring {measurement}")
        said = list[str]()
        how = Extraction(
            device=recipe.device, workers=recipe.loading.workers, max_bad=recipe.loading.max_bad, say=said.append
        )
        figures = _measure(measurement, encoder, data, how, recipe.seed)
        if figures:
            for sentence in said:
                console.print(sentence)
            measured_at = place.record().get("measured_at", {}) | {measurement: commit()}
            place.note(figures=place.figures() | {measurement: figures}, measured_at=measured_at)
        else:
            missing += said
    if missing:
        raise DataMissing(" ".join(missing))


def _measure(
    measurement: str, encoder: FrozenEncoder, data: ImageSet | None, how: Extraction, seed: int
) -> dict[str, float]:
    match measurement.split("-", 1):
        case ["knn"] if data is not None:
            return dict(knn(encoder, data, how, protocols=None))  # as many as the images allow
        case ["linear", "sgd" | "sgd-augmented" | "lbfgs" as protocol] if data is not None:
            return dict(linear(encoder, data, how, protocol=protocol))
        case ["transfer", name]:
            found = transfer(load_encoder(encoder.name, size=TRANSFER_SIZE), [name], how)
            return {str(metric): value for metric, value in found}
        case ["detect" | "segment" as kind, name]:
            return _detected(name, encoder, how, kind == "segment", seed)
        case _:
            raise ValueError(f"nothing measures {measurement!r}")


def _detected(name: str, encoder: FrozenEncoder, how: Extraction, masks: bool, seed: int) -> dict[str, float]:
    """Figures of detection on a set, or a sentence and none where it is missing; an interrupted training goes on."""
    try:
        data = load_detection(name, masks=masks)
    except DataMissing as error:
        how.say(str(error))
        return {}
    if not data.official:
        how.say(f"{data.about()[-1]} Place the whole set there.")
        return {}
    recipe = replace(recipe_for(data.name, len(data.train), data.official), seed=seed)
    shown = load_encoder(encoder.name, size=recipe.detector.test_side)
    return {str(found): value for found, value in detect(shown, data, recipe, how, masks=masks)}
