"""What a run's bridge may push, checked whole before anything is decided (rooms.md, the envelope)."""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from ..errors import Invalid
from ..events import Event, Unstorable
from ..jsontext import MAX_NAME_CHARS, compact, may_hold_nul, repair_text, scan_value, strip_nul
from .acting import allow
from .approvals import supersede_calls
from .commands import PushedItem
from .context import Context, Decision, NewEvent
from .events import (
    PUSHED_BY_BRIDGES,
    AckKind,
    DeliveryAcknowledged,
    HarnessReported,
    MessagePosted,
    ToolCalled,
    ToolReturned,
)
from .run_state import Run
from .state import Room

MAX_ITEMS = 500
"""Items in one push (rooms.md, Limits)."""

_ACKNOWLEDGES: tuple[str, ...] = get_args(AckKind)

MAX_ITEM_DEPTH = 64
"""Nesting of one item's payload; deeper ones are stored as refused."""


class CheckedItem(msgspec.Struct, frozen=True):
    """An item whose type and shape were checked: the event it is, and the payload as it will be stored.

    too_large: the event that it would have been, where its size alone forbids that.
    """

    place: int
    stream: str
    seq: int
    caused_by: int | None
    event: Event | Unstorable
    body: Any
    too_large: Event | None = None


class RawItem(PushedItem, frozen=True):
    """A pushed item whose payload is still text, so that one bad value cannot spoil its neighbours."""

    payload: msgspec.Raw = msgspec.Raw(b"null")


def check_items(items: Sequence[RawItem], run_id: str, payload_bytes: int) -> list[CheckedItem]:
    """Every item as it will be stored. Raises Invalid that names the first item which a bridge may not push.

    A value that cannot be stored never blocks a cursor: too large, it becomes `{oversize, bytes, type}`; refused by the
    database or a double, `{refused, type, reason}`; NUL characters are dropped and lone surrogates replaced (law 20).
    """
    return [_check(place, item, run_id, payload_bytes) for place, item in enumerate(items)]


def _check(place: int, item: RawItem, run_id: str, payload_bytes: int) -> CheckedItem:
    declared = PUSHED_BY_BRIDGES.get(item.type)
    path = f"$.items[{place}]"
    if declared is None:
        raise Invalid.at(f"{path}.type", f"a bridge may push {', '.join(PUSHED_BY_BRIDGES)} only")
    raw = bytes(item.payload)
    refusal = scan_value(raw, MAX_ITEM_DEPTH)
    reason = None if refusal is None else refusal.reason
    value: Any = None
    try:
        if reason is None:
            value = msgspec.json.decode(raw)
            if may_hold_nul(raw):
                value = strip_nul(value)
        elif reason == "surrogate":
            value, reason = _repaired(raw), None
    except _CollisionError:
        reason = "duplicate_key"
    if reason is not None:
        body = {"refused": True, "type": item.type, "reason": reason}
        return CheckedItem(place, item.stream, item.seq, item.caused_by, Unstorable(item.type, body), body)
    event = _typed(declared, value, run_id, path)
    value = {**event.payload(), **value}  # what the bridge left out stands in the log, where readers tell kinds by it
    size = len(compact(value))
    if size > payload_bytes:
        body = {"oversize": True, "bytes": size, "type": item.type}
        return CheckedItem(place, item.stream, item.seq, item.caused_by, Unstorable(item.type, body), body, event)
    return CheckedItem(place, item.stream, item.seq, item.caused_by, event, value)


class _Kind(msgspec.Struct, frozen=True):
    """What tells the kinds of `state_changed` apart."""

    kind: Any = None


class _CollisionError(ValueError):
    """Two members of an object would become one."""


