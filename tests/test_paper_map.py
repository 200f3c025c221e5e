"""Is docs/paper-map.md true? And does the index of decisions list every note?"""

import inspect
import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from logo_ssl.recipes import RECIPES
from logo_ssl.reproduce.tables import TITLES

DOCS = Path(__file__).parents[1] / "docs"
EQUATIONS = range(1, 10)


class Row(NamedTuple):
    paper: str
    what: str
    code: str
    command: str


def read_rows() -> list[Row]:
    lines = [line for line in (DOCS / "paper-map.md").read_text().splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert header == list(Row._fields)
    return [Row(*cells) for cells in rows]


def references(row: Row) -> list[str]:
    return re.findall(r"`([\w.]+:[\w.]+)`", row.code)


ROWS = read_rows()
REFERENCES = sorted({reference for row in ROWS for reference in references(row)})


def resolve(reference: str) -> object:
    """The object that `module:qualified.name` stands for."""
    module, name = reference.split(":")
    return reduce(getattr, name.split("."), import_module(module))


def only_row(paper: str) -> Row:
    (row,) = [row for row in ROWS if row.paper == paper]
    return row


@pytest.mark.parametrize("reference", REFERENCES)
def test_what_the_map_names_exists(reference):
    assert resolve(reference) is not None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.paper)
def test_every_row_names_code_or_says_not_yet(row):
    assert references(row) or row.code == row.command == "not yet"


@pytest.mark.parametrize("number", EQUATIONS)
def test_every_equation_has_code_that_names_it(number):
    sources = [inspect.getsource(resolve(reference)) for reference in references(only_row(f"Eq. {number}"))]
    assert any(re.search(rf"\bEqs?\. {number}\b", source) for source in sources)


def test_algorithm_1_is_code_that_names_it():
    (reference,) = references(only_row("Algorithm 1"))
    assert "Algorithm 1" in inspect.getsource(resolve(reference))


def test_every_table_with_recipes_is_in_the_map():
    tables = {f"Table {row.table}" for recipe in RECIPES.values() for row in recipe.paper}
    assert tables <= {row.paper for row in ROWS}


def test_the_map_names_the_command_of_every_table_and_figure_that_can_be_reproduced():
    names = {"Table": "table", "Figure": "fig"}
    told = {
        f"{names[kind]}{number}": row for row in ROWS for kind, _, number in [row.paper.partition(" ")] if kind in names
    }
    assert {name for name, row in told.items() if f"`logo-ssl reproduce {name}`" in row.command} == TITLES.keys()
    assert all("logo-ssl reproduce" in row.command for row in told.values())


def test_the_index_of_decisions_lists_every_note_and_no_other():
    notes = {file.name for file in (DOCS / "decisions").glob("[0-9]*.md")}
    index = (DOCS / "decisions" / "README.md").read_text()
    listed = re.findall(r"^- \[(\d{4})\]\((\1-[\w-]+\.md)\)", index, re.MULTILINE)
    assert notes == set(re.findall(r"\((\d{4}-[\w-]+\.md)\)", index)) == {file for _, file in listed}
    assert len(listed) == len(notes) == len({number for number, _ in listed})
