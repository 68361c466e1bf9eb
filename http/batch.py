"""A bridge's batch, taken apart so that one item's bad value cannot spoil its neighbours (rooms.md, the envelope)."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from ..domain.errors import Malformed
from ..domain.rooms.bridge import MAX_ITEMS, RawItem
from ..domain.rooms.commands import PushedItem

LEASE = re.compile(r"^[1-9][0-9]{0,17}(?![\s\S])")

Lease = Annotated[str, Meta(pattern=LEASE.pattern)]


class Batch(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """POST /v1/bridge/events. Without `lease` the run's present lease is meant."""

    items: Annotated[tuple[PushedItem, ...], Meta(max_length=MAX_ITEMS)]
    lease: Lease | None = None


class Push(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A Batch whose payloads are still text."""

    items: Annotated[tuple[RawItem, ...], Meta(max_length=MAX_ITEMS)]
    lease: Lease | None = None


class _Members(Struct, frozen=True):
    items: list[dict[str, Raw]]


_push = msgspec.json.Decoder(Push)
_members = msgspec.json.Decoder(_Members)
_top = msgspec.json.Decoder(dict[str, Raw])

_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}:,]', re.DOTALL)
"""Possessive, and a string without its end matches too: linear, whatever the bytes are."""

_ITEM_DEPTH = 3
"""Brackets around a member of an item: the batch, its `items`, the item."""

_STAND_IN = b"null"


def parse_push(body: bytes) -> Push:
    """The batch with each payload as its own raw text, whatever that is.

    Raises Malformed where the batch around the payloads is not JSON or repeats a member name (law 21), and
    msgspec.ValidationError where it is not a Push.
    """
    try:
        push = _push.decode(body)
        _refuse_repeated(body)
        return push
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _around_payloads(body)


def _around_payloads(body: bytes) -> Push:
    """Decode the batch with a stand-in for every payload, then put the payloads back as they came."""
    spans = _payload_spans(body)
    parts: list[bytes] = []
    at = 0
    for start, end in spans:
        parts += [body[at:start], _STAND_IN]
        at = end
    frame = b"".join([*parts, body[at:]])
    try:
        push = _push.decode(frame)
        _refuse_repeated(frame)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed("The body is not a JSON object with `items`.") from error
    if len(spans) != len(push.items):
        raise Malformed("Every item needs one payload.")
    items = tuple(
        msgspec.structs.replace(item, payload=Raw(body[start:end].strip(b" \t\r\n")))
        for item, (start, end) in zip(push.items, spans, strict=True)
    )
    return msgspec.structs.replace(push, items=items)


def _payload_spans(body: bytes) -> list[tuple[int, int]]:
    """Where the values of the items' `payload` members begin and end, by brackets and strings alone."""
    spans: list[tuple[int, int]] = []
    depth = 0
    name: bytes | None = None
    is_value = False
    start: int | None = None
    for token in _TOKEN.finditer(body):
        text = token[0]
        if text in b"[{":
            depth += 1
        elif text in b"]}":
            if depth == _ITEM_DEPTH and start is not None:
                spans.append((start, token.start()))
                start = None
            depth -= 1
            name, is_value = None, False
        elif depth == _ITEM_DEPTH and text == b":":
            is_value = True
            if name == b'"payload"':
                start = token.end()
        elif depth == _ITEM_DEPTH and text == b",":
            if start is not None:
                spans.append((start, token.start()))
                start = None
            name, is_value = None, False
        elif depth == _ITEM_DEPTH and not is_value:
            name = text
    return spans


def _refuse_repeated(body: bytes) -> None:
    """A member name costs one colon. Decoding keeps one member a name, so a repeated one leaves a colon over."""
    top = _top.decode(body)
    items = _members.decode(body).items
    colons = len(top) + sum(len(item) for item in items)
    colons += sum(bytes(raw).count(b":") for name, raw in top.items() if name != "items")
    colons += sum(bytes(raw).count(b":") for item in items for raw in item.values())
    if colons != body.count(b":"):
        raise Malformed("A member name occurs twice in the batch or in an item.")
