"""Have commands the names and defaults of the Python functions behind them? Do shells complete them?"""

import inspect
import re
import shutil
import subprocess
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import logo_ssl
from logo_ssl import cli
from logo_ssl.commands.looking import PROTOCOL_NAMES
from logo_ssl.completion import SHELLS, script
from logo_ssl.recipes import RECIPES, Recipe
from logo_ssl.embedding.commands import USES

CALLBACKS = {"say", "progress", "console"}


def parameters(*functions) -> dict[str, object]:
    found = [parameter for function in functions for parameter in inspect.signature(function).parameters.values()]
    kept = [p for p in found if p.name not in CALLBACKS and p.kind is not p.VAR_KEYWORD]
    return {p.name: p.default for p in kept}


def options(command) -> dict[str, object]:
    return {f.name: f.default for f in fields(command)}


def required_in_python(name: str, default: object) -> bool:
    """A function asks for what a command asks for in a sentence."""
    return default is inspect.Parameter.empty and name in ("encoder", "to", "index", "query", "source")


@pytest.mark.parametrize("name", USES)
def test_a_command_has_the_options_of_its_function(name):
    function = parameters(logo_ssl.load, getattr(logo_ssl, name))
    command = options(USES[name])
    del function["source"]  # what `load` calls an encoder that is not loaded yet
    extra = {"search": {"out", "overwrite"}}.get(name, set())  # the contact sheet
    assert command.keys() - extra == function.keys()
    for option, default in function.items():
        if required_in_python(option, default):
            assert command[option] in (MISSING, None, ())
        else:
            assert command[option] == default, option


def test_pretrain_takes_recipe_and_folder_and_every_field_in_both(capsys):
    assert parameters(logo_ssl.pretrain) == {"recipe": "auto", "out": None}
    with pytest.raises(SystemExit):
        cli.main(["pretrain", "auto", "--help"])
    told = capsys.readouterr().out
    visible = [f.name for f in fields(Recipe) if f.name not in ("name", "paper", "chosen")]
    assert all(f"--{name.replace('_', '-')}" in told for name in visible)
    assert str(Path("runs") / "auto") in told.replace("\n", "")
    assert RECIPES["tiny"].changed(**{name: getattr(RECIPES["tiny"], name) for name in visible}) == RECIPES["tiny"]


def test_demo_and_resume_have_python_names(capsys):
    assert {"path", "recipe"} == parameters(logo_ssl.resume).keys()
    with pytest.raises(SystemExit):
        cli.main(["resume", "--help"])
    told = capsys.readouterr().out
    for words in ("--epochs 400", "--epochs INT", "--device ", "--data ", "--loading.workers ", "(as in the run)"):
        assert words in told
    assert "--seed" not in told
    assert "default:" not in told


def test_public_names_are_there():
    for name in logo_ssl.__all__:
        assert getattr(logo_ssl, name) is not None
    assert dir(logo_ssl) == sorted(logo_ssl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        logo_ssl.lode  # noqa: B018


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    return {shell: script(shell) for shell in SHELLS}


def completed(script: str, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    line = (
        f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _logo_ssl; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_recipes_protocols_and_options(scripts):
    bash = scripts["bash"]
    assert completed(bash, "logo-ssl", "e") == ["eval", "embed", "export"]
    assert completed(bash, "logo-ssl", "pretrain", "stl10-simsiam") == [
        "stl10-simsiam",
        "stl10-simsiam-multicrop",
        "stl10-simsiam-logo",
    ]
    assert completed(bash, "logo-ssl", "pretrain", "tiny", "--crops.global") == [
        "--crops.global-scale",
        "--crops.global-size",
    ]
    assert completed(bash, "logo-ssl", "eval", "") == [*PROTOCOL_NAMES, "--help"]
    assert completed(bash, "logo-ssl", "eval", "kn") == ["knn"]
    assert completed(bash, "logo-ssl", "eval", "knn", "--prot") == ["--protocols"]
    assert completed(bash, "logo-ssl", "eval", "linear", "runs/x", "--prot") == ["--protocol"]
    assert completed(bash, "logo-ssl", "eval", "detect", "--prot") == []
    assert completed(bash, "logo-ssl", "resume", "runs/x", "--loading.w") == ["--loading.workers"]
    assert completed(bash, "logo-ssl", "export", "runs/x", "--t") == ["--to"]


def test_fish_offers_the_options_of_a_protocol_behind_it_alone(scripts):
    taught = [line for line in scripts["fish"].splitlines() if "--protocols" in line]
    assert [re.findall("from (knn|eval|linear)", line) for line in taught] == [["eval", "knn"]]


def test_every_shell_is_taught_every_command(scripts):
    assert scripts["zsh"].startswith("autoload -U +X bashcompinit")
    for text in scripts.values():
        assert all(command in text for command in cli.COMMANDS)
        assert "--batch-size" in text
