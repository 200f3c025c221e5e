"""A folder as on the Hugging Face Hub: weights, a config for timm, and a model card."""

import json
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import UserError
from ...eval.encoder import FrozenEncoder
from ...files import write_together
from ...models.saving import plain_weights, weight_bytes
from ...recipes import PARTS, recipe_as_written
from .weights import RGB, in_timm, metadata_of, of_ours, snippet, timm_options

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
TAG = "logo_ssl"
"""What a config is called by."""
TO_FILL_IN = "to be filled in by whoever shares it"


def to_hf(encoder: FrozenEncoder, out: Path) -> str:
    """A folder that `timm.create_model("local-dir:FOLDER", pretrained=True)` loads, and the Hub's layout."""
    _, stem = of_ours(encoder)
    try:
        network = in_timm(encoder).network
    except UserError as error:
        raise UserError(f"A folder for Hugging Face is loaded by timm, and {error}") from error
    if stem != "imagenet":
        raise UserError(
            f"{encoder.name} has a {stem} stem, which a timm config cannot describe; `--to timm` writes its weights "
            "and the lines that rebuild the stem."
        )
    if encoder.channels != RGB:
        raise UserError(
            f"{encoder.name} sees {encoder.channels} channels, and timm changes such weights when it loads a folder; "
            "`--to timm` writes them and the lines that load them as they are."
        )
    network.load_state_dict(encoder.backbone.state_dict())  # strict: refused before anything is written
    loading = snippet(encoder, ["import timm"], [_loading(out)])
    weights = plain_weights(network.state_dict())
    contents = {
        out / WEIGHTS: weight_bytes(weights, metadata_of(encoder)),
        out / CONFIG: (json.dumps(config(encoder, network), indent=2) + "\n").encode(),
    }
    card = out / CARD
    write_together(contents if _is_filled_in(card) else contents | {card: model_card(encoder, weights).encode()})
    return loading


def config(encoder: FrozenEncoder, network: Any) -> dict[str, Any]:
    """What timm reads: the network, how to build it, and what its input needs."""
    options = {key: value for key, value in timm_options(encoder).items() if key != "num_classes"}
    known = network.pretrained_cfg
    return {
        "architecture": encoder.architecture[0].removeprefix("timm/"),
        "num_classes": 0,
        "num_features": network.num_features,
        "model_args": options,
        "pretrained_cfg": {
            "tag": TAG,
            "custom_load": False,
            "input_size": [encoder.channels, encoder.size, encoder.size],
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "crop_mode": "center",
            "mean": list(encoder.mean),
            "std": list(encoder.std),
            "num_classes": 0,
            "pool_size": known.get("pool_size"),
            "first_conv": known.get("first_conv"),
            "classifier": known.get("classifier"),
        },
    }


def model_card(encoder: FrozenEncoder, weights: dict[str, Any]) -> str:
    """Who the encoder is, how it was trained, and how to load it; what only its maker knows is left to fill in."""
    name = encoder.architecture[0].removeprefix("timm/")
    head = ["---", "library_name: timm", "pipeline_tag: image-feature-extraction", "tags:"]
    head += ["- timm", "- self-supervised", "- logo-ssl", "---", f"# {name}, pretrained without labels", ""]
    if encoder.run is not None:
        recipe = recipe_as_written(encoder.run)
        framework, strategy = (_called(part, recipe[part]["kind"]) for part in PARTS)
        trained = encoder.unfinished or f"{recipe['epochs']} epochs"
        head += [
            f"Trained by logo-ssl {__version__}: {framework} with the strategy {strategy}, recipe `{recipe['name']}`, "
            f"{trained}, batch {recipe['batch_size']}, seed {recipe['seed']}, on {Path(recipe['data']).name}.",
            "",
        ]
    parameters = sum(value.numel() for value in weights.values() if value.is_floating_point())
    head += [
        f"- Parameters and statistics: {parameters / 1e6:.1f} M",
        f"- Input: {encoder.channels} channels, {encoder.size} px, mean {list(encoder.mean)}, std {list(encoder.std)}",
        "- Output: features before any classifier",
        f"- Licence, intended use, limits: {TO_FILL_IN}",
        "",
        "```python",
        snippet(encoder, ["import timm"], [_loading("THIS_FOLDER")]) + "```",
        "",
        "This `transform` takes photographs as they lie on disk. timm's own (`timm.data.create_transform`) takes "
        "upright RGB images only: it ignores what a camera notes of how it was held, and fails at other kinds.",
        "",
    ]
    return "\n".join(head)


def _loading(folder: str | Path) -> str:
    return f"encoder = timm.create_model({f'local-dir:{folder}'!r}, pretrained=True).eval()"


def _is_filled_in(card: Path) -> bool:
    """Whether somebody has written into a card what only they know."""
    return card.is_file() and TO_FILL_IN not in card.read_text("utf-8", errors="replace")


def _called(part: str, kind: str) -> str:
    """The name of a framework or strategy as its papers write it; one's own by the name that it has in recipes."""
    config = PARTS[part].get(kind)
    return kind if config is None else config.__name__.removesuffix("Config")
