"""What does Figure 1b show? The kNN accuracy of the rows over epochs, from the logs of their runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..run import write
from .results import Ended
from .settings import name_of
from .tables import PaperTable

PAPERS = "imagenet100", "resnet34"


def draw(table: PaperTable, ended: Ended, out: Path, record: dict[str, Any]) -> list[str]:
    """Draw the curves and write their numbers beside; gives back what to print."""
    from ..report import Curve, draw_knn_curves  # slow to import: only where it is needed

    curves = []
    for row in table.rows:
        runs = [t.place.run for t, _ in ended if t.recipe.name == row.recipe.name and t.place.finished]
        curves.append(Curve(row.recipe.name, row.label, name_of(row.recipe.data), tuple(runs)))
    drawn = [curve for curve in curves if curve.points()]
    told = [f"{c.row} is not drawn: it has no finished run with kNN over epochs." for c in curves if c not in drawn]
    remarks = strange_curves([table])
    record |= {"curves": {curve.row: curve.points() for curve in drawn}, "remarks": remarks}
    write(out / f"{table.name}.json", json.dumps(record, indent=2) + "\n")
    if not drawn:
        return [*told, "Figure 1b has nothing to draw."]
    files = draw_knn_curves(drawn, out / table.name, " ".join(remarks))
    return [*told, *remarks, *(f"Figure: {file}" for file in files)]


def strange_curves(tables: Sequence[PaperTable]) -> list[str]:
    """What to say when Figure 1b is drawn of something else than the paper's."""
    rows = [row.recipe for table in tables if table.name == "fig1b" for row in table.rows]
    shown = dict.fromkeys((name_of(recipe.data), recipe.backbone) for recipe in rows)
    if not shown or list(shown) == [PAPERS]:
        return []
    ours = " and ".join(f"{data} with {backbone}" for data, backbone in shown)
    return [f"The paper's Figure 1b is {' with '.join(PAPERS)}; this one is {ours}."]
