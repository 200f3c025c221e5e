"""Is what a person reads in the English of the field? A word list, and the length of README's sentences."""

import re
from pathlib import Path

import pytest

from logo_ssl import cli
from logo_ssl.cli import COMMANDS, PROTOCOLS

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md")), *sorted((ROOT / "results").glob("*.md"))]
PAGES = [page for page in PAGES if not {"_build", "reference"} & set(page.relative_to(ROOT).parts)]
PRIVATE = {
    r"\b(?:is|are|was|were) (?:said|told)\b": "name who acts",
    r"\bsittings?\b": "session",
    r"\bwitness(?:es)?\b": "source",
    r"\bperceptrons?\b": "MLP",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbeside the (?:paper|public|baseline)": "compared with",
    r", too[.;]": "also",
    r"\b(?:hangs?|hang) on\b": "depends on",
    r"\b(?:lies|stands) in\b": "is in",
    r"\bis no (?:run|encoder|recipe|class|gain|number|folder|file)\b": "is not a",
    r"\bwhere there (?:is|are)\b": "if",
    r"\ban untrained one\b": "an untrained encoder",
}
LONGEST = 30


HELPS = ["", *(name for name in COMMANDS if name != "eval"), "eval", *(f"eval {name}" for name in PROTOCOLS)]


def private(text: str) -> list[tuple[str, str]]:
    """The words of a text that have no place in it, each with what to write."""
    text = " ".join(text.split())
    return [(match[0], use) for words, use in PRIVATE.items() for match in re.finditer(words, text, re.IGNORECASE)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_have_none_of_the_private_words(page):
    assert private(page.read_text()) == []


@pytest.mark.parametrize("line", HELPS)
def test_help_has_none_of_the_private_words(line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit):
        cli.main([*line.split(), "--help"])
    assert private(capsys.readouterr().out) == []


def test_no_sentence_of_readme_is_long():
    text = re.sub(r"```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    prose = [line for line in text.splitlines() if line and not line.startswith(("    ", "|", "#", "!"))]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in prose]
    sentences = [sentence for line in plain for sentence in re.split(r"(?<=[.:?;])\s", line)]
    assert [sentence for sentence in sentences if len(sentence.split()) > LONGEST] == []
