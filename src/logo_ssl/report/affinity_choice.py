"""How alike are crops to a reference that the reader chooses? The paper's Figure 3, a reference at a time."""

from collections.abc import Sequence
from typing import Any

from .affinity_bars import NAMES, Comparison
from .markup import Html, tag
from .style import COLOURS
from .thumbnails import Thumbnails, thumbnail

CROP_SIDE, IMAGE_SIDE, CHOICE_SIDE = 32, 64, 72  # pixels


def affinity_data(name: str, comparisons: Sequence[Comparison], thumbnails: Thumbnails) -> dict[str, Any]:
    """What the page's script needs to draw the bars of each reference."""
    measures = [
        {"key": key, "name": words, "color": colour, "pattern": pattern}
        for (key, words), colour, pattern in zip(NAMES.items(), COLOURS, ("", "/"), strict=False)
    ]
    references = [
        {
            "title": comparison.title.replace("\n", ", "),
            "groups": [
                {
                    "title": group.title,
                    "picture": thumbnails.add(group.image, IMAGE_SIDE),
                    "crops": [thumbnails.add(crop, CROP_SIDE) for crop in group.crops],
                    **{key: [round(float(value), 3) for value in getattr(group, key)] for key in NAMES},
                }
                for group in comparison.groups
            ],
        }
        for comparison in comparisons
    ]
    return {"run": name, "measures": measures, "references": references}


def affinity_choice(i: int, name: str, comparisons: Sequence[Comparison]) -> Html:
    """References to choose from, by mouse or arrow keys; the bars, and their means in words."""
    choices = []
    for k, comparison in enumerate(comparisons):
        title = comparison.title.replace("\n", ", ")
        radio = {"type": "radio", "name": f"reference-{i}", "data_key": f"{name}: reference {title}"}
        button = tag("input", **radio, value=k, checked=True if k == 0 else None)
        whole = thumbnail(comparison.image, CHOICE_SIDE, comparison.box)
        pictures = [tag("img", src=whole, alt="", width=CHOICE_SIDE)]
        choices.append(tag("label", button, *pictures, tag("span", title), class_="pictured"))
    return tag(
        "figure",
        tag("figcaption", f"{name}: how alike crops are to the chosen one"),
        tag("fieldset", tag("legend", "Reference crop"), *choices, class_="choices", data_choice=i),
        tag(
            "div",
            tag("div", class_="plot bars", data_bars=i, role="img", aria_label="Bars of both measures"),
            class_="wide",
            tabindex="0",
            role="region",
            aria_label=f"{name}: bars of learned affinity and cosine",
        ),
        tag("output", class_="means", data_means=i, aria_live="off"),
    )
