"""A server of one page: it answers this machine alone, only who knows the token, and changes nothing.

What it defends against: other users of the machine, who may connect but do not know the token; pages of other sites in
the same browser, which may send requests and may let a name of their own resolve to this machine, so that the `Host`
of a request must be a name of this machine; and whoever holds connections open. A connection is a stranger's until its
whole request has come with the token. A stranger has seconds for that, however it spreads its bytes, and makes room for
a newer one where there are many, so that whoever knows the token is answered at any time.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from triton_ops.exceptions import SettingsError

_Answer = tuple[HTTPStatus, str, str]  # a status, a text and its media type
HOST = "127.0.0.1"
_LARGEST_PORT = 65_535
_LOOK_S = 0.1
MOST_CONNECTIONS = 24  # of who knows the token
MOST_STRANGERS = 64
REQUEST_S = 5.0  # that a stranger has for a request
_HEAD_BYTES = 64 << 10  # of a request with its headers, where cookies of other programs of this machine may be
_IDLE_S = 20.0  # that a page may take nothing of its answer
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.ASCII | re.IGNORECASE)  # a tunnel has another port
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page's own policy stands in the page
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves a page and its data under `/TOKEN/`; `answer` answers path and query below it, or None."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listening: socket.socket,
        token: str,
        answer: Callable[[str], _Answer | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(listening.getsockname(), _Answers, bind_and_activate=False)
        # The base class makes a socket of its own, also where it is not to bind it.
        self.socket.close()
        self.socket = listening
        self.token, self.answer, self._clock = token, answer, clock
        self._strangers: dict[socket.socket, float] = {}  # until when, the oldest first
        self._readers: set[socket.socket] = set()
        self._changed = threading.Condition()

    @classmethod
    def serve(cls, answer: Callable[[str], _Answer | None], port: int, tell: Callable[[str], None]) -> None:
        """Serve a page on a port, as `listening` takes it, until Ctrl-C; `tell` is called with its address."""
        with cls.listening(port, "--port") as bound, cls(bound, cls.new_token(), answer) as server:
            tell(f"open {cls.address_of(bound, server.token)} in a browser; Ctrl-C ends it")
            server.serve_forever(_LOOK_S)

    @staticmethod
    def listening(port: int, option: str) -> socket.socket:
        """A socket that listens on a port of this machine alone, 0 for a free one; an error names the `option`."""
        if not 0 <= port <= _LARGEST_PORT:
            raise SettingsError(f"{option} {port} is no port", hint=f"give 1 to {_LARGEST_PORT}, or 0 for a free one")
        try:
            return socket.create_server((HOST, port))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise SettingsError(f"port {port} of {HOST} cannot be used: {why}", hint=f"leave {option} out") from error

    @staticmethod
    def new_token() -> str:
        """A token that nobody can guess."""
        return secrets.token_urlsafe(24)

    @staticmethod
    def address_of(bound: socket.socket, token: str) -> str:
        """The address of the page that is served on a socket."""
        return f"http://{HOST}:{bound.getsockname()[1]}/{token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        with self._changed:
            self._strangers[request] = self._clock() + REQUEST_S
            self._cut(len(self._strangers) - MOST_STRANGERS)
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def service_actions(self) -> None:
        """Cut off the strangers whose time is over; called between requests, and several times a second."""
        with self._changed:
            self._cut(sum(until_s <= self._clock() for until_s in self._strangers.values()))

    def welcome(self, request: socket.socket) -> bool:
        """Take a connection that has shown the token from the strangers; False if too many are answered already."""
        with self._changed:
            if len(self._readers) >= MOST_CONNECTIONS:
                return False
            self._strangers.pop(request, None)
            self._readers.add(request)
            return True

    def drain(self, most_s: float) -> None:
        """Wait until all who know the token are answered, for some seconds at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._readers, most_s)

    def _cut(self, count: int) -> None:
        """Cut off so many strangers, the oldest first; their threads then close the connections."""
        for request in list(self._strangers)[: max(count, 0)]:
            del self._strangers[request]
            with contextlib.suppress(OSError):  # it has gone away
                request.shutdown(socket.SHUT_RDWR)

    def _forget(self, request: socket.socket) -> None:
        with self._changed:
            self._strangers.pop(request, None)
            self._readers.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that has gone away."""


class _Head:
    """The head of a request, of which a line beyond the limit of bytes is refused as one that is too long."""

    def __init__(self, file: Any) -> None:
        self._file, self._left = file, _HEAD_BYTES
        self.close = file.close

    def readline(self, most: int) -> bytes:
        """The next line; LineTooLong beyond the limit."""
        line: bytes = self._file.readline(min(most, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("head of a request")
        return line


class _Answers(BaseHTTPRequestHandler):
    server: PageServer
    server_version = "triton-ops"
    sys_version = ""
    timeout = _IDLE_S

    def setup(self) -> None:
        """Bound what is read: the library takes 6 MB of headers, and makes several times that of them."""
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]

    def do_GET(self) -> None:
        if (name := self._path_below_token()) is None:
            return
        answer = self.server.answer(name)
        if answer is None:
            self._say(HTTPStatus.NOT_FOUND, "Not found.\n")
        else:
            self._answer(*answer)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for such names

    def _refuse(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "This server is read only.\n", Allow="GET, HEAD")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _path_below_token(self) -> str | None:
        """Path and query below the token; None if the request was refused."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or _HOST.fullmatch(hosts[0].strip()) is None:
            self._say(HTTPStatus.FORBIDDEN, "Open the page at 127.0.0.1 or localhost.\n")
            return None
        token, slash, name = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._say(HTTPStatus.NOT_FOUND, "Not found.\n")
            return None
        if not self.server.welcome(self.connection):
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, "Too many pages are open.\n")
            return None
        if not slash:  # the page asks for news by a path of its own folder
            self._answer(HTTPStatus.MOVED_PERMANENTLY, "", "text/plain", Location=f"/{self.server.token}/")
            return None
        return name

    def _say(self, status: HTTPStatus, text: str, **headers: str) -> None:
        self._answer(status, text, "text/plain", **headers)

    def _answer(self, status: HTTPStatus, text: str, kind: str, **headers: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {**_HEADERS, **headers, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Keep no log: nobody reads it, and addresses hold the token."""
