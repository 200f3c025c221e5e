"""The page served to this machine while runs train: three addresses, and no file of the machine."""

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
from ..system.text import printable
from .html import page
from .summary import RunSummary, newest_runs, stamps

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

    def __init__(
        self, latest: Callable[[], Served], library: bytes, hosts: tuple[str, ...] | None, *rest: object
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
                self._send(HTTPStatus.OK, "text/javascript", self.library, "max-age=86400")
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


def open_server(host: str, port: int, latest: Callable[[], Served], library: bytes) -> Server:
    """A server that listens; UserError if it cannot."""
    hosts = None if host == EVERYWHERE else (*LOOPBACK, host.lower())
    try:
        return Server((host, port), partial(Handler, latest, library, hosts))
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
        self.seen: object = None  # so that the first look makes the page that takes long
        self.latest = self._page(quickly=True)

    def look(self) -> bool:
        """Make the page anew if anything changed; whether it did. What goes wrong is said here and on the page."""
        try:
            seen = stamps(*(file for run in newest_runs(self.paths) for file in _files(run)))
            if seen == self.seen:
                return False
            self.seen = seen
            self.latest = self._page()
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

    def _page(self, *, quickly: bool = False) -> Served:
        text = page(self.collect(newest_runs(self.paths), quickly=quickly), version="")
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Served(version, text.replace('data-version=""', f'data-version="{version}"', 1).encode())


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
