"""Draw docs/images/method.svg: the crops of one image and what LoGo asks of them, readable in light and dark.

python tools/draw_method.py docs/images/method.svg
"""

import math
import sys
from pathlib import Path

WIDTH, HEIGHT = 860, 300
GLOBAL, LOCAL, PULL, PUSH = "#2f7fd8", "#d8862f", "#2f9e58", "#d6455a"
STYLE = """
  text { font: 15px system-ui, sans-serif; fill: #24292f; }
  .small { font-size: 13px; }
  .head { font-weight: 600; }
  .frame { fill: none; stroke: #57606a; stroke-width: 1.5; }
  .node { fill: #ffffff; stroke-width: 2.5; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .frame { stroke: #9198a1; } .node { fill: #161b22; }
  }
"""
PHOTO = (20, 44, 240, 200)  # x, y, width, height
BOXES = (  # name, x, y, width, height, colour, dashed
    ("g1", 30, 54, 150, 160, GLOBAL, False),
    ("g2", 84, 82, 166, 152, GLOBAL, False),
    ("l1", 48, 128, 70, 66, LOCAL, True),
    ("l2", 178, 96, 62, 62, LOCAL, True),
)
LATENTS = {"g1": (610, 88), "g2": (770, 88), "l1": (590, 214), "l2": (790, 214)}
RADIUS = 23


def text(x: float, y: float, words: str, look: str = "", anchor: str = "middle") -> str:
    """A line of text."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" class="{look}">{words}</text>'


def star(x: float, y: float, radius: float) -> str:
    """A star of five points."""
    turns = [(math.pi * (i / 5 - 0.5), radius if i % 2 == 0 else 0.45 * radius) for i in range(10)]
    points = " ".join(f"{x + r * math.cos(turn):.1f},{y + r * math.sin(turn):.1f}" for turn, r in turns)
    return f'<polygon points="{points}" fill="#e3c14d"/>'


def photo() -> list[str]:
    """An image that shows two things, and the boxes of its crops."""
    x, y, width, height = PHOTO
    shown = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#8fb8c9"/>',
        f'<rect x="{x}" y="{y + 120}" width="{width}" height="{height - 120}" rx="6" fill="#7a9a6a"/>',
        '<circle cx="84" cy="162" r="36" fill="#b9545f"/>',
        '<circle cx="84" cy="162" r="18" fill="#f0e4d8"/>',
        star(209, 128, 30),
    ]
    for _, left, top, wide, high, colour, dashed in BOXES:
        dashes = ' stroke-dasharray="6 4"' if dashed else ""
        box = f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" fill="none" stroke="{colour}"'
        shown.append(f'{box} stroke-width="3"{dashes}/>')
    return [
        *shown,
        text(140, 28, "one image, four crops", "head"),
        text(140, 266, f'<tspan fill="{GLOBAL}">2 global</tspan>, <tspan fill="{LOCAL}">2 local</tspan>'),
    ]


def encoder() -> list[str]:
    """The network between crops and latents."""
    return [
        '<polygon points="330,84 420,118 420,180 330,214" class="frame"/>',
        text(374, 154, "encoder"),
        '<path d="M276 149 H316" class="frame" marker-end="url(#plain)"/>',
        '<path d="M434 149 H474" class="frame" marker-end="url(#plain)"/>',
    ]


def arrow(start: str, end: str, colour: str, share: tuple[float, float]) -> str:
    """From one share of the way between two latents to another."""
    (x0, y0), (x1, y1) = LATENTS[start], LATENTS[end]
    free = 1 - 2 * (RADIUS + 6) / math.hypot(x1 - x0, y1 - y0)  # of the way, between the circles
    begin, stop = (0.5 + free * (part - 0.5) for part in share)
    a, b, c, d = (
        f"{value:.1f}"
        for value in (x0 + begin * (x1 - x0), y0 + begin * (y1 - y0), x0 + stop * (x1 - x0), y0 + stop * (y1 - y0))
    )
    mark = f'marker-end="url(#{colour[1:]})"'
    return f'<line x1="{a}" y1="{b}" x2="{c}" y2="{d}" stroke="{colour}" stroke-width="2.5" {mark}/>'


def latents() -> list[str]:
    """Pull, pull, push."""
    nodes = []
    for name, (x, y) in LATENTS.items():
        colour = GLOBAL if name.startswith("g") else LOCAL
        nodes.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" class="node" stroke="{colour}"/>')
        label = f'z<tspan dy="-6" font-size="11">{name[0]}</tspan><tspan dy="10" font-size="11">{name[1]}</tspan>'
        nodes.append(text(x, y + 5, label))
    pulls = [arrow(local, target, PULL, (0, 1)) for local in ("l1", "l2") for target in ("g1", "g2")]
    return [
        text(690, 28, "what their latents learn", "head"),
        arrow("g1", "g2", PULL, (0, 0.45)),
        arrow("g2", "g1", PULL, (0, 0.45)),
        *pulls,
        arrow("l1", "l2", PUSH, (0.55, 1)),
        arrow("l2", "l1", PUSH, (0.55, 1)),
        *nodes,
        text(690, 76, f'<tspan fill="{PULL}">pull</tspan>', "small"),
        text(566, 156, f'<tspan fill="{PULL}">pull</tspan>', "small"),
        text(814, 156, f'<tspan fill="{PULL}">pull</tspan>', "small"),
        text(690, 240, f'<tspan fill="{PUSH}">push apart</tspan>', "small"),
        text(690, 266, "by an affinity that a small network learns", "small"),
    ]


def marker(colour: str, name: str) -> str:
    """An arrow head."""
    shape = f'<path d="M0 0 L8 4 L0 8 z" fill="{colour}"/>'
    size = 'markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto" markerUnits="userSpaceOnUse"'
    return f'<marker id="{name}" {size}>{shape}</marker>'


def method() -> str:
    """The whole picture."""
    markers = [marker(colour, colour[1:]) for colour in (PULL, PUSH)] + [marker("#848d97", "plain")]
    title = "Global crops are pulled together, local crops to their globals; local crops are pushed apart"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">'
    parts = [head, f"<style>{STYLE}</style>", f"<defs>{''.join(markers)}</defs>", *photo(), *encoder(), *latents()]
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(method())
