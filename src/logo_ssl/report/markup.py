"""How does text become HTML that shows it as it is? Everything is escaped but what was made here."""

import base64
import json
import math
import struct
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..text import printable

VOID = ("img", "input", "link", "meta")  # elements that hold nothing and are not closed


class Html(str):
    """Text that is HTML already."""


def tag(element: str, /, *children: Any, **attributes: Any) -> Html:
    """An element; `class_` is the attribute class, `aria_label` aria-label; None is left out, True stands alone."""
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    inside = "".join(f' {key}="{_text(value)}"' if value is not True else f" {key}" for key, value in named.items())
    return Html(f"<{element}{inside}>" if element in VOID else f"<{element}{inside}>{joined(children)}</{element}>")


def joined(parts: Iterable[Any]) -> Html:
    """One after the other, escaped where need be."""
    return Html("".join(part if isinstance(part, Html) else _text(part) for part in parts))


def table(caption: str, head: Sequence[Any], rows: Iterable[Sequence[Any]], class_: str | None = None) -> Html:
    """A table that scrolls by itself on a narrow screen; the first cell of a row is its heading."""
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows]
    whole = tag("table", tag("caption", tag("span", caption)), tag("thead", header), tag("tbody", *body), class_=class_)
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def folded(title: str, inside: Html, key: str) -> Html:
    """What opens on demand; a watched page that changes keeps it open, by its key."""
    return tag("details", tag("summary", title), inside, data_key=key)


def picture(content: bytes, description: str) -> Html:
    """A PNG inside the page; its size keeps a place for it, or links would miss what lies below."""
    source = "data:image/png;base64," + base64.b64encode(content).decode()
    width, height = struct.unpack(">II", content[16:24])
    return tag("img", src=source, alt=description, width=width, height=height, loading="lazy")


def data_script(identity: str, value: Any) -> Html:
    """Values for the page's script; nothing in them can end the element, and what is not finite is null."""
    text = json.dumps(_finite(value), separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{escape(identity)}">{text}</script>')


def _text(value: Any) -> str:
    return escape(printable(str(value)))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return printable(value)
        case dict():
            return {printable(str(key)): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value
