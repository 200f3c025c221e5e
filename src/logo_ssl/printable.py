"""How is a name shown that is no text? File names may be any bytes, while most formats hold text alone."""


def printable(name: str) -> str:
    """The name as it is, but for bytes that are no text, which are written as escapes."""
    try:
        return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half a character, as JSON may hold
        return name.encode(errors="backslashreplace").decode()
