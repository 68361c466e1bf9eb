"""Real HTTP servers that stand for the outside: a receiver of webhooks and a forge, which can be told to misbehave."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()
"""Of webhooks."""


def now() -> datetime:
    """The clock of webhooks."""
    return datetime.now(UTC)


class Request(NamedTuple):
    """What came in. headers: names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The document in it."""
        return json.loads(self.body)


class Reply(NamedTuple):
    """What goes out. body None: the connection is cut instead, without a byte."""

    status: int
    body: bytes | None = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


LOST = Reply(0, None)
"""The connection ends without an answer."""

Mischief = Callable[[Request, Callable[[], Reply]], Reply]
"""Gets the request and what would be the honest reply, whose effect happens when it is called."""


def status(code: int, **headers: str) -> Mischief:
    """Answer so, without the effect."""
    return lambda _request, _honest: Reply(
        code, b"{}", {name.replace("_", "-"): text for name, text in headers.items()}
    )


def slowly(_request: Request, honest: Callable[[], Reply]) -> Reply:
    """Do it, and take a while over the answer."""
    reply = honest()
    time.sleep(0.2)
    return reply


def lost_before(_request: Request, _honest: Callable[[], Reply]) -> Reply:
    """Cut the connection before anything happens."""
    return LOST


def lost_after(_request: Request, honest: Callable[[], Reply]) -> Reply:
    """Do it, and lose the answer."""
    honest()
    return LOST


def garbage(_request: Request, honest: Callable[[], Reply]) -> Reply:
    """Do it, and answer nonsense."""
    return Reply(honest().status, b"<html>\xff not json")


def huge(_request: Request, honest: Callable[[], Reply]) -> Reply:
    """Do it, and answer far more than anybody wants."""
    return Reply(honest().status, b'"' + b"x" * (40 << 20) + b'"')


Kind = TypeVar("Kind", bound="Outside")


class Outside:
    """A server. `mischief` is used up by the requests that `troubles` picks (all by default), in their order."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self._answer = answer
        self.requests: list[Request] = []
        self.mischief: list[Mischief] = []
        self.troubles: Callable[[Request], bool] = lambda _: True
        self.lock = threading.Lock()
        self.url = ""

    def handle(self, request: Request) -> Reply:
        """One request, in a thread of its own."""
        with self.lock:
            self.requests.append(request)
            mischief = self.mischief.pop(0) if self.mischief and self.troubles(request) else None

        def honest() -> Reply:
            with self.lock:
                return self._answer(request)

        return honest() if mischief is None else mischief(request, honest)


class Forge(Outside):
    """The part of a forge's API that comments on pull requests need; one account, whose token is `right`."""

    LOGIN = "minutebook-bot"

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.comments: list[dict[str, Any]] = []
        self.tells_author = True

    def add(self, body: str, login: str = LOGIN) -> dict[str, Any]:
        """A comment that is there."""
        number = len(self.comments) + 1
        comment = {
            "id": number,
            "body": body,
            "user": {"login": login},
            "html_url": f"https://forge.example/c/{number}",
        }
        self.comments.append(comment)
        return comment

    def _reply(self, request: Request) -> Reply:
        if request.headers.get("authorization") != "Bearer right":
            return _json(401, {"message": "Bad credentials"})
        if request.path == "/user":
            return _json(200, {"login": self.LOGIN}) if self.tells_author else _json(403, {})
        if re.fullmatch(r"/repos/acme/widget/issues/7/comments", request.path) is None:
            return _json(404, {"message": "Not Found"})
        if request.method == "POST":
            return _json(201, self.add(request.json["body"]))
        size, page = int(request.query.get("per_page", "30")), int(request.query.get("page", "1"))
        return _json(200, self.comments[(page - 1) * size : page * size])


def _json(code: int, document: Any) -> Reply:
    return Reply(code, json.dumps(document).encode(), {"content-type": "application/json"})


@contextlib.contextmanager
def serving(outside: Kind) -> Generator[Kind]:
    """Serve it on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

        def _all(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = outside.handle(Request(self.command, parts.path, query, headers, body))
            self.close_connection = True
            if reply.body is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            with contextlib.suppress(ConnectionError):  # the client may have had enough
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

        do_GET = do_POST = _all  # noqa: N815 - the library's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    outside.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield outside
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