def _repaired(raw: bytes) -> Any:
    """Lone surrogates replaced and NUL dropped. Raises _CollisionError rather than lose a member."""

    def clean(text: str) -> str:
        return repair_text(text).replace("\0", "")

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, list):
            return [walk(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            fresh = {clean(name): walk(each) for name, each in members.items()}
            if len(fresh) < len(members):
                raise _CollisionError
            return fresh
        return value

    return walk(json.loads(raw))  # the one reader that lets lone surrogates through, so that they can be replaced


def _typed(declared: type[Event], value: Any, run_id: str, path: str) -> Event:
    try:
        if declared is HarnessReported and msgspec.convert(value, _Kind).kind in _ACKNOWLEDGES:
            declared = DeliveryAcknowledged
        event = msgspec.convert(value, declared)
    except msgspec.ValidationError as error:
        raise Invalid.at(f"{path}.payload", str(error)) from error
    _refuse_look_alikes(declared, value, f"{path}.payload")
    if value.get("runId", run_id) != run_id:
        raise Invalid.at(f"{path}.payload.runId", "must be the run of the token")
    if declared is HarnessReported and "kind" not in value:
        raise Invalid.at(f"{path}.payload.kind", "is required")
    if isinstance(event, DeliveryAcknowledged) and event.ref is msgspec.UNSET:
        raise Invalid.at(f"{path}.payload.ref", "is required: the ref of the delivery")
    if isinstance(event, MessagePosted):
        _check_message(event, f"{path}.payload")
    return event


def _check_message(event: MessagePosted, path: str) -> None:
    """A run speaks to those who read, and to nobody else."""
    if (event.kind, event.delivery) != ("chat", "none"):
        raise Invalid.at(path, "a bridge may push messages of kind chat with delivery none only")
    if len(event.to) > MAX_ITEMS:
        raise Invalid.at(f"{path}.to", "is too long")


def _refuse_look_alikes(declared: type[Event], value: dict[str, Any], path: str) -> None:
    """A member that a careless reader would take for one of the type's own: `Kind`, or `kind` in other letters."""
    own, folded = _names_of(declared)
    if value.keys() <= own:
        return
    for name in value:
        if name not in own and _folded(name) in folded:
            raise Invalid.at(
                path, f"the member name {json.dumps(name[:MAX_NAME_CHARS])} reads like another one; leave it out"
            )


@functools.cache
def _names_of(declared: type[Event]) -> tuple[frozenset[str], frozenset[str]]:
    """The member names of a type, and the same folded. What they are is slow to find out, and an item has one type of a
    few."""
    own = frozenset({field.encode_name for field in msgspec.structs.fields(declared)} | {"runId"})
    return own, frozenset(_folded(name) for name in own)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def record_items(
    room: Room, items: Sequence[CheckedItem], context: Context, tool_classes: Mapping[str, str]
) -> Decision:
    """The items that are not stored yet, in order; those that are, are acknowledged again and add nothing.

    tool_classes: visibility class by tool name, from the settings. A result has the class of the tool that was called;
    one whose call is not known (it could not be stored, or was answered before) has every class. What stands for a call
    or result that could not be stored has those that it would have had, since its size and its fault tell of it, too.
    Raises Invalid for a number that comes too late in its batch: acknowledging the higher one would lose it (B06).
    The answer carries the cursors `afterHarnessSeq` and `afterStatusSeq`.
    """
    allow(room, context, "record")
    run = room.run
    assert run is not None  # noqa: S101 - `require` lets only the running run through
    stored = {"events": run.events_seq, "status": run.status_seq}
    cursors = dict(stored)
    calls = dict(run.calls)
    events: list[NewEvent] = []
    for item in items:
        if isinstance(item.event, ToolCalled):
            calls[item.event.call_id] = item.event.tool
        if stored[item.stream] < item.seq < cursors[item.stream]:
            raise Invalid.at(f"$.items[{item.place}].seq", "comes after a higher one of its stream; push them in order")
        if item.seq <= cursors[item.stream]:
            continue
        cursors[item.stream] = item.seq
        events.append(_recorded(item, run, context, _classes(item, calls, tool_classes)))
    answer = {"afterHarnessSeq": cursors["events"], "afterStatusSeq": cursors["status"]}
    return Decision((*events, *_superseded(room, events, context)), answer=answer)


def _superseded(room: Room, events: Sequence[NewEvent], context: Context) -> tuple[NewEvent, ...]:
    """What ends the requests for approval of calls whose results are among the events (rooms.md, Approvals)."""
    answered = {new.event.call_id for new in events if isinstance(new.event, ToolReturned)}
    return supersede_calls(room, answered, context) if answered else ()


def _recorded(item: CheckedItem, run: Run, context: Context, classes: tuple[str, ...]) -> NewEvent:
    caused_by = item.caused_by if item.caused_by is not None and item.caused_by <= context.version else None
    return NewEvent(
        item.event,
        context.caller.principal,
        run.role,
        run.run_id,
        caused_by,
        "harness",
        classes,
        run.run_id,
        f"{item.stream}:{item.seq}",
        item.body,
    )


def _classes(item: CheckedItem, calls: Mapping[str, str], tool_classes: Mapping[str, str]) -> tuple[str, ...]:
    match item.too_large or item.event:
        case ToolCalled(tool=tool):
            name = tool_classes.get(tool)
        case ToolReturned(call_id=call_id) if call_id in calls:
            name = tool_classes.get(calls[call_id])
        case ToolReturned() | Unstorable(type=ToolCalled.type | ToolReturned.type):
            return tuple(sorted(set(tool_classes.values())))
        case _:
            name = None
    return () if name is None else (name,)
