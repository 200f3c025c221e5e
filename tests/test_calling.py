"""Is a method of somebody's own refused only where it cannot be called as we call it?"""

import functools

from logo_ssl.calling import about_call

GIVEN = ("p", "progress")


def padded(method):
    """A decorator that takes what is given, and hands on less."""

    @functools.wraps(method)
    def wide(self, p, progress):
        return method(self, p)

    return wide


class Parts:
    wide = padded(lambda self, p: p)
    any_number = staticmethod(lambda *whatever: whatever)
    with_defaults = functools.partialmethod(lambda self, p, progress, *, extra=0: p, extra=1)
    narrow = padded  # takes one argument, which is `self`
    absent = None


def test_what_can_be_called_is_left_alone():
    assert [about_call(Parts(), name, GIVEN) for name in ("wide", "any_number", "with_defaults")] == [None] * 3


def test_what_cannot_be_called_is_told_with_the_line_to_write():
    cure = "is called with (p, progress); write `def {}(self, p, progress)`."
    assert about_call(Parts(), "narrow", GIVEN) == f"narrow of Parts takes (), and {cure.format('narrow')}"
    assert about_call(Parts(), "absent", GIVEN) == f"absent of Parts is None, and {cure.format('absent')}"
