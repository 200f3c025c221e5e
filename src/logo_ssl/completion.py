"""How does a shell know what can follow? Commands, options and recipes, read from the help of each command."""

import contextlib
import io
import re
from collections.abc import Callable, Sequence

SHELLS = {
    "bash": 'eval "$(logo-ssl completion bash)", best in ~/.bashrc',
    "zsh": 'eval "$(logo-ssl completion zsh)", best in ~/.zshrc after compinit',
    "fish": "logo-ssl completion fish | source, best in ~/.config/fish/config.fish",
}
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w.-]*")
RECIPES_FIRST = ("pretrain", "bench", "show-crops")
"""Commands whose first word may be a recipe."""


def script(shell: str) -> str:
    """The lines that teach a shell."""
    words = {"": _commands(), **{name: _following(name) for name in _commands()}}
    return _fish(words) if shell == "fish" else _bash(words, zsh=shell == "zsh")


def _commands() -> list[str]:
    from .cli import COMMANDS

    return list(COMMANDS)


def _following(command: str) -> list[str]:
    """What may stand behind a command: its options, and recipes, protocols or shells."""
    from .cli import COMMANDS
    from .evaluate.commands import PROTOCOLS
    from .recipes import RECIPES

    if command == "completion":
        return list(SHELLS)
    if command in RECIPES_FIRST:
        return [*RECIPES, *_options(COMMANDS[command], ["tiny", "--help"])]
    if command == "eval":
        options = (_options(COMMANDS[command], [protocol, "--help"]) for protocol in PROTOCOLS)
        return [*PROTOCOLS, *dict.fromkeys(word for found in options for word in found)]
    return _options(COMMANDS[command], ["--help"])


def _options(command: Callable[[Sequence[str]], None], arguments: list[str]) -> list[str]:
    """The options that a command's help shows."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        command(arguments)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told.getvalue())
    return sorted({word.rstrip(".") for word in OPTION.findall(plain) if word.startswith("--")})


def _bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "".join(f'    {name}) words="{" ".join(found)}" ;;\n' for name, found in words.items() if name)
    before = "autoload -U +X bashcompinit && bashcompinit\n" if zsh else ""
    return (
        f"{before}_logo_ssl() {{\n"
        '  local current="${COMP_WORDS[COMP_CWORD]}" words=""\n'
        f'  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(words[""])}"; else case "${{COMP_WORDS[1]}}" in\n'
        f"{cases}  esac; fi\n"
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))\n'
        '  if [ "${#COMPREPLY[@]}" -eq 0 ]; then local IFS=$\'\\n\'; COMPREPLY=($(compgen -f -- "$current")); fi\n'
        "}\n"
        "complete -o filenames -F _logo_ssl logo-ssl\n"
    )


def _fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c logo-ssl -n __fish_use_subcommand -f -a '{' '.join(words[''])}'"]
    for name, found in words.items():
        if name and found:
            lines.append(f"complete -c logo-ssl -n '__fish_seen_subcommand_from {name}' -a '{' '.join(found)}'")
    return "\n".join(lines) + "\n"
