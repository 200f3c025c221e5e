"""The page served to this machine while runs train: three addresses, and no file of the machine."""

import atexit
import hashlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import UserError
from ..run import Run
from ..signals import Stopped
from ..text import printable
from .html import page
from .summary import RunDiscovery, RunSummary, stamps

EVERYWHERE = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CTRL_C, FAILED = 130, 2


class Served(NamedTuple):
    """A page, and a name that changes with it."""

    version: str
    page: bytes
    trouble: str = ""
    """Why it is not renewed."""


class Handler(BaseHTTPRequestHandler):
    """Answers from memory only; a request for anything else finds nothing."""

    server_version, sys_version = "logo-ssl", ""
    timeout = 30

    def __init__(
        self, latest: Callable[[], Served], library: Callable[[], bytes], hosts: tuple[str, ...] | None, *rest: object
    ) -> None:
        self.latest, self.library, self.hosts = latest, library, hosts
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page, its version or its library."""
        if not self._is_for_us():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"This name is not served.\n")
            return
        match self.path.split("?", 1)[0]:
            case "/":
                self._send(HTTPStatus.OK, "text/html", self.latest().page)
            case "/version":
                served = self.latest()
                lines = [served.version, *([" ".join(served.trouble.split())] if served.trouble else [])]
                self._send(HTTPStatus.OK, "text/plain", "\n".join(lines).encode())
            case "/plotly.js":
                self._send(HTTPStatus.OK, "text/javascript", self.library(), "max-age=86400")
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"Nothing is here.\n")

    def do_HEAD(self) -> None:
        """The same without its content."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is for the user."""

    def _is_for_us(self) -> bool:
        """Whether the browser asked for a name of ours: a foreign page may point its own name at this address."""
        try:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return False
        return self.hosts is None or name in self.hosts

    def _send(self, status: HTTPStatus, kind: str, content: bytes, caching: str = "no-store") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", caching)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """Serves on one address; a browser that goes away is not an error."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


class Server6(Server):
    """The same, on an address of IPv6."""

    address_family = socket.AF_INET6


def open_server(host: str, port: int, latest: Callable[[], Served], library: Callable[[], bytes]) -> Server:
    """A server that listens; UserError if it cannot."""
    hosts = None if host in EVERYWHERE else (*LOOPBACK, host.lower())
    try:
        return (Server6 if ":" in host else Server)((host, port), partial(Handler, latest, library, hosts))
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UserError(
            f"port={port}: cannot be listened on at {host} ({cause}); --port 0 takes a free one."
        ) from error


def address_of(host: str) -> str:
    """How a browser on this machine calls the host."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]" if ":" in here else here


@dataclass
class PageRenewer:
    """Keeps the newest page of the runs at some paths; it is made anew only if one of their files has changed."""

    paths: Sequence[Path]
    collect: Callable[..., Sequence[RunSummary]]
    """`RunCollector.collect`."""
    latest: Served = field(init=False)

    def __post_init__(self) -> None:
        self.discovery = RunDiscovery(self.paths)
        self.seen: object = None  # so that the first look makes the page that takes long
        self._make(quickly=True)

    def look(self) -> bool:
        """Make the page anew if anything changed; whether it did."""
        seen = stamps(*(file for run in self.discovery.runs() for file in _files(run)))
        if seen == self.seen:
            return False
        self.seen = seen
        self._make()
        return True

    def renew(self, stop: threading.Event, every: float, say: Callable[[str], None]) -> None:
        """Look every so many seconds until told to stop, whatever happens.

        A torn file is looked at again soon; what else fails would fail again, and waits for the next change.
        """
        while not stop.is_set():
            try:
                self.look()
            except (UserError, OSError) as error:
                self.seen = None
                self._report(str(error), say)
            except Exception as error:
                self._report(f"{type(error).__name__}: {error}", say)
            stop.wait(every)

    def _make(self, *, quickly: bool = False) -> None:
        text = page(self.collect(self.discovery.runs(), quickly=quickly), version="")
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.latest = Served(version, text.replace('data-version=""', f'data-version="{version}"', 1).encode())

    def _report(self, reason: str, say: Callable[[str], None]) -> None:
        trouble = f"The page is not renewed: {printable(reason)}"
        self.latest = self.latest._replace(trouble=trouble)
        say(trouble)


class Background:
    """Lets work be done in a thread until the block ends; a process that ends then does not wait for the thread.

    Python freezes such a thread when it goes away; one that is inside torch takes the process down with it (SIGABRT).
    """

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self.stop, self.code = threading.Event(), 0
        self.thread = threading.Thread(target=work, args=(self.stop,), daemon=True)

    def __enter__(self) -> None:
        atexit.register(self._leave)
        self.thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop.set()
        if isinstance(error, Stopped):
            self.code = 128 + error.number
        elif error is not None:
            self.code = CTRL_C if isinstance(error, KeyboardInterrupt) else FAILED

    def _leave(self) -> None:
        if self.thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


def _files(run: Run) -> list[Path]:
    """Everything that the page is made of."""
    single = (
        run.recipe_file,
        run.metrics_file,
        run.provenance_file,
        run.backbone_file,
        run.heads_file,
        run.bad_images_file,
    )
    folders = (run.evaluation_file("x").parent.glob("*.json"), (run.path / "figures").glob("*.png"))
    return [*single, *(file for folder in folders for file in sorted(folder))]
