"""Can a method of somebody's own be called as we call it?"""

from collections.abc import Sequence
from inspect import Signature, signature


def about_call(owner: object, method: str, given: Sequence[str]) -> str | None:
    """A sentence with the cure where a method of its owner cannot take what it is given, in that order."""
    called, whose = getattr(owner, method), f"{method} of {type(owner).__name__}"
    cure = f"is called with ({', '.join(given)}); write `def {method}({', '.join(['self', *given])})`."
    if not callable(called):
        return f"{whose} is {called!r}, and {cure}"
    try:
        takes = signature(called, follow_wrapped=False)  # a decorator may take other arguments than what it decorates
    except ValueError:  # some builtins do not tell
        return None
    try:
        takes.bind(*given)
    except TypeError:
        bare = [each.replace(annotation=each.empty) for each in takes.parameters.values()]
        return f"{whose} takes {Signature(bare)}, and {cure}"
    return None
