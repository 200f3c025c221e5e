"""What do the records say, table by table? docs/results/cifar10-tables.md, made of docs/results/raw.

python tools/write_tables.py docs/results
"""

import argparse
from pathlib import Path
from typing import Any

from logo_ssl.files import write
from logo_ssl.reproduce.beside import with_finished
from logo_ssl.reproduce.markdown import markdown
from logo_ssl.reproduce.results import gather
from logo_ssl.reproduce.tables import choose

PREFACE = """\
# CIFAR-10: the whole tables

What `logo-ssl reproduce` wrote, made again from the runs' records by `python tools/write_tables.py docs/results`; a
test compares. What it means is on [CIFAR-10](cifar10.md).

The records lie in `docs/results/raw/cifar10-tuned` and `cifar10-paper`; those of MoCo's tuned rows as they were until
experiment 46, with weight decay 5e-4, in `cifar10-half-decay`, and as they were until experiment 41, with enlarged
local crops, too, in `cifar10-large-local`; MoCo with four large crops in `cifar10-four-large`. Such a folder is an
`--out` without weights, its logs thinned by `tools/keep_records.py`: `reproduce` finds these rows finished in a copy of
it, and adds others ([how to](../how-to/reproduce.md)).
"""
PARTS = (
    (
        "table1",
        "tuned",
        "Table 1, with settings of our choice",
        "    logo-ssl reproduce table1 table7 --tuned --data cifar10.npz --set knn_every=20 --seeds 2\n\n"
        "(The rows were run in groups: experiments 11, 12, 14, 37, 46 and 51 of [the list](experiments.md) have the "
        "commands.)",
        "The four rows take about 40 minutes of one H200: by `reproduce table1 --tuned --dry-run` 35.6 one after "
        "another, training alone ([speed](speed.md)). By the clock of their sittings the second seeds of MoCo, "
        "MoCo-LoGo and SimSiam trained within 25.4 minutes side by side, MoCo without L2L and, for six minutes, the "
        "GPU tests beside them; SimSiam-LoGo took 12.7 minutes, two of them beside another row (experiment 11); to "
        "evaluate them all takes one or two: a sum of two sittings, at two commits. SimSiam-LoGo's second seed took "
        "24.3 minutes beside MoCo with four large crops, short runs and the GPU tests. (With the "
        "first settings, which had enlarged local crops for MoCo, too, they took 43.4: experiments 11 and 12.) The "
        "change to the commit of MoCo's first seeds is a page of text (experiment 46).",
    ),
    (
        "table7",
        "tuned",
        "Table 7 on CIFAR-10, with settings of our choice",
        "By the same command.",
        "The changes to the commits of SimSiam without L2L (experiment 14) and of MoCo-LoGo (experiment 46) are a page "
        "of text each.",
    ),
    (
        "table1",
        "paper",
        "Table 1, with the paper's settings",
        "    logo-ssl reproduce table1 table7 --data cifar10.npz --set knn_every=20 --rows 'cifar10-*' --seeds 2\n\n"
        "(Of two seeds where it says n=2, the others were run with one.)",
        "SimSiam had up to a fifth of the GPU (experiment 25; the change to its commit is a page of text); the others "
        "ran with SimSiam by another weight decay among them (experiments 30 and 31), all within 23.6 minutes of one "
        "H200, evaluation included.",
    ),
    (
        "table7",
        "paper",
        "Table 7 on CIFAR-10, with the paper's settings",
        "By the same command.",
        "The rows without L2L were run beside SimSiam-LoGo by another weight decay (experiments 31 and 33), all three "
        "within 24.2 minutes of one H200.",
    ),
)


def record(results: Path, name: str, settings: str) -> dict[str, Any]:
    """The table of all rows that have ended, as `reproduce` gathers it: `tuned`, or the paper's settings."""
    (table,) = choose([name], own=settings == "tuned")
    return gather(*with_finished(table._replace(rows=()), table, [], results / "raw" / f"cifar10-{settings}"))


def page(results: Path) -> str:
    """The whole page."""
    text = PREFACE
    for name, settings, heading, command, remark in PARTS:
        _, _, table = markdown(record(results, name, settings)).partition("\n\n")  # without its own heading
        text += f"\n## {heading}\n\n{command}\n\n{table.strip()}\n\n{remark}\n"
    return text


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="docs/results")
    results = parser.parse_args(arguments).results
    write(results / "cifar10-tables.md", page(results))


if __name__ == "__main__":
    main()
