"""How does a shell know what can follow? Commands, options and recipes, read from the help of each command."""

import contextlib
import io
import re
from collections.abc import Callable, Sequence

from .commands.looking import PROTOCOL_NAMES

SHELLS = {
    "bash": 'eval "$(logo-ssl completion bash)", best in ~/.bashrc',
    "zsh": 'eval "$(logo-ssl completion zsh)", best in ~/.zshrc after compinit',
    "fish": "logo-ssl completion fish | source, best in ~/.config/fish/config.fish",
}
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")
MEASURE = "eval"
"""The command whose options depend on the protocol behind it."""
RECIPES_FIRST = ("pretrain", "bench", "show-crops")
"""Commands whose first word may be a recipe."""


def script(shell: str) -> str:
    """The lines that teach a shell."""
    return _fish(following()) if shell == "fish" else _bash(following(), zsh=shell == "zsh")


def following() -> dict[str, list[str]]:
    """What may stand behind each command, and behind a protocol: options, recipes, protocols, shells."""
    from .cli import COMMANDS

    protocols = {f"{MEASURE} {name}": _options(COMMANDS[MEASURE], [name, "--help"]) for name in PROTOCOL_NAMES}
    return {command: _behind(command) for command in COMMANDS} | protocols


def _behind(command: str) -> list[str]:
    """The words that may come next to a command."""
    from .cli import COMMANDS
    from .recipes import RECIPES

    if command == "completion":
        return list(SHELLS)
    if command == MEASURE:
        return [*PROTOCOL_NAMES, "--help"]
    if command in RECIPES_FIRST:
        return [*RECIPES, *_options(COMMANDS[command], ["tiny", "--help"])]
    return _options(COMMANDS[command], ["--help"])


def _options(command: Callable[[Sequence[str]], None], arguments: list[str]) -> list[str]:
    """The options that a command's help shows."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        command(arguments)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told.getvalue())
    return sorted({word.rstrip(".") for word in OPTION.findall(plain) if word.startswith("--")})


def _bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "".join(f'    "{name}") words="{" ".join(found)}" ;;\n' for name, found in words.items())
    commands = " ".join(name for name in words if " " not in name)
    before = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return (
        f"{before}_logo_ssl() {{\n"
        '  local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words=""\n'
        f'  if [ "$COMP_CWORD" -gt 2 ] && [ "$command" = {MEASURE} ]; then command="{MEASURE} ${{COMP_WORDS[2]}}"; fi\n'
        f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else case "$command" in\n'
        f"{cases}  esac; fi\n"
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))\n'
        '  if [ "${#COMPREPLY[@]}" -eq 0 ]; then local IFS=$\'\\n\'; COMPREPLY=($(compgen -f -- "$current")); fi\n'
        "}\n"
        "complete -o filenames -F _logo_ssl logo-ssl\n"
    )


def _fish(words: dict[str, list[str]]) -> str:
    commands = " ".join(name for name in words if " " not in name)
    lines = [f"complete -c logo-ssl -n __fish_use_subcommand -f -a '{commands}'"]
    for name, found in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        if name == MEASURE:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(PROTOCOL_NAMES)}"
        if found:
            lines.append(f"complete -c logo-ssl -n '{seen}' -a '{' '.join(found)}'")
    return "\n".join(lines) + "\n"
