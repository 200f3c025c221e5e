"""What is printed: sentences with odd characters, and for a reader who has seen enough."""

import os
import subprocess
import sys

from logo_ssl.system.terminal import plain_console


def test_commands_to_a_terminal_are_shown_as_escapes(capsys):
    plain_console().print("a sentence", "of a file\x1b[2J")
    assert capsys.readouterr().out == "a sentence of a file\\x1b[2J\n"


def test_a_reader_who_has_seen_enough_ends_nothing(tmp_path):
    code = """
from pathlib import Path
from logo_ssl.system.terminal import plain_console, put
console = plain_console()
for _ in range(3):
    console.print("a line")
put("and text")
Path("saved").touch()
"""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "saved").exists()
