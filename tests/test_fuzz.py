"""No input ends in a traceback: recipes, command lines and files at random."""

import json
import string
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.recipes import Recipe, find_recipe, read_recipe
from logo_ssl.run import Run

CASES = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TINY = json.loads(find_recipe("tiny").to_json())
PATHS = [(key,) for key in TINY] + [
    (key, inner) for key, part in TINY.items() if isinstance(part, dict) for inner in part
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [".".join(path).replace("_", "-") for path in PATHS if path[0] not in ("name", "paper")]
WORDS = st.sampled_from(
    [f"--{field}" for field in FIELDS]
    + ["0", "-1", "1e9", "nan", "inf", "", "None", "tiny", "../..", "--help", "--no-deterministic", "auto", "cpu"]
) | st.text(string.printable, max_size=6)


@CASES
@given(st.sampled_from(PATHS), ANYTHING)
def test_a_recipe_with_any_value_is_read_or_refused(tmp_path, path, value):
    record = json.loads(json.dumps(TINY))
    part = record[path[0]] if len(path) == 2 else record
    part[path[-1]] = value
    run = Run(tmp_path)
    run.recipe_file.write_text(json.dumps(record))
    with suppress(UserError):
        assert isinstance(read_recipe(run), Recipe)


@CASES
@given(st.binary(max_size=300), st.integers(0, 3000))
def test_a_damaged_recipe_file_is_refused(tmp_path, garbage, where):
    text = json.dumps(TINY).encode()
    run = Run(tmp_path)
    run.recipe_file.write_bytes(text[:where] + garbage + text[where + len(garbage) :])
    with suppress(UserError):
        read_recipe(run)


@CASES
@given(
    st.sampled_from(["pretrain", "resume", "eval", "show-crops", "bench", "recipes", "nonsense"]),
    st.lists(WORDS, max_size=6),
)
def test_any_command_line_ends_without_a_traceback(tmp_path, monkeypatch, capsys, command, words):
    """Nothing is trained: a command line that is in order reaches a stand-in."""
    monkeypatch.chdir(tmp_path)
    for name in ("pretrain", "resume"):
        monkeypatch.setattr(f"logo_ssl.train.{name}", lambda *arguments, **options: _raise())
    monkeypatch.setattr("logo_ssl.train.bench.bench", lambda recipe: _raise())
    monkeypatch.setattr("logo_ssl.augment.preview.draw_crops", lambda *arguments: _raise())
    with pytest.raises(SystemExit) as ended:
        cli.main([command, *words])
    assert ended.value.code in (0, 2, None)
    assert "Traceback" not in capsys.readouterr().err


def _raise():
    raise UserError("reached")
