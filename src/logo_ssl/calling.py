"""Can a method of somebody's own be called as we call it?"""

from collections.abc import Sequence
from inspect import Signature, signature


def about_call(owner: object, method: str, given: Sequence[str]) -> str | None:
    """A sentence with the cure where a method of its owner cannot take what it is given, in that order."""
    try:
        takes = signature(getattr(owner, method))
    except ValueError:  # some builtins do not tell
        return None
    try:
        takes.bind(*given)
    except TypeError:
        bare = [each.replace(annotation=each.empty) for each in takes.parameters.values()]
        return (
            f"{method} of {type(owner).__name__} takes {Signature(bare)}, and is called with ({', '.join(given)}); "
            f"write `def {method}({', '.join(['self', *given])})`."
        )
    return None
