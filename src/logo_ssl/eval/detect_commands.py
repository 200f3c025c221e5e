"""How is a detector asked for in a shell? What the user may choose, and our figures above the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from ..detection.body import refuse_other_networks
from ..detection.recipe import VOC_RECIPE, DetectorConfig, check_recipe
from ..detection.sources import OFFICIAL, VOC, load_detection
from ..errors import DataMissing
from .detect import DetectionFigure, claim_beside, refuse_without_masks, without_masks
from .detect import detect as evaluate_detect
from .detect_options import RecipeOptions
from .detect_schedule import recipe_for, schedule
from .options import EvalOptions, check_result
from .results import say_unless_saved
from .table6 import COLUMNS, MEASURES, PAPER


@dataclass(frozen=True)
class Detect(RecipeOptions, EvalOptions):
    """Faster R-CNN on the encoder, fine-tuned: AP of boxes on voc07+12, coco, or any folder in either layout.

    example: logo-ssl eval detect runs/photos --data my/coco/folder --dry-run
    """

    data: str = field(kw_only=True)
    """voc07+12, coco, or a folder in VOC's or COCO's layout."""
    agnostic: bool = False
    """Make one class of all categories."""
    devices: int | Literal["auto"] = 1
    """Processes that share each batch, one on each GPU; auto: as many as there are (docs/scaling.md)."""
    dry_run: bool = False
    """Show the schedule and how long it takes, and stop."""
    max_bad: float = 0.0
    """Share of training images that may be left out: unreadable, or of another size than their annotation has."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: into the run folder)")] = None
    """JSON file; NAME-pictures/ (with COCO's results) and, while training, NAME-training/ are next to it."""

    size: tyro.conf.Suppress[int | None] = None
    masks: tyro.conf.Suppress[bool] = False

    def run(self) -> None:
        """Train a detector, test it, and show the figures beside the paper's."""
        if self.masks and self.data == VOC:
            raise without_masks(f"{VOC} has no masks")
        check_recipe(self.applied_to(VOC_RECIPE))
        frozen, console = replace(self, size=self.test_side or DetectorConfig.test_side).open()
        refuse_other_networks(frozen.backbone, frozen.network[0])
        if self.dry_run:
            self._show_schedule(console)
            return
        data = load_detection(self.data, self.agnostic, self.masks)
        protocol = recipe_for(data.name, len(data.train), data.official)
        for sentence in (*data.about(), *self.says(protocol)):
            console.print(sentence, markup=False, highlight=False)
        with self.extraction(console) as how:
            settings = {"masks": self.masks, "out": self.out, "overwrite": self.overwrite, "devices": self.devices}
            settings["max_bad"] = self.max_bad
            figures = list(evaluate_detect(frozen, data, self.applied_to(protocol), how, **settings))
        _show(console, frozen.name, figures, data.name if data.beside_paper else None)
        say_unless_saved(self, frozen, console)

    def _show_schedule(self, console: Console) -> None:
        """What would be done, once all is refused that could not be; the pictures themselves are not looked at."""
        name, n_pictures, official, about = self._found()
        protocol = recipe_for(name, n_pictures, official)
        if self.out is not None:
            check_result(self.out, self.overwrite)
            claim_beside(self.out, self.overwrite)
        for sentence in (*about, *self.says(protocol)):
            console.print(sentence, markup=False, highlight=False)
        table = Table("what", "how much", title="Schedule")
        for row in schedule(name, self.applied_to(protocol), n_pictures, self.masks):
            table.add_row(*row)
        console.print(table)

    def _found(self) -> tuple[str, int, bool, list[str]]:
        """Name and training pictures of the data, whether they are official, and what is to be said of them."""
        try:
            data = load_detection(self.data, self.agnostic, self.masks)
        except DataMissing as missing:
            if self.data not in OFFICIAL:
                raise
            about = f"The schedule is that of the official set, which is not on this disk: {missing}"
            return self.data, OFFICIAL[self.data].train, True, [about]
        if self.masks:
            refuse_without_masks(data)
        return data.name, len(data.train), data.official, [*data.about(), "Whether each can be read is seen later."]


@dataclass(frozen=True)
class Segment(Detect):
    """Mask R-CNN on the encoder, fine-tuned: AP of boxes and of instance masks, on coco or any folder in its layout.

    example: logo-ssl eval segment torchvision/resnet50 --data my/coco/folder --out segment.json
    """

    data: str = field(kw_only=True)
    """coco, or a folder in COCO's layout, with masks."""
    masks: tyro.conf.Suppress[bool] = True


def _show(
    console: Console, encoder: str, figures: Sequence[tuple[DetectionFigure, float]], official: str | None
) -> None:
    """Our rows above the paper's, in its order of columns; sizes are in what is saved."""
    by_row: dict[tuple[str, str], dict[str, float]] = {}
    for (of, measure, figure), value in figures:
        by_row.setdefault((of, measure), {})[figure] = value
    table = Table("encoder", "of", "measure", *COLUMNS, title="Average precision (%)")
    for (what, measure), ours in by_row.items():
        shown = (f"{ours[name]:.2f}" if name in ours else "" for name in COLUMNS)
        table.add_row(encoder, what, measure, *shown, style="bold")
    for (data, what), rows in PAPER.items():
        for row, numbers in rows.items() if data == official and any(what == of for of, _ in by_row) else ():
            table.add_row(f"paper, Table 6: {row}", what, MEASURES[data], *(f"{number:.2f}" for number in numbers))
    console.print(table)
