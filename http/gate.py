"""What every request passes before a route sees it: host, token, body limits and the raw scan; errors as problems."""

from __future__ import annotations

import re
from typing import Any, cast
from urllib.parse import parse_qsl, unquote_to_bytes

from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from ..commands.channels.ports import MAX_INBOUND_BYTES
from ..domain.errors import Forbidden, Malformed, MinutebookError, TooLarge, Unauthenticated
from ..domain.jsontext import check_body
from ..infra.settings import Settings, is_loopback
from ..infra.tokens import TokenVerifier
from .mcp_message import PATH as MCP
from .methods import MethodTable
from .origins import Origins, RawHeaders
from .problems import PROBLEM_TYPE, from_error, problem
from .session import token_of

BRIDGE_BATCH = "/v1/bridge/events"
"""The one route with a body limit of its own, whose items are scanned one by one."""

CONVERSATIONS = "/v1/conversations"
"""Routes below it have edge rules of their own (conversations.md, HTTP and SSE)."""

CONTINUATIONS = "/v1/continuations/"
"""Routes below it are about turns of conversations."""

CHANNELS = "/v1/channels"
"""Below it are the two routes of each channel whose requests prove themselves: the bytes of their body are signed, and
nobody has a token."""

CONVERSATION_BODY_BYTES = 64 * 1024

CHANNEL_CALL = re.compile(f"{CHANNELS}/[^/]+/(?:inbound|receipts)")

SCAN_THEMSELVES = frozenset({BRIDGE_BATCH, MCP})
"""Routes whose refusals of a body have a form of their own; they scan it before anything reads it."""

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
"""Routes without a principal (architecture.md, Trust)."""

SIGN_IN = re.compile("/v1/links/oidc/[^/]+/(?:start|callback|consent)")
"""Routes that are for browsers of people who sign in at an identity provider: what they carry proves itself, and
they accept pages."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

FOR_DELEGATES = frozenset({"/v1/session", "/v1/openapi.json"})
"""Routes beside the conversations' that a token with an actor may call: acting for a person in a room is not built."""

TOKEN_PARAMETERS = frozenset({"token", "access_token", "id_token", "auth", "authorization", "bearer", "jwt"})
"""Query parameters that a token would ride in, and from there get into logs (fault B38)."""

MAX_TARGET_BYTES = 8192

NO_SNIFFING = (b"x-content-type-options", b"nosniff")

BAD_ORIGIN = "This origin is not listed; see server.allowedOrigins."

NO_CREDENTIAL = "Send a token: Authorization: Bearer <token>."


