"""What the route modules share: dependencies, answers, headers."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, QueryParameter, SkipValidation

from ...commands.mailbox import Answer
from ...domain.errors import Invalid, Malformed
from ...domain.ids import MAX_KEY_CHARS, idempotency_key
from ...domain.principals import Caller
from ..services import Services

TheServices = NamedDependency[SkipValidation[Services]]
TheCaller = NamedDependency[SkipValidation[Caller]]
KeyHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        required=False,
        description=f"1 to {MAX_KEY_CHARS} visible ASCII characters; a retry with the same key has its effect once.",
    ),
]
MinSeq = Annotated[
    int | None,
    QueryParameter(
        name="minSeq", ge=0, le=2**53, required=False, description="Wait at most 5 s until this seq is there."
    ),
]

MAX_ERROR_CHARS = 200
"""Longest path or message of a validation error; a longer one is cut."""

T = TypeVar("T", bound=msgspec.Struct)

_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(.+)`", re.DOTALL)


class CommandAnswer(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What every command answers: the last seq, the chain's hash there, the id of what was made or the last event's."""

    seq: int
    chain: str
    id: str | None = None


Created = {201: ResponseSpec(CommandAnswer, generate_examples=False, description="Appended")}
Done = {200: ResponseSpec(CommandAnswer, generate_examples=False, description="Appended, or nothing to change")}


def caller_of(request: Request[Any, Any, Any]) -> Caller:
    """The verified caller that the gate left in the scope."""
    return request.scope["state"]["caller"]  # pyright: ignore[reportGeneralTypeIssues]


async def body_as(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The body, strictly as `kind`; no body counts as `{}` where nothing is required.

    Raises Malformed, and Invalid with the path. (Litestar would take "1" for 1 and 1 for true.) Name `kind` in the
    handler's `opt` as `body`, from where the OpenAPI document takes it.
    """
    raw = await request.body()
    if not raw and any(field.required for field in msgspec.structs.fields(kind)):
        raise Malformed("Send a JSON object as the body; see /v1/openapi.json.")
    try:
        return cast("T", _decoder(kind).decode(raw or b"{}"))
    except msgspec.ValidationError as error:
        raise invalid(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("The body is not the JSON that this route takes.") from error


@functools.cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(kind)


def invalid(error: msgspec.ValidationError) -> Invalid:
    """A decoder's refusal with the path of the value, or of the field that is missing or unknown."""
    message, _, place = str(error).partition(" - at `")
    path = place.removesuffix("`") or "$"
    field = _FIELD.fullmatch(message)
    if field is not None:
        path = f"{path}.{field[1]}"
        message = "is required" if "missing" in message[:20] else "is not a field of this body"
    return Invalid.at(_cut(path), _cut(message))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_ERROR_CHARS else text[: MAX_ERROR_CHARS - 1] + "…"


def last_segments(request: Request[Any, Any, Any], after: str) -> str:
    """What the path says behind `after`, as the client wrote it: the router folds slashes, a principal may have them.

    The gate has seen to it that it is UTF-8.
    """
    raw: bytes = request.scope["raw_path"]
    return unquote_to_bytes(raw.partition(after.encode())[2]).decode()


def key_of(header: str | None) -> str | None:
    """The idempotency key, checked. Raises Malformed."""
    return None if header is None else idempotency_key(header)


def answered(answer: Answer) -> Response[Any]:
    """A command's answer with its status; a replay says so."""
    headers = {"cache-control": "no-store"}
    if answer.is_replay:
        headers["idempotency-replayed"] = "true"
    return Response(answer.body, status_code=answer.status, headers=headers)
