"""The page served to this machine while runs train: two addresses, and no file of the machine."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import UserError
from ..run import Run
from ..system.terminal import printable
from .html import page
from .summary import RunSummary, find_runs, is_held, stamps

EVERYWHERE = "0.0.0.0"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Served(NamedTuple):
    """A page, and a name that changes with it."""

    version: str
    page: bytes
    trouble: str = ""
    """Why it is not renewed."""


class Handler(BaseHTTPRequestHandler):
    """Answers from memory only; a request for anything else finds nothing."""

    server_version, sys_version = "logo-ssl", ""
    timeout = 5  # of a browser that connects and does not ask

    def __init__(self, latest: Callable[[], Served], hosts: tuple[str, ...] | None, *rest: object) -> None:
        self.latest, self.hosts = latest, hosts
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page or its version."""
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

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """Serves on one address, so many connections at once; a browser that goes away is not an error."""

    daemon_threads = True
    most = 64

    def __init__(self, *settings: Any) -> None:
        self.free = threading.Semaphore(self.most)
        super().__init__(*settings)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether a thread is free; without one the connection is closed."""
        return self.free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


def open_server(host: str, port: int, latest: Callable[[], Served]) -> Server:
    """A server that listens; UserError if it cannot."""
    hosts = None if host == EVERYWHERE else (*LOOPBACK, host.lower())
    try:
        return Server((host, port), partial(Handler, latest, hosts))
    except (OSError, OverflowError) as error:
        raise UserError(
            f"port={port}: cannot be listened on at {host} ({error}); --port 0 takes a free one."
        ) from error


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Answer requests in another thread until the block ends; gives the address for a browser on this machine."""
    host, port = server.server_address[:2]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{LOOPBACK[0] if host == EVERYWHERE else host}:{port}/"
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class PageRenewer:
    """Keeps the newest page of the runs at some paths; it is made anew only if one of their files has changed."""

    paths: Sequence[Path]
    collect: Callable[..., Sequence[RunSummary]]
    """`RunCollector.collect`."""
    say: Callable[[str], None] = lambda sentence: None
    latest: Served = field(init=False)

    def __post_init__(self) -> None:
        self.seen: object = None
        self.latest = self._page([])

    def look(self, *, quickly: bool = False) -> bool:
        """Make the page anew if anything changed; whether it did. What goes wrong is said here and on the page."""
        try:
            runs, _ = find_runs(self.paths)
            seen = stamps(*(file for run in runs for file in _files(run))), [is_held(run) for run in runs]
            if seen == self.seen:
                return False
            self.seen = seen
            self.latest = self._page(self.collect(runs, quickly=quickly))
            if quickly:
                self.seen = None  # the next look makes what takes long
            return True
        except (UserError, OSError) as error:  # perhaps a file is half written: the next look tries again
            self.seen, reason = None, str(error)
        except Exception as error:  # this would fail again: it waits for the next change
            reason = f"{type(error).__name__}: {error}"
        trouble = f"The page is not renewed: {printable(reason)}"
        if trouble != self.latest.trouble:
            self.say(trouble)
        self.latest = self.latest._replace(trouble=trouble)
        return False

    def _page(self, runs: Sequence[RunSummary]) -> Served:
        text = page(runs, version="")
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Served(version, text.replace('data-version=""', f'data-version="{version}"', 1).encode())


def _files(run: Run) -> list[Path]:
    """Everything that the page is made of."""
    return sorted(file for files in ("*.*", "evaluation/*.json", "figures/*.png") for file in run.path.glob(files))
