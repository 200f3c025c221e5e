"""Made-up scenes: images to learn from when nothing is downloaded.

`scenes`: seeded, made-up photographs. Two to five objects of different classes lie on a textured ground; the class of
the largest one is the label. A class is a texture on a shape; every shape and some textures serve two classes, so that
neither suffices. Colour, place, size, tilt and light say little about it: raw pixels are poor features here.

A scene is drawn first (`sample`, no pixel known) and painted second (`paint`), so it is the same scene at every size.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

CHUNK = 20  # scenes per random stream; small enough that 512 px fit in memory. Another value gives other scenes.
SLOTS = 5  # objects in painting order: the later ones cover the earlier ones
MAIN = 2  # the slot of the labelled object: two lie behind it, two in front

SHAPES: dict[str, tuple[float, float, float]] = {  # corners, radius between two of them, turn of the first one
    "disc": (24, math.cos(math.pi / 24), 0.0),
    "triangle": (3, 0.5, 0.0),
    "square": (4, math.sqrt(0.5), math.pi / 4),
    "star": (5, 0.42, 0.0),
    "diamond": (2, 0.55, 0.0),
}
TEXTURES: dict[str, Callable[..., Tensor]] = {  # waves of the phases across, along and outwards, and the angle around
    "plain": lambda u, v, r, a: torch.full_like(u, math.inf),  # ink everywhere, however small
    "striped": lambda u, v, r, a: torch.sin(u),
    "checkered": lambda u, v, r, a: 2 * torch.sin(0.6 * u) * torch.sin(0.6 * v),
    "dotted": lambda u, v, r, a: torch.cos(0.8 * u) + torch.cos(0.8 * v) - 1,
    "ringed": lambda u, v, r, a: torch.cos(r),
    "rayed": lambda u, v, r, a: torch.sin(8 * a),
    "swirled": lambda u, v, r, a: torch.sin(0.5 * r + 3 * a),
}
CLASSES: tuple[str, ...] = (
    *("striped disc", "ringed disc", "dotted square", "rayed square", "checkered triangle"),
    *("swirled triangle", "plain star", "ringed star", "checkered diamond", "rayed diamond"),
)


class Layout(NamedTuple):
    """Everything that is random about N scenes; lengths are in image widths."""

    kind: Int64[Tensor, "N slots"]  # index into CLASSES
    present: Float[Tensor, "N slots"]  # 1 or 0
    centre: Float[Tensor, "N slots 2"]
    radius: Float[Tensor, "N slots"]  # of the disc of the same area
    tilt: Float[Tensor, "N slots"]  # radians; the texture turns with its shape
    pitch: Float[Tensor, "N slots"]  # texture periods per radius
    phase: Float[Tensor, "N slots"]
    colours: Float[Tensor, "N slots 2 3"]  # paper and ink
    ground: Float[Tensor, "N 2 3"]  # above and below the horizon
    horizon: Float[Tensor, " N"]
    light: Float[Tensor, "N 2"]  # towards the light, longer where it is harsher
    clouds: tuple[Float[Tensor, "N 1 g g"], ...]  # value noise, coarse to fine; the last one is the film's grain


class Scenes(NamedTuple):
    """Painted scenes, and what can be seen of each object."""

    images: UInt8[Tensor, "N 3 S S"]
    labels: Int64[Tensor, " N"]
    kinds: Int64[Tensor, "N slots"]
    visible: Float[Tensor, "N slots S S"]  # each object's share of each pixel; kinds of absent objects have none


def make_scenes(n: int, size: int = 32, seed: int = 0) -> tuple[UInt8[Tensor, "n 3 size size"], Int64[Tensor, " n"]]:
    """The first n scenes of a seed and their labels; scene i depends on (seed, size, i) and not on n."""
    images, labels = zip(*((chunk.images, chunk.labels) for chunk in paint_chunks(n, size, seed)), strict=True)
    return torch.cat(images)[:n], torch.cat(labels)[:n]


def paint_chunks(n: int, size: int, seed: int) -> Iterator[Scenes]:
    """Whole chunks that hold at least n scenes, each from a random stream of its own."""
    for chunk in range(math.ceil(n / CHUNK)):
        yield paint(sample(np.random.default_rng([seed, chunk])), size)


def sample(rng: np.random.Generator) -> Layout:
    """Draw one chunk of scenes."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.from_numpy(rng.uniform(low, high, (CHUNK, *shape)).astype(np.float32))

    # A large object, wherever it is; the others (at most a fifth of its area) around it, a quarter turn apart. Crops
    # move and scale what they show, so an encoder learns to ignore its place and size, and pixels cannot. No crop turns
    # it, so it is tilted little: with textures at any angle, `tiny` had 46 % after six epochs instead of 71 (one seed).
    radius = uniform(0.08, 0.14, SLOTS)
    radius[:, MAIN] = uniform(0.34, 0.44)
    angle = uniform(0.0, 2 * math.pi, 1) + math.pi / 2 * torch.arange(SLOTS) + uniform(-0.4, 0.4, SLOTS)
    away = (radius[:, [MAIN]] + radius * uniform(0.4, 1.2, SLOTS)) * (torch.arange(SLOTS) != MAIN)
    middle = uniform(0.2, 0.8, 1, 2)
    centre = middle + away[..., None] * torch.stack([angle.cos(), angle.sin()], -1)

    # The foremost object is always there too, so that every scene shows two classes or more.
    present = (uniform(0.0, 1.0, SLOTS) < torch.tensor([0.5, 0.5, 1, 0.5, 1])).float()

    # Light and dark, so that greyscale keeps the texture; muted, so that hue is a poor way to match two crops.
    paper = rgb(uniform(0.0, 1.0, SLOTS), uniform(0.05, 0.4, SLOTS), uniform(0.7, 1.0, SLOTS))
    ink = rgb(uniform(0.0, 1.0, SLOTS), uniform(0.1, 0.5, SLOTS), uniform(0.1, 0.35, SLOTS))
    colours = torch.stack([paper, ink], 2)
    swapped = uniform(0.0, 1.0, SLOTS, 1, 1) < 0.5
    light = uniform(0.0, 2 * math.pi)
    return Layout(
        kind=torch.from_numpy(rng.random((CHUNK, len(CLASSES))).argsort(1)[:, :SLOTS].copy()),
        present=present,
        centre=centre.clamp(0.07, 0.93),
        radius=radius,
        tilt=uniform(-0.3, 0.3, SLOTS),
        pitch=uniform(1.9, 2.7, SLOTS),
        phase=uniform(0.0, 2 * math.pi, SLOTS),
        colours=torch.where(swapped, colours.flip(2), colours),
        ground=rgb(uniform(0.0, 1.0, 2), uniform(0.05, 0.25, 2), uniform(0.45, 0.7, 2)),
        horizon=uniform(0.2, 0.8),
        light=uniform(0.1, 0.5, 1) * torch.stack([light.cos(), light.sin()], 1),
        clouds=tuple(uniform(-1.0, 1.0, 1, grid, grid) for grid in (3, 7, 15, 32)),
    )


def rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Float[Tensor, "*any 3"]:
    """A colour from its hue (a turn is 1), saturation and value, by three cosines a third of a turn apart."""
    wheel = 0.5 - 0.5 * torch.cos(2 * math.pi * (hue[..., None] - torch.tensor([0, 1 / 3, 2 / 3])))
    return value[..., None] * (1 - saturation[..., None] * wheel)


def paint(scene: Layout, size: int) -> Scenes:
    """Paint the ground, then each object over what lies behind it, then the light and the grain."""
    axis = (torch.arange(size) + 0.5) / size
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="xy"))  # [2 S S]: x, y
    clouds = [F.interpolate(noise, (size, size), mode="bilinear")[:, 0] for noise in scene.clouds]
    offset = grid - scene.centre[..., None, None]  # [N slots 2 S S]
    distance, ink = outline_and_texture(scene, offset, size)
    cover = (0.5 - distance * size).clamp(0, 1) * wide(scene.present)  # an edge is one pixel soft
    shadow = 0.5 * torch.sigmoid(-distance / 0.03) * wide(scene.present)
    glow = 1 + (wide(scene.light)[:, None] * offset).sum(2) / wide(scene.radius)  # towards the light: brighter

    canvas, visible = paint_ground(scene, grid, clouds), torch.zeros_like(cover)
    for slot in range(SLOTS):
        paper, tone = wide(scene.colours[:, slot]).unbind(1)
        skin = torch.lerp(paper, tone, ink[:, None, slot]) * glow[:, None, slot].clamp(0.4, 1.5)
        canvas = torch.lerp(canvas * (1 - shadow[:, None, slot]), skin, cover[:, None, slot])
        visible = visible * (1 - cover[:, [slot]])
        visible[:, slot] = cover[:, slot]

    canvas = canvas * (1 + (wide(scene.light) * (grid - 0.5)).sum(1, keepdim=True)) + 0.06 * clouds[-1][:, None]
    images = (255 * canvas.clamp(0, 1)).round().to(torch.uint8)
    return Scenes(images, scene.kind[:, MAIN].contiguous(), scene.kind, visible)


