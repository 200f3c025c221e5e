"""Commands have the names and defaults of the Python functions behind them; public names are there."""

import inspect
from dataclasses import MISSING, fields

import pytest

import logo_ssl
from logo_ssl import cli
from logo_ssl.cli import COMMANDS
from logo_ssl.recipes import RECIPES, Recipe

USES = {name: COMMANDS[name].load() for name in ("embed", "search", "export", "finetune", "predict")}
CALLBACKS = {"say", "progress", "console", "callbacks"}


def parameters(*functions) -> dict[str, object]:
    found = [parameter for function in functions for parameter in inspect.signature(function).parameters.values()]
    kept = [p for p in found if p.name not in CALLBACKS and p.kind is not p.VAR_KEYWORD]
    return {p.name: p.default for p in kept}


def options(command) -> dict[str, object]:
    return {f.name: f.default for f in fields(command)}


def required_in_python(name: str, default: object) -> bool:
    """A function asks for what a command asks for in a sentence."""
    return default is inspect.Parameter.empty and name in ("encoder", "to", "index", "query", "source", "model", "data")


@pytest.mark.parametrize("name", USES)
def test_a_command_has_the_options_of_its_function(name):
    encoder = () if name == "predict" else (logo_ssl.load,)
    function = parameters(*encoder, getattr(logo_ssl, name))
    command = options(USES[name])
    function.pop("source", None)  # what `load` calls an encoder that is not loaded yet
    # the contact sheet; what `finetune` shares with `semi`
    extra = {"search": {"out", "overwrite"}, "finetune": {"fractions", "baselines"}}.get(name, set())
    assert command.keys() - extra == function.keys()
    for option, default in function.items():
        if required_in_python(option, default) or (option == "out" and command[option] is MISSING):  # a file is written
            assert command[option] is MISSING
        else:
            assert command[option] == default, option


def test_pretrain_takes_recipe_and_folder_and_every_field_in_both(capsys):
    assert parameters(logo_ssl.pretrain) == {"recipe": "auto", "out": None, "finish_in": None, "verbose": False}
    with pytest.raises(SystemExit):
        cli.main(["pretrain", "auto", "--help"])
    told = capsys.readouterr().out
    visible = [f.name for f in fields(Recipe) if f.name not in ("name", "paper", "chosen", "replans")]
    assert all(f"--{name.replace('_', '-')}" in told for name in visible)
    assert RECIPES["tiny"].changed(**{name: getattr(RECIPES["tiny"], name) for name in visible}) == RECIPES["tiny"]


def test_resume_has_python_names():
    assert {"path", "recipe", "finish_in", "verbose"} == parameters(logo_ssl.resume).keys()
    assert "path" in options(COMMANDS["resume"].load())


def test_public_names_are_there():
    assert dir(logo_ssl) == sorted(logo_ssl.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        logo_ssl.lode  # noqa: B018
