"""Errors as RFC 9457 problem details: the only table from code to status."""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from ulid_transform import ulid_now

from ..domain.errors import Damaged, Invalid, MinutebookError

STATUS: dict[str, int] = {
    "malformed": 400,
    "invalid_cursor": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "client_not_allowed": 403,
    "bad_origin": 403,
    "run_not_live": 403,
    "four_eyes": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "conflict": 409,
    "stale_epoch": 409,
    "no_running_run": 409,
    "not_queued": 409,
    "human_drives": 409,
    "room_busy": 409,
    "lease_lost": 409,
    "holds_driver": 409,
    "already_ended": 409,
    "already_decided": 409,
    "digest_mismatch": 409,
    "too_many_pending": 409,
    "stale_consent": 409,
    "not_replayable": 409,
    "full": 409,
    "sealed": 410,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "invalid": 422,
    "too_long": 422,
    "reviewer_needs_pr": 422,
    "unknown_target": 422,
    "fan_out_exceeded": 422,
    "idempotency_key_reused": 422,
    "rate_limited": 429,
    "queue_full": 429,
    "internal": 500,
    "unavailable": 503,
    "timed_out": 504,
}
"""Every code that this server answers, with its status (http.md)."""

TITLES: dict[str, str] = {
    "malformed": "The request cannot be read",
    "invalid_cursor": "The cursor is not one of this stream",
    "unauthenticated": "A valid token is needed",
    "forbidden": "You may not do this",
    "client_not_allowed": "This client may not do this",
    "bad_origin": "The origin is not allowed",
    "run_not_live": "The run is not running",
    "four_eyes": "Somebody else must decide this",
    "not_found": "Not found",
    "method_not_allowed": "The method is not allowed here",
    "not_acceptable": "No representation that you accept",
    "conflict": "The state does not allow this",
    "stale_epoch": "The driver token has moved",
    "no_running_run": "No run is running",
    "not_queued": "The message does not wait",
    "human_drives": "A human drives",
    "room_busy": "Another run is running",
    "lease_lost": "The lease is lost",
    "holds_driver": "The member drives",
    "already_ended": "It has ended already",
    "already_decided": "It was decided already",
    "digest_mismatch": "The action is another one",
    "too_many_pending": "Too many requests wait",
    "stale_consent": "The link is another one",
    "not_replayable": "It cannot be sent again",
    "full": "A limit is reached",
    "sealed": "The stream is closed",
    "payload_too_large": "Too large",
    "unsupported_media_type": "Only JSON is taken",
    "invalid": "A value is not valid",
    "too_long": "Too long to copy",
    "reviewer_needs_pr": "A reviewer needs a pull request",
    "unknown_target": "No such channel",
    "fan_out_exceeded": "Too many destinations",
    "idempotency_key_reused": "The idempotency key was used already",
    "rate_limited": "Too many requests",
    "queue_full": "Too much waits already",
    "internal": "Something went wrong here",
    "unavailable": "Not available now",
    "timed_out": "No answer in time",
}

INTERNAL = "The server met a fault of its own; nothing of the request is known to be stored."
DAMAGED = (
    "Something that is stored here cannot be read by this version of the server, so nothing can be changed;"
    " ask its operator to run `minutebook doctor`."
)

PROBLEM_TYPE = "application/problem+json"

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 413: "payload_too_large",
               415: "unsupported_media_type", 401: "unauthenticated", 403: "forbidden"}  # fmt: skip
_HTTP_DETAILS = {
    "not_found": "There is nothing here that you may see.",
    "method_not_allowed": "This path does not take that method; see /v1/openapi.json.",
    "payload_too_large": "The body is larger than this route takes.",
    "unsupported_media_type": "Send application/json.",
    "malformed": "The body is not the JSON that this route takes.",
}

_MISSING = re.compile(r"Missing required \w+ parameter '([A-Za-z-]{1,64})'")
"""How the framework says it, in a sentence that quotes the whole URL."""

log = structlog.get_logger(__name__)


_HANDLE = re.compile(r"(?<!/ops)(/continuations/+)[^/]+")
"""A path whose next part is a secret, also one that is not written as the route is."""


def _without_token(path: str) -> str:
    return _HANDLE.sub(r"\1{token}", path)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The body of every error. `errorId` is only in a 500: quote it to the operator."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    errors: list[dict[str, str]] | None = None
    retry_after_ms: int | None = None
    error_id: str | None = None


def problem(code: str, detail: str, instance: str, **attributes: Any) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of a problem."""
    status, instance = STATUS.get(code, 500), _without_token(instance)
    body = {
        "type": f"urn:minutebook:problem:{code}",
        "title": TITLES.get(code, TITLES["internal"]),
        "status": status,
        "code": code,
        "detail": detail,
        "instance": instance,
        **attributes,
    }
    headers = {"cache-control": "no-store"}
    if "retryAfterMs" in attributes:
        headers["retry-after"] = str(max(1, -(-int(attributes["retryAfterMs"]) // 1000)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return status, msgspec.json.encode(body), headers


def from_error(error: BaseException, instance: str) -> tuple[int, bytes, dict[str, str]]:
    """The problem of a domain error. Anything else is a 500 with a fixed body, and an id that the log has too."""
    if isinstance(error, MinutebookError) and error.code != "internal":
        return problem(error.code, error.detail, instance, **error.attributes)
    error_id = ulid_now()
    log.error("internal error", error_id=error_id, error=type(error).__name__, where=_where(error))
    detail = DAMAGED if isinstance(error, Damaged) else INTERNAL
    return problem("internal", detail, instance, errorId=error_id)


def _where(error: BaseException) -> list[str]:
    """File and line of the last frames, without the values that a traceback would quote."""
    frames: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return frames[-6:]


def _response(made: tuple[int, bytes, dict[str, str]]) -> Response[bytes]:
    status, body, headers = made
    return Response(body, status_code=status, media_type=PROBLEM_TYPE, headers=headers)


def on_domain_error(request: Request[Any, Any, Any], error: MinutebookError) -> Response[bytes]:
    """Handler of MinutebookError."""
    return _response(from_error(error, request.url.path))


def on_any_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Handler of everything that nobody foresaw."""
    return _response(from_error(error, request.url.path))


def on_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    """Handler of what the framework refuses: routes, methods, values that do not fit their type."""
    path = request.url.path
    if isinstance(error, ValidationException):
        missing = _MISSING.match(error.detail)
        if missing is not None:
            return _response(from_error(Invalid.at(missing[1], "is required"), path))
        extra = cast("list[dict[str, Any]]", error.extra if isinstance(error.extra, list) else [])
        errors = [_field(each) for each in extra]
        detail = f"{errors[0]['path']}: {errors[0]['message']}" if errors else "A value is not valid."
        return _response(problem("invalid", detail, path, **({"errors": errors} if errors else {})))
    if error.status_code >= 500:
        return _response(from_error(error, path))
    code = _HTTP_CODES.get(error.status_code, "malformed")
    return _response(problem(code, _HTTP_DETAILS.get(code, _HTTP_DETAILS["malformed"]), path))


def _field(extra: dict[str, Any]) -> dict[str, str]:
    key = str(extra.get("key", ""))
    message = str(extra.get("message", "is not valid"))
    source = extra.get("source")
    if source in ("query", "header", "cookie", "path"):
        # The framework names the argument; on the wire it is written in camelCase.
        first, *rest = key.rstrip("_").split("_")
        return {"path": first + "".join(word.capitalize() for word in rest), "message": message}
    return {"path": f"$.{key}" if key else "$", "message": message}
