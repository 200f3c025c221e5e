"""What does an evaluation leave behind? JSON with the numbers, their protocol, and who made them."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..data import NAMES, ImageSet, load_data, locate
from ..data.images import fingerprints
from ..errors import UserError
from ..files import check_folder, check_output, write
from ..hardware import best_device, hardware, provenance
from ..recipes import recipe_as_written
from ..run import Run
from .encoders import FrozenEncoder
from .how import Extraction
from .table5 import SETS

MOST_UNREADABLE = 100
"""Names of images in a result; the rest are counted."""


def data_for(
    encoder: FrozenEncoder, source: str | None, say: Callable[[str], None] = lambda sentence: None
) -> ImageSet:
    """The data of that name or path; without one, what the encoder's run was trained on. What is left out is said."""
    data = _of_the_run(encoder) if source is None else _found(source, encoder.size)
    for sentence in data.says:
        say(sentence)
    return data


def _of_the_run(encoder: FrozenEncoder) -> ImageSet:
    if encoder.run is None:
        raise UserError(f"{encoder.name} is no run, so its data are unknown; name them with --data.")
    source = str(recipe_as_written(encoder.run)["data"])
    return load_data(locate(source), encoder.size)


def _found(source: str, size: int) -> ImageSet:
    if source in SETS and source not in NAMES and not Path(source).exists():
        raise UserError(f"No data at {source!r}; the set {SETS[source].title} is called {SETS[source].data} here.")
    return load_data(locate(source), size)


def check_result(out: Path | None, overwrite: bool, run: Run | None = None) -> None:
    """UserError, before the work, if a result cannot be written to `out` or, without it, in the encoder's run."""
    if out is None:
        if run is not None:
            folder = run.evaluation_file("x").parent
            check_folder(folder if folder.exists() else run.path)
        return
    if out.suffix.lower() != ".json":
        raise UserError(f"out={out}: a result is a .json file.")
    check_output(out, overwrite)


def save(
    protocol: str,
    result: dict[str, Any],
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Write a result with its provenance to `out`, which was checked, else into the encoder's run; say where.

    In a run the name is PROTOCOL-DATA-HASH.json, with a hash of images, sizes and settings: the same evaluation
    replaces itself, and another has a name of its own.
    """
    above = "" if data.root is None else os.path.join(data.root, "")
    about = {"data": data.name, "source": data.source, "data_fingerprint": fingerprints(data)}
    about["unreadable_count"] = len(how.unreadable)
    about["unreadable_images"] = [name.removeprefix(above) for name in how.unreadable[:MOST_UNREADABLE]]
    return save_about(protocol, result | about, encoder, how, out, settings)


def save_about(
    protocol: str,
    result: dict[str, Any],
    encoder: FrozenEncoder,
    how: Extraction,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Write a result that tells its `data` and `data_fingerprint`, as `save` does."""
    seen = _seen(encoder)
    record = _without_noise(result) | {
        "evaluation": protocol,
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        **seen,
        "about": list(encoder.says),
        "keys_not_in_checkpoint": list(encoder.missing),
        "keys_without_place": list(encoder.unused),
    }
    if encoder.run is not None:
        record |= about_run(encoder.run)
    if encoder.unfinished is not None:
        record["unfinished"] = encoder.unfinished
    content = json.dumps(record | provenance(hardware(best_device(how.device))), indent=2) + "\n"
    out = place_of(protocol, result, encoder, out, settings)
    if out is None:
        return None
    how.say(f"Saved: {write(out, content)}")
    return out


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
    identity = json.dumps([result["data_fingerprint"], _seen(encoder), dict(settings or {})], sort_keys=True)
    name = re.sub(r"[^\w.-]", "-", result["data"])
    return encoder.run.evaluation_file(f"{protocol}-{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}")


def _seen(encoder: FrozenEncoder) -> dict[str, Any]:
    """How images are shown to an encoder."""
    return {"size": encoder.size, "mean": list(encoder.mean), "std": list(encoder.std)}


def about_run(run: Run) -> dict[str, Any]:
    """How an encoder was trained, in a few words."""
    recipe = recipe_as_written(run)
    crops = f"{recipe['crops']['n_global']} global + {recipe['crops']['n_local']} local"
    return {"recipe": recipe["name"], "seed": recipe["seed"], "epochs": recipe["epochs"], "crops": crops}