class Gate:
    """ASGI middleware around the whole application. Sets `caller` and `token` in `scope["state"]`, and `bearer` where
    the token came in the header."""

    def __init__(self, app: ASGIApp, verifier: TokenVerifier, settings: Settings, methods: MethodTable) -> None:
        self._app = app
        self._verifier = verifier
        self._limits = settings.limits
        self._hosts = frozenset(host.lower() for host in settings.server.allowed_hosts)
        self._origins = Origins(settings.server)
        self._methods = methods
        self._is_loopback = is_loopback(settings.server.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        if is_conversation(scope):
            send = _without_sniffing(send)
        await self._pass(scope, headers, receive, self._origins.decorated(send, headers))

    async def _pass(self, scope: HTTPScope, headers: dict[bytes, bytes], receive: Receive, send: Send) -> None:
        try:
            self._check_target(scope, headers)
            methods = self._methods.of(scope["path"])
            if self._origins.is_preflight(scope["method"], headers):
                await self._answer_preflight(send, methods, headers)
                return
            if is_conversation(scope):
                self._check_origin(headers)
            is_open = scope["path"] in OPEN_PATHS or is_channel_call(scope) or SIGN_IN.fullmatch(scope["path"])
            if not is_open:
                await self._authenticate(scope, headers)
                _check_accept(scope, headers)
            _check_method(scope, methods)
            if scope["method"] == "OPTIONS" and methods:
                await _send(send, 204, b"", _allow(methods))
                return
            receive = await self._checked_body(scope, headers, receive)
        except MinutebookError as error:
            await _answer(send, from_error(error, scope["path"]))
        except _RefusedError as refused:
            await _answer(send, problem(refused.code, refused.detail, scope["path"]), refused.headers)
        else:
            await self._app(_as_get(scope), receive, send)

    async def _authenticate(self, scope: HTTPScope, headers: dict[bytes, bytes]) -> None:
        bearer = None
        if b"authorization" in headers:
            bearer = token = _bearer(headers)
        else:
            cookie = token_of(headers.get(b"cookie", b""), is_loopback=self._is_loopback)
            if cookie is None:
                raise Unauthenticated(NO_CREDENTIAL)
            token = cookie
        caller = await self._verifier.verify(token)
        if caller.delegate is not None and not _is_for_delegates(scope):
            raise Forbidden("A token that acts for somebody is for conversations only.")
        if bearer is None and scope["method"] not in SAFE_METHODS and not self._origins.may_use_cookie(headers):
            raise _RefusedError("bad_origin", "A session cookie changes things from the server's own pages only.")
        for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
            if name.lower() in TOKEN_PARAMETERS:
                raise Malformed("A token does not belong into the URL; send it as Authorization: Bearer <token>.")
        scope["state"]["caller"] = caller
        scope["state"]["bearer"] = bearer
        scope["state"]["token"] = token

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A page of another site reaches no conversation, whatever it holds; Host proves nothing."""
        if b"origin" in headers and not self._origins.is_listed(headers):
            raise _RefusedError("bad_origin", BAD_ORIGIN)

    async def _answer_preflight(self, send: Send, methods: tuple[str, ...], headers: dict[bytes, bytes]) -> None:
        if not self._origins.is_listed(headers):
            raise _RefusedError("bad_origin", BAD_ORIGIN)
        await _send(send, 204, b"", self._origins.preflight_headers(methods))

    def _check_target(self, scope: HTTPScope, headers: dict[bytes, bytes]) -> None:
        raw: bytes = scope["raw_path"]
        query: bytes = scope["query_string"]
        if len(raw) + len(query) > MAX_TARGET_BYTES:
            raise Malformed("The request target is too long.")
        for part in (raw, query):
            try:
                text = unquote_to_bytes(part.replace(b"+", b" ")).decode()
            except UnicodeDecodeError:
                raise Malformed("The request target is not UTF-8.") from None
            if "\x00" in text:
                raise Malformed("The request target contains a NUL character.")
        if scope["path"] in OPEN_PATHS:
            return  # probes come by address, and these answer nothing that a rebound name could use
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.strip("[]") not in self._hosts:
            raise Malformed("This host name is not served here; see server.allowedHosts.")

    async def _checked_body(self, scope: HTTPScope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        limit = self._body_limit(scope)
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise TooLarge(f"The body is larger than the {limit} bytes that this route takes.")
        if scope["method"] in SAFE_METHODS or (declared in (b"", b"0") and b"transfer-encoding" not in headers):
            return receive
        body = await _read(receive, limit)
        if body and not is_channel_call(scope):
            media = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if media != b"application/json":
                raise _RefusedError("unsupported_media_type", "Send the body as application/json.")
            if scope["path"] not in SCAN_THEMSELVES:
                check_body(body, max_depth=self._limits.json_depth)
        return _replayed(body, receive)

    def _body_limit(self, scope: HTTPScope) -> int:
        if scope["path"] == BRIDGE_BATCH:
            return self._limits.bridge_body_bytes
        if is_channel_call(scope):
            return MAX_INBOUND_BYTES
        if is_conversation(scope):
            return min(CONVERSATION_BODY_BYTES, self._limits.body_bytes)
        return self._limits.body_bytes


class _RefusedError(Exception):
    def __init__(self, code: str, detail: str, headers: RawHeaders | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.headers = headers or []


def _is_for_delegates(scope: HTTPScope) -> bool:
    path = scope["path"]
    return path in FOR_DELEGATES or path.startswith(CONTINUATIONS) or is_conversation(scope)


def is_conversation(scope: HTTPScope) -> bool:
    """Whether the request is for a route of conversations."""
    if CONVERSATIONS not in scope["path"] and "//" not in scope["path"]:
        return False
    # The router folds slashes.
    path = "/" + "/".join(part for part in scope["path"].split("/") if part)
    return path.startswith(CONVERSATIONS) and path[len(CONVERSATIONS) :][:1] in ("", "/")


def is_channel_call(scope: HTTPScope) -> bool:
    """Whether the request is for what a channel's platform calls; it is the channel that proves it."""
    return CHANNEL_CALL.fullmatch("/" + "/".join(part for part in scope["path"].split("/") if part)) is not None


def _without_sniffing(send: Send) -> Send:
    async def decorated(message: Message) -> None:
        if message["type"] == "http.response.start":
            start: Any = {**message, "headers": [*message["headers"], NO_SNIFFING]}
            await send(start)
        else:
            await send(message)

    return decorated


def _check_method(scope: HTTPScope, methods: tuple[str, ...]) -> None:
    """A path that does not exist takes every method, to be answered 404."""
    if methods and scope["method"] not in methods:
        raise _RefusedError("method_not_allowed", "This path does not take that method.", _allow(methods))


def _allow(methods: tuple[str, ...]) -> RawHeaders:
    return [(b"allow", ", ".join(methods).encode())]


def _as_get(scope: HTTPScope) -> HTTPScope:
    """HEAD is GET whose body the HTTP server drops; endless answers look at `is_head` and end at once."""
    if scope["method"] != "HEAD":
        return scope
    scope["state"]["is_head"] = True
    return cast("HTTPScope", {**scope, "method": "GET"})


def _headers(scope: HTTPScope) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in scope["headers"]}


