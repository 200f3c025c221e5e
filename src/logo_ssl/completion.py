"""How does a shell know what can follow? Commands, options and recipes, read from the help of each command."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from .commands.looking import PROTOCOL_NAMES

SHELLS = {
    "bash": 'eval "$(logo-ssl completion bash)", best in ~/.bashrc',
    "zsh": 'eval "$(logo-ssl completion zsh)", best in ~/.zshrc after compinit',
    "fish": "logo-ssl completion fish | source, best in ~/.config/fish/config.fish",
}
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")
CHOICE = re.compile(r"(?<![\w-])(--[a-z][\w.-]*) \{([\w.,-]+)\}")
Choices = dict[str, list[str]]
"""What may stand behind an option."""
MEASURE = "eval"
"""The command whose options depend on the protocol behind it."""
TABLES = "reproduce"
"""The command whose first words are tables and figures."""
WIDE = "200"  # columns
RECIPES_FIRST = ("pretrain", "bench", "show-crops")
"""Commands whose first word may be a recipe."""


class Behind(NamedTuple):
    """What may follow a command."""

    words: list[str]
    choices: Choices


def script(shell: str) -> str:
    """The lines that teach a shell."""
    return _fish(following()) if shell == "fish" else _bash(following(), zsh=shell == "zsh")


def following() -> dict[str, Behind]:
    """What may stand behind each command, and behind a protocol: options, recipes, protocols, shells."""
    from .cli import COMMANDS

    protocols = {f"{MEASURE} {name}": _told(COMMANDS[MEASURE], [name, "--help"]) for name in PROTOCOL_NAMES}
    return {command: _behind(command) for command in COMMANDS} | protocols


def _behind(command: str) -> Behind:
    """The words that may come next to a command."""
    from .cli import COMMANDS
    from .recipes import AUTO, PARTS, RECIPES
    from .reproduce.tables import TITLES

    if command == "completion":
        return Behind(list(SHELLS), {})
    if command == MEASURE:
        return Behind([*PROTOCOL_NAMES, "--help"], {})
    if command in RECIPES_FIRST:
        options, choices = _told(COMMANDS[command], ["tiny", "--help"])
        parts = {f"--{part}": list(kinds) for part, kinds in PARTS.items()}
        return Behind([AUTO, *RECIPES, *options], choices | parts)
    options, choices = _told(COMMANDS[command], ["--help"])
    return Behind([*(TITLES if command == TABLES else ()), *options], choices)


def _told(command: Callable[[Sequence[str]], None], arguments: list[str]) -> Behind:
    """The options that a command's help shows, and their values where these can be listed."""
    told = io.StringIO()
    with _wide(), contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        command(arguments)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told.getvalue())
    choices = {option: values.split(",") for option, values in CHOICE.findall(plain)}
    return Behind(sorted({word.rstrip(".") for word in OPTION.findall(plain)}), choices)


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """A terminal on which no list of values is broken."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDE
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if columns is not None:
            os.environ["COLUMNS"] = columns


def _bash(words: dict[str, Behind], *, zsh: bool) -> str:
    values = {f"{name} {option}": of for name, found in words.items() for option, of in found.choices.items()}
    chosen = "".join(f'    "{option}") words="{" ".join(of)}" ;;\n' for option, of in values.items())
    cases = "".join(f'    "{name}") words="{" ".join(found.words)}" ;;\n' for name, found in words.items())
    commands = " ".join(name for name in words if " " not in name)
    before = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return (
        f"{before}_logo_ssl() {{\n"
        '  local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words=""\n'
        f'  if [ "$COMP_CWORD" -gt 2 ] && [ "$command" = {MEASURE} ]; then command="{MEASURE} ${{COMP_WORDS[2]}}"; fi\n'
        f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else case "$command" in\n'
        f"{cases}  esac; fi\n"
        '  case "$command ${COMP_WORDS[COMP_CWORD-1]}" in\n'
        f"{chosen}  esac\n"
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))\n'
        '  if [ "${#COMPREPLY[@]}" -eq 0 ]; then local IFS=$\'\\n\'; COMPREPLY=($(compgen -f -- "$current")); fi\n'
        "}\n"
        "complete -o filenames -F _logo_ssl logo-ssl\n"
    )


def _fish(words: dict[str, Behind]) -> str:
    commands = " ".join(name for name in words if " " not in name)
    lines = [f"complete -c logo-ssl -n __fish_use_subcommand -f -a '{commands}'"]
    for name, found in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        if name == MEASURE:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(PROTOCOL_NAMES)}"
        if found.words:
            lines.append(f"complete -c logo-ssl -n '{seen}' -a '{' '.join(found.words)}'")
        for option, values in found.choices.items():
            lines.append(f"complete -c logo-ssl -n '{seen}' -l {option.removeprefix('--')} -x -a '{' '.join(values)}'")
    return "\n".join(lines) + "\n"
