"""Who may see a page that is served, and what else is there? Three addresses, and no file of this machine."""

import socket
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit

from ..errors import UserError

EVERYWHERE = ("0.0.0.0", "::")
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
    timeout = 30

    def __init__(
        self, latest: Callable[[], Served], library: Callable[[], bytes], hosts: tuple[str, ...] | None, *rest: object
    ) -> None:
        self.latest, self.library, self.hosts = latest, library, hosts
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page, its version or its library."""
        if not self._welcome():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"This name is not served.\n")
            return
        match self.path.split("?", 1)[0]:
            case "/":
                self._send(HTTPStatus.OK, "text/html", self.latest().page)
            case "/version":
                self._send(HTTPStatus.OK, "text/plain", _status(self.latest()).encode())
            case "/plotly.js":
                self._send(HTTPStatus.OK, "text/javascript", self.library(), "max-age=86400")
            case _:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"Nothing is here.\n")

    def do_HEAD(self) -> None:
        """The same without its content."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is for the user."""

    def _welcome(self) -> bool:
        """Whether the browser asked for us by name: a foreign page that points its own name at us is turned away."""
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


def address_of(host: str) -> str:
    """How a browser on this machine calls the host."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{here}]" if ":" in here else here


def _status(served: Served) -> str:
    """The version, and trouble on a line of its own."""
    return "\n".join([served.version, *([" ".join(served.trouble.split())] if served.trouble else [])])


class Server(ThreadingHTTPServer):
    """Serves on one address; a browser that goes away is no news."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


class Server6(Server):
    """The same, on an address of IPv6."""

    address_family = socket.AF_INET6


def open_server(host: str, port: int, latest: Callable[[], Served], library: Callable[[], bytes]) -> Server:
    """A server that listens; refused in a sentence where that cannot be."""
    hosts = None if host in EVERYWHERE else (*LOOPBACK, host.lower())
    try:
        return (Server6 if ":" in host else Server)((host, port), partial(Handler, latest, library, hosts))
    except (OSError, OverflowError) as error:
        cause = getattr(error, "strerror", None) or error
        raise UserError(
            f"{host}:{port} cannot be listened on ({cause}); choose another --port, or --port 0."
        ) from error
