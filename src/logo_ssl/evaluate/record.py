"""What does an evaluation leave behind? JSON with the numbers, their protocol, and who made them."""

import json
import re
from pathlib import Path
from typing import Any

from ..data import ImageSet, load_data, locate
from ..errors import UserError
from ..hardware import best_device, hardware
from ..run import provenance, write
from ..train.pretrain import read_recipe
from .encoders import FrozenEncoder


def data_for(encoder: FrozenEncoder, source: str | None) -> ImageSet:
    """The data of that name or path; without one, what the encoder's run was trained on."""
    if source is None and encoder.run is None:
        raise UserError(f"{encoder.name} is no run, so its data are unknown; name them with --data.")
    if source is None and encoder.run is not None:
        source = read_recipe(encoder.run).data
    assert source is not None
    return load_data(locate(source), encoder.size)


def save(
    protocol: str, result: dict[str, Any], encoder: FrozenEncoder, data: ImageSet, device: str, out: Path | None
) -> Path | None:
    """Write a result with its provenance to `out`, else into the encoder's run, as PROTOCOL-DATA.json."""
    record = result | {
        "data": data.name,
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        "size": encoder.size,
        "mean": list(encoder.mean),
        "std": list(encoder.std),
        "about": list(encoder.says),
        "keys_not_in_checkpoint": list(encoder.missing),
        "keys_without_place": list(encoder.unused),
    }
    if encoder.run is not None:
        recipe = read_recipe(encoder.run)
        record |= {"recipe": recipe.name, "seed": recipe.seed, "epochs": recipe.epochs}
        record["crops"] = f"{recipe.crops.n_global} global + {recipe.crops.n_local} local"
    record |= provenance(hardware(best_device(device)))
    if out is not None:
        return write(out, json.dumps(record, indent=2) + "\n")
    if encoder.run is not None:
        name = re.sub(r"[^\w.-]", "-", data.name)
        return encoder.run.write_evaluation(f"{protocol}-{name}", record)
    return None
