"""Results of evaluations: the data they are of, the JSON that keeps them, and the table that shows them."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..data import ImageSet, fingerprints, load_data, locate
from ..errors import UserError
from ..files import write
from ..hardware import best_device, hardware, provenance
from ..recipes import recipe_as_written
from ..run import Run
from ..sampling import standard_error
from .encoder import FrozenEncoder
from .options import EvalOptions, Extraction

MOST_UNREADABLE = 100
"""Names of images in a result; the rest are counted."""


def data_for(
    encoder: FrozenEncoder, source: str | None, say: Callable[[str], None] = lambda sentence: None
) -> ImageSet:
    """The data of that name or path; without one, what the encoder's run was trained on."""
    if source is not None:
        data = load_data(locate(source), encoder.size)
    elif encoder.run is None:
        raise UserError(f"{encoder.name} is not a run, so its data are unknown; name them with --data.")
    else:
        data = load_data(locate(str(recipe_as_written(encoder.run)["data"])), encoder.size)
    for sentence in data.says:
        say(sentence)
    return data


def save(
    protocol: str,
    result: dict[str, Any],
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Write a result with its provenance to `out`, which was checked, else into the encoder's run.

    In a run the name is PROTOCOL-DATA-HASH.json, with a hash of images, sizes and settings: the same evaluation
    replaces itself, and another has a name of its own.
    """
    above = "" if data.root is None else os.path.join(data.root, "")
    about = {
        "data": data.name,
        "source": data.source,
        "data_fingerprint": fingerprints(data),
        "unreadable_count": len(how.unreadable),
        "unreadable_images": [name.removeprefix(above) for name in how.unreadable[:MOST_UNREADABLE]],
    }
    return save_about(protocol, result | about, encoder, how, out, settings)


def save_about(
    protocol: str,
    result: dict[str, Any],
    encoder: FrozenEncoder,
    how: Extraction,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Write a result that has its `data` and `data_fingerprint`, as `save` does."""
    out = place_of(protocol, result, encoder, out, settings)
    if out is None:
        return None
    record = _without_noise(result) | {
        "evaluation": protocol,
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        **_input_of(encoder),
        "about": list(encoder.says),
        "keys_not_in_checkpoint": list(encoder.missing),
        "keys_without_place": list(encoder.unused),
    }
    if encoder.run is not None:
        record |= about_run(encoder.run)
    if encoder.unfinished is not None:
        record["unfinished"] = encoder.unfinished
    content = json.dumps(record | provenance(hardware(best_device(how.device))), indent=2) + "\n"
    how.say(f"Saved: {write(out, content)}")
    return out


def place_of(
    protocol: str,
    result: Mapping[str, Any],
    encoder: FrozenEncoder,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Where `save_about` writes a result with this `data` and `data_fingerprint`; None: nowhere."""
    if out is not None or encoder.run is None:
        return out
    identity = json.dumps([result["data_fingerprint"], _input_of(encoder), dict(settings or {})], sort_keys=True)
    name = re.sub(r"[^\w.-]", "-", result["data"])
    return encoder.run.evaluation_file(f"{protocol}-{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}")


def _without_noise(value: Any) -> Any:
    """The same to ten digits: 28.8, not 28.799999999999997."""
    match value:
        case float():
            return float(f"{value:.10g}")
        case dict():
            return {_without_noise(key): _without_noise(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_without_noise(inner) for inner in value]
        case _:
            return value


def _input_of(encoder: FrozenEncoder) -> dict[str, Any]:
    """How images are shown to an encoder."""
    return {"size": encoder.size, "mean": list(encoder.mean), "std": list(encoder.std)}


def about_run(run: Run) -> dict[str, Any]:
    """How an encoder was trained, in a few words."""
    recipe = recipe_as_written(run)
    crops = f"{recipe['crops']['n_global']} global + {recipe['crops']['n_local']} local"
    return {"recipe": recipe["name"], "seed": recipe["seed"], "epochs": recipe["epochs"], "crops": crops}


def standard_errors(figures: Mapping[str, float], n_images: int) -> dict[str, float]:
    """The standard error of each percentage by the number of images that were classified."""
    return {metric: round(standard_error(value, n_images), 2) for metric, value in figures.items()}


def show(
    options: EvalOptions,
    encoder: FrozenEncoder,
    console: Console,
    title: str,
    figures: Mapping[str, float],
    classified: Sequence[int] = (),
) -> None:
    """The figures as a table, with standard errors if it is known how many images were classified."""
    errors = standard_errors(figures, classified[0]) if classified else {}
    table = Table("metric", "%", title=title)
    for metric, value in figures.items():
        table.add_row(metric, f"{value:.2f}" + (f" ± {errors[metric]:.2f}" if errors else ""))
    console.print(table)
    if errors:
        console.print(
            f"±: standard error by the {classified[0]:,} images classified; another seed may move a figure further."
        )
    say_unless_saved(options, encoder, console)


def say_unless_saved(options: EvalOptions, encoder: FrozenEncoder, console: Console) -> None:
    """Figures that are nowhere but on the screen are lost with it."""
    if options.out is None and encoder.run is None:
        console.print("Not saved; `--out FILE` keeps the figures with their protocol.")