def _bearer(headers: dict[bytes, bytes]) -> str:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise Unauthenticated(NO_CREDENTIAL)
    try:
        return token.strip().decode("ascii")
    except UnicodeDecodeError:
        raise Unauthenticated(NO_CREDENTIAL) from None


def _check_accept(scope: HTTPScope, headers: dict[bytes, bytes]) -> None:
    accept = headers.get(b"accept", b"*/*").decode("latin-1").lower()
    wanted = {part.split(";")[0].strip() for part in accept.split(",")}
    served = {"*/*", "application/*", "application/json", PROBLEM_TYPE, ""}
    if scope["path"].endswith("/stream") or (is_conversation(scope) and scope["path"].endswith("/events")):
        served |= {"text/event-stream", "text/*"}
    if scope["path"].endswith("/export"):
        served |= {"application/x-ndjson", "application/jsonl"}
    if scope["path"].endswith("/openapi.json"):
        served |= {"application/vnd.oai.openapi+json"}
    if wanted.isdisjoint(served):
        raise _RefusedError("not_acceptable", "This route answers application/json.")


async def _read(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("The client went away before its body was whole.")
        chunk: bytes = message.get("body", b"")  # pyright: ignore[reportAssignmentType]
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"The body is larger than the {limit} bytes that this route takes.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Any:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


async def _answer(send: Send, made: tuple[int, bytes, dict[str, str]], extra: RawHeaders | None = None) -> None:
    status, body, headers = made
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"content-type", PROBLEM_TYPE.encode()), *(extra or [])]
    await _send(send, status, body, raw)


async def _send(send: Send, status: int, body: bytes, headers: RawHeaders) -> None:
    raw = headers if status == 204 else [*headers, (b"content-length", str(len(body)).encode())]
    start: Message = {"type": "http.response.start", "status": status, "headers": raw}  # pyright: ignore[reportAssignmentType]
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
