"""How do we speak to a person at a terminal? In plain sentences: a path with brackets in it is no markup."""

from rich.console import Console


def plain_console(stderr: bool = False) -> Console:
    """A console that prints sentences as they are, one line each."""
    return Console(soft_wrap=True, markup=False, highlight=False, stderr=stderr)
