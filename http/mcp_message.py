"""One message of an MCP client, looked at before the SDK reads it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..domain.errors import Invalid, Malformed, MinutebookError
from ..domain.jsontext import check_body
from ..domain.principals import Caller

PATH = "/mcp"

MAX_ID_CHARS = 256
"""Longest id of a request, which its answer repeats."""

MAX_ID = 2**53

_ARGUMENTS = "$.params.arguments"


class Envelope(Struct):
    """One JSON-RPC request or notification; of what else it holds the SDK judges."""

    jsonrpc: Literal["2.0"]
    method: str
    id: Annotated[int, Meta(ge=-MAX_ID, le=MAX_ID)] | Annotated[str, Meta(max_length=MAX_ID_CHARS)] | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET


class Exchange(Struct):
    """What the SDK's handlers must know of their request, and what the answer must know of them.

    refused: what is wrong with the arguments of the tool call. is_clean: the answer is a tool's, so that nothing of the
    request is quoted in it.
    """

    caller: Caller
    key: str | None
    refused: MinutebookError | None
    is_replay: bool = False
    is_clean: bool = False


def checked(body: bytes, max_depth: int) -> tuple[bytes, MinutebookError | None]:
    """The body as the SDK may read it, and the refusal of a tool call whose arguments hold what no text may.

    Such a call goes on without its arguments, so that the agent hears of it as the result of its tool. Raises Malformed
    and Invalid, as check_body does, for everything else that is no JSON for this server.
    """
    if not body:
        raise Malformed("Send one JSON-RPC 2.0 message as the body.")
    try:
        check_body(body, max_depth=max_depth)
    except Invalid as error:
        place: dict[str, str] = error.attributes["errors"][0]
        emptied = _without_arguments(body) if place["path"].startswith(_ARGUMENTS) else None
        if emptied is None:
            raise
        check_body(emptied, max_depth=max_depth)
        return emptied, Invalid.at(f"${place['path'].removeprefix(_ARGUMENTS)}", place["message"])
    return body, None


def is_message(body: bytes) -> bool:
    """Whether checked JSON is one message: no batch, no answer, no other version of JSON-RPC."""
    try:
        msgspec.json.decode(body, type=Envelope)
    except msgspec.ValidationError:
        return False
    return True


def _without_arguments(body: bytes) -> bytes | None:
    """A tool call with no arguments; None where the body is no tool call. Lone surrogates elsewhere stay."""
    message: Any = json.loads(body)
    if message.get("method") != "tools/call":
        return None
    cast("dict[str, Any]", message["params"])["arguments"] = {}
    return json.dumps(message).encode()
