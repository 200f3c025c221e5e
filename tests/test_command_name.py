"""Does whatever is proposed to be typed begin with the command that was typed?"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import logo_ssl
from logo_ssl import cli
from logo_ssl.command_name import OURS, as_typed, command, note_command

PACKAGE = Path(logo_ssl.__file__).parent
OWN = "from logo_ssl.cli import main\n\nif __name__ == '__main__':\n    main()\n"
AS_WRITTEN = {
    "cli.py": "its help, which is shown as typed, and completion, which is of logo-ssl alone",
    "completion.py": "completion",
    "commands/looking.py": "a help",
    "commands/training.py": "helps",
    "reproduce/tables.py": "a note, which is shown as typed",
    "use/exporting/files.py": "lines for a file that goes to others",
}
"""Where our command may be named all the same, and why."""


def said(*words, folder):
    told = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    return told.returncode, told.stdout + told.stderr


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "my parts.py").write_text(OWN)
    return "my parts.py"


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("frob", "`{} --help` lists them."),
        ("--help", "usage: {} COMMAND ...\n"),
        ("embed", "for example: {} embed runs/first"),
        ("export random/tiny", "Say where to: {} export random/tiny --to onnx"),
        ("report --help", "example: {} report runs/first"),
        ("report . --framework.of 3", "`{} report --help` shows every option."),
    ],
)
def test_a_file_of_ones_own_is_named_where_it_was_typed_and_ours_elsewhere(line, proposed, own_file, tmp_path):
    (tmp_path / "recipe.json").write_text("{}")
    for words, name in (([own_file], "python 'my parts.py'"), (["-m", "logo_ssl"], OURS)):
        assert proposed.format(name) in said(*words, *line.split(), folder=tmp_path)[1]


def test_arguments_that_were_not_typed_are_of_our_command(monkeypatch, own_file, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [own_file])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    note_command(own_file=True)
    assert command() == "python 'my parts.py'"
    assert as_typed("logo-ssl report RUN, by logo-ssl's own hand") == f"{command()} report RUN, by logo-ssl's own hand"
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert command() == OURS
    monkeypatch.setattr(sys, "argv", ["-c"])  # no file
    note_command(own_file=True)
    assert command() == OURS


def test_a_module_of_ones_own_is_named_as_one(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text(
        OWN.replace("main()\n", "main(sys.argv[1:])\n").replace("from", "import sys\nfrom", 1)
    )
    assert "`python -m mine.train --help` lists them." in said("-m", "mine.train", "frob", folder=tmp_path)[1]


def test_no_sentence_names_our_command_whatever_was_typed():
    ours = re.compile(rf"{OURS} (?:{'|'.join(cli.COMMANDS)})\b")
    found = set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # of a help: as typed
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                found |= {file.relative_to(PACKAGE).as_posix()} if ours.search(node.value) else set()
    assert found == AS_WRITTEN.keys()