def outline_and_texture(scene: Layout, offset: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """For each object: every pixel's distance to its edge (negative inside), and how much ink lies there."""
    across, down = offset.unbind(2)
    cos, sin = wide(scene.tilt.cos()), wide(scene.tilt.sin())
    x, y = cos * across + sin * down, cos * down - sin * across  # on axes that are tilted as the object
    around, outwards = torch.atan2(x, -y), torch.hypot(x, y)  # angles from the top, so that a triangle stands

    # Folded at its corners, a star is one straight edge, from a corner at radius 1 to a dent at radius `dent`.
    corners, dent, turn = wide(torch.tensor([SHAPES[name.split()[1]] for name in CLASSES])[scene.kind]).unbind(2)
    half = math.pi / corners
    folded = around - turn - 2 * half * torch.round((around - turn) / (2 * half))
    nx, ny = dent * torch.sin(half), 1 - dent * torch.cos(half)  # normal of that edge
    reach = wide(scene.radius) * torch.sqrt(half / (dent * torch.sin(half)))  # every shape has the disc's area
    beyond = nx * (outwards * torch.cos(folded) - reach) + ny * outwards * torch.sin(folded.abs())
    distance = beyond / torch.hypot(nx, ny)  # exact but for the corners, which stay sharp

    frequency = 2 * math.pi * wide(scene.pitch / scene.radius)
    u, v, r = (frequency * axis + wide(scene.phase) for axis in (x, y, outwards))
    wave = torch.empty_like(x)
    for texture, pattern in TEXTURES.items():
        rows = torch.tensor([name.split()[0] == texture for name in CLASSES])[scene.kind]
        wave[rows] = pattern(u[rows], v[rows], r[rows], around[rows])
    # The wave's slope makes its edges one pixel soft, and lets waves finer than three pixels fade into grey.
    return distance, 0.5 + 0.5 * (wave * 2 * size / frequency).clamp(-1, 1)


def paint_ground(scene: Layout, grid: Tensor, clouds: list[Tensor]) -> Float[Tensor, "N 3 S S"]:
    """Two cloudy colours that meet at an uneven horizon."""
    below = torch.sigmoid((grid[1] + 0.1 * clouds[1] - wide(scene.horizon)) / 0.03)
    mottled = 1 + 0.1 * clouds[0] + 0.1 * clouds[1] + 0.15 * clouds[2]
    sky, soil = wide(scene.ground).unbind(1)
    return torch.lerp(sky, soil, below[:, None]) * mottled[:, None]


def wide(values: Tensor) -> Tensor:
    """The same values with two more axes, to spread over pixels."""
    return values[..., None, None]
