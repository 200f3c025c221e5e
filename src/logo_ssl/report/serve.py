"""The page served to this machine while runs train: two addresses, and no file of the machine."""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..system.terminal import printable
from .page import page
from .summary import RunSummary, find_runs, is_held, stamps

EVERYWHERE = "0.0.0.0"
PARTS = ("*.*", "evaluation/*.json", "figures/*.png")
"""Files of a run that the page is made of."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


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

    def __init__(self, latest: Callable[[], Served], hosts: tuple[str, ...], *rest: Any) -> None:
        self.latest, self.hosts = latest, hosts
        super().__init__(*rest)

    def do_GET(self) -> None:
        """The page or its version, if a name of ours was asked: a foreign page may point its own name here."""
        name, served = re.sub(r":\d+$", "", self.headers.get("Host", "")), self.latest()
        if EVERYWHERE not in self.hosts and name not in self.hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"This name is not served.\n")
        elif (path := self.path.split("?", 1)[0]) == "/":
            self._send(HTTPStatus.OK, "text/html", served.page)
        elif path == "/version":
            trouble = " ".join(served.trouble.split())
            self._send(HTTPStatus.OK, "text/plain", f"{served.version}\n{trouble}".strip().encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"Nothing is here.\n")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is for the user."""

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        lengths = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
        for name, value in (lengths | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A thread for each connection, up to a bound; a browser that goes away is not an error."""

    most = 64
    """Threads of this process."""

    def verify_request(self, request: object, client_address: object) -> bool:
        """Whether a thread is free; else the connection is closed."""
        return threading.active_count() < self.most

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


def open_server(host: str, port: int, latest: Callable[[], Served]) -> Server:
    """A server that listens; UserError if it cannot."""
    try:
        return Server((host, port), partial(Handler, latest, (*LOOPBACK, host.lower())))
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


class PageRenewer:
    """Keeps the newest page of the runs at some paths; it is made anew only if one of their files has changed."""

    def __init__(
        self,
        paths: Sequence[Path],
        collect: Callable[..., Sequence[RunSummary]],
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.paths, self.collect, self.say = paths, collect, say
        self.seen: object = None
        self.latest = self._page([])

    def look(self, *, quickly: bool = False) -> bool:
        """Make the page anew if anything changed; whether it did. What goes wrong is said here and on the page."""
        try:
            runs, _ = find_runs(self.paths)
            files = [file for run in runs for pattern in PARTS for file in sorted(run.path.glob(pattern))]
            seen = stamps(*files), [is_held(run) for run in runs]
            if seen == self.seen:
                return False
            self.seen = None if quickly else seen  # after a quick look the next one makes what takes long
            self.latest = self._page(self.collect(runs, quickly=quickly))
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
