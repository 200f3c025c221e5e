"""How do we speak to a person at a terminal? In plain sentences: a path with brackets in it is no markup."""

from rich.console import Console

from .launch import is_first, name


def plain_console(stderr: bool = False) -> Console:
    """A console that prints sentences as they are, one line each; of several processes, the first one speaks."""
    return Console(soft_wrap=True, markup=False, highlight=False, stderr=stderr, quiet=not is_first())


def counted(n: int, noun: str) -> str:
    """1 step, 2 steps, 1,000 steps."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def signature() -> str:
    """Who speaks on the error stream, where every process may."""
    return "logo-ssl" if is_first() else f"logo-ssl ({name()})"
