"""Whether Hugging Face's hub can be reached; without it, its client tries for a minute."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

from huggingface_hub import constants

PORTS = {"https": 443, "http": 80}


@contextmanager
def hub_if_reached() -> Iterator[str | None]:
    """Why the hub is out of reach, or None; where it is, its client looks in its cache alone meanwhile."""
    reason, offline = _out_of_reach(), constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline or reason is not None
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = offline


def _out_of_reach() -> str | None:
    """One connection tells, with the patience that its client has; not where the client or a proxy knows better."""
    address = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or getproxies().keys() - {"no"} or not address.hostname:
        return None
    try:
        place = address.hostname, address.port or PORTS.get(address.scheme, 443)
        socket.create_connection(place, timeout=constants.HF_HUB_ETAG_TIMEOUT).close()
    except OSError as error:
        return f"{address.hostname} is out of reach: {error.strerror or error}"
    return None
