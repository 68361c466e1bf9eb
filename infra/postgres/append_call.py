"""A batch as the database's append functions take it, and their answers as outcomes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import psycopg
from msgspec import UNSET, Struct, UnsetType

from ...commands.ports import Append, EventRow, Fence, Outcome
from .direct import DirectSession

T = TypeVar("T")

_SQL = (
    "SELECT outcome, seq, event_id, chain, ts, bytes, status, body"
    " FROM minutebook.append_v1(%s::text[], %s::json, %s::json, %s, %s)"
)
_SQL_ONE = (
    b"SELECT minutebook.append_one_v2("
    b"$1::text, $2::bigint, $3::text, $4::text, $5::integer, $6::jsonb, $7::text, $8::text, $9::text, $10::text,"
    b" $11::bigint, $12::text, '{}', '{}', $13::text, $14::text, $15::boolean)"
)
_SQL_PLAIN = b"SELECT minutebook.append_plain_v1($1::text[], $2::bigint[], $3::integer, $4::json, $5::boolean)"
_SQL_FENCED = (
    b"SELECT minutebook.append_fenced_v1($1::text[], $2::bigint[], $3::integer, $4::json, $5::json, $6::boolean)"
)
_SQL_NEW = (
    b"SELECT minutebook.append_new_v1($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer, $6::json,"
    b" $7::boolean)"
)
_IS_OURS = (
    "SELECT e.seq FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id"
    " WHERE s.name = %s AND e.seq = %s AND e.id = %s"
)
_HASH_AT = (
    "SELECT e.id, encode(e.hash, 'hex'), to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
    " s.bytes - (SELECT coalesce(sum(b.bytes), 0) FROM minutebook.events b WHERE b.stream_id = s.id AND b.seq > e.seq)"
    " FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id WHERE s.name = %s AND e.seq = %s"
)

_ENCODER = msgspec.json.Encoder()


class _ItemRow(Struct, rename="camel", omit_defaults=True):
    n: int
    s: int
    expected: int
    count: int
    kind: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    retention: int | UnsetType = UNSET
    seal: bool | UnsetType = UNSET
    fence_purpose: str | UnsetType = UNSET
    fence_holder: str | UnsetType = UNSET
    fence_epoch: int | UnsetType = UNSET
    fence_stream: str | UnsetType = UNSET
    key_tenant: str | UnsetType = UNSET
    key_caller: str | UnsetType = UNSET
    key_operation: str | UnsetType = UNSET
    key_scope: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET
    status: int | UnsetType = UNSET
    body: Any = UNSET


async def send(session: DirectSession, items: Sequence[Append], *, notify: bool) -> list[Outcome]:
    """One outcome an item, in order, by the shortest path that the batch may take. Raises psycopg.Error, and
    ValueError, TypeError or OverflowError where a value cannot even be encoded.
    """
    if all(_is_plain(item) for item in items):
        if len(items) == 1 and items[0].fence is None and _is_short(items[0]):
            return [await _send_one(session, items[0], notify=notify)]
        outcomes = await _send_plain(session, items, notify=notify)
        if outcomes is not None:
            return outcomes
    elif len(items) > 1 and all(_is_new(item) for item in items):
        outcomes = await _send_new(session, items, notify=notify)
        if outcomes is not None:
            return outcomes
    return await _send_any(session, items, notify=notify)


async def _send_any(session: DirectSession, items: Sequence[Append], *, notify: bool) -> list[Outcome]:
    streams: dict[str, int] = {}
    rows: list[_ItemRow] = []
    events: list[EventRow] = []
    creates = False
    for n, item in enumerate(items, 1):
        place = streams.setdefault(item.stream, len(streams) + 1)
        creates = creates or item.create is not None
        rows.append(_item_row(n, place, item))
        for k, event in enumerate(item.events, 1):
            event.i = n
            event.k = k
            events.append(event)
    batch = (list(streams), _ENCODER.encode(rows).decode(), _ENCODER.encode(events).decode(), creates, notify)
    async with session.through_psycopg() as connection:
        cursor = await connection.execute(_SQL, batch, prepare=True)
        return [Outcome(*row) for row in await cursor.fetchall()]


async def _send_one(session: DirectSession, item: Append, *, notify: bool) -> Outcome:
    """The short path: half the work for a batch of one."""
    event = item.events[0]
    answer = await session.call(
        b"append_one",
        _SQL_ONE,
        (
            item.stream.encode(),
            b"%d" % item.expected,
            event.id.encode(),
            event.type.encode(),
            b"%d" % event.version,
            bytes(event.payload),
            event.actor_kind.encode(),
            event.actor_id.encode(),
            _text(event.actor_role),
            _text(event.run_id),
            None if event.caused_by is UNSET else b"%d" % event.caused_by,
            event.origin.encode(),
            _text(event.origin_client),
            _text(event.origin_key),
            b"t" if notify else b"f",
        ),
    )
    assert answer is not None  # noqa: S101 - the function always answers
    kind, seq, chain, ts, size = answer.split(" ")
    is_appended = kind == "appended"
    return Outcome(
        kind,  # pyright: ignore[reportArgumentType] - the function knows these words only
        int(seq),
        event.id if is_appended else None,
        chain or None,
        ts or None,
        int(size) if size else 0,
        None,
        None,
    )


class _FenceRow(Struct):
    i: int
    purpose: str
    holder: str
    epoch: int


class _Run(Struct):
    """The events of one stream in a batch: behind which version, and which place each item's last one has."""

    first: int
    events: list[EventRow]
    ends: list[tuple[int, int]]


def _placed(runs: Iterable[_Run]) -> list[EventRow]:
    """All events of a batch, each with its stream's place in it and its own place in that stream."""
    events: list[EventRow] = []
    for place, run in enumerate(runs, 1):
        for k, event in enumerate(run.events, 1):
            event.i = place
            event.k = k
        events += run.events
    return events


async def _send_plain(session: DirectSession, items: Sequence[Append], *, notify: bool) -> list[Outcome] | None:
    """The set-wise path; None where it was not taken, because some stream stands elsewhere than its items expect, or a
    lease is another's."""
    runs: dict[str, _Run] = {}
    fences: set[tuple[str, Fence]] = set()
    for n, item in enumerate(items):
        run = runs.get(item.stream)
        if run is None:
            run = runs[item.stream] = _Run(item.expected, [], [])
        elif item.expected != run.first + len(run.events):
            return None
        if item.fence is not None:
            fences.add((item.stream, item.fence))
        run.events += item.events
        run.ends.append((n, len(run.events)))
    events = _placed(runs.values())
    firsts = ",".join(str(run.first) for run in runs.values())
    batch = (_array(runs), f"{{{firsts}}}".encode(), b"%d" % len(events), _ENCODER.encode(events))
    told = b"t" if notify else b"f"
    if fences:
        places = {name: place for place, name in enumerate(runs, 1)}
        rows = [_FenceRow(places[stream], fence.purpose, fence.holder, fence.epoch) for stream, fence in fences]
        answer = await session.call(b"append_fenced", _SQL_FENCED, (*batch, _ENCODER.encode(rows), told))
    else:
        answer = await session.call(b"append_plain", _SQL_PLAIN, (*batch, told))
    return None if answer is None else _outcomes(runs.values(), answer.split("\n"), len(items))


async def _send_new(session: DirectSession, items: Sequence[Append], *, notify: bool) -> list[Outcome] | None:
    """The set-wise path of new streams; None where it was not taken, because a name is taken or stands here twice."""
    runs = {item.stream: _Run(0, list(item.events), [(n, len(item.events))]) for n, item in enumerate(items)}
    if len(runs) < len(items):
        return None
    events = _placed(runs.values())
    made = [item.create for item in items if item.create is not None]
    batch = (
        _array(runs),
        _array(each.kind for each in made),
        _array(each.tenant for each in made),
        f"{{{','.join(str(each.retention_days) for each in made)}}}".encode(),
        b"%d" % len(events),
        _ENCODER.encode(events),
        b"t" if notify else b"f",
    )
    try:
        answer = await session.call(b"append_new", _SQL_NEW, batch)
    except psycopg.errors.UniqueViolation:
        return None  # somebody took a name at the same moment; nothing was stored
    return None if answer is None else _outcomes(runs.values(), answer.split("\n"), len(items))


def _outcomes(runs: Iterable[_Run], lines: list[str], count: int) -> list[Outcome]:
    """The answer's lines, which come run by run, as outcomes in the order of the items."""
    outcomes: dict[int, Outcome] = {}
    at = 0
    for run in runs:
        stored = [line.split(" ") for line in lines[at : at + len(run.events)]]
        sizes = list(itertools.accumulate((int(size) for _, _, size, _ in stored), initial=int(stored[0][3])))
        for n, end in run.ends:
            chain, ts, _, _ = stored[end - 1]
            event_id = run.events[end - 1].id
            outcomes[n] = Outcome("appended", run.first + end, event_id, chain, ts, sizes[end], None, None)
        at += len(run.events)
    return [outcomes[n] for n in range(count)]


async def settle(session: DirectSession, items: Sequence[Append], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """After a lost answer: tell a refusal by our own first try from a refusal by somebody else's append."""
    settled = list(outcomes)
    async with session.through_psycopg() as connection:
        for n, (item, outcome) in enumerate(zip(items, outcomes, strict=True)):
            if outcome.kind in ("appended", "key_reused") or not item.events:
                continue
            settled[n] = await _as_first_tried(connection, item, outcome) or outcome
    return settled


async def _as_first_tried(connection: psycopg.AsyncConnection[Any], item: Append, outcome: Outcome) -> Outcome | None:
    first = await connection.execute(_IS_OURS, (item.stream, item.expected + 1, item.events[0].id))
    if await first.fetchone() is None:
        return None
    last = item.expected + len(item.events)
    row = await (await connection.execute(_HASH_AT, (item.stream, last))).fetchone()
    if row is None:
        return None
    id_, chain, ts, size = row
    return Outcome("appended", last, id_, chain, ts, int(size), outcome.status, outcome.body)


def _item_row(n: int, place: int, item: Append) -> _ItemRow:
    row = _ItemRow(n, place, item.expected, len(item.events))
    if item.create is not None:
        row.kind, row.tenant, row.retention = item.create.kind, item.create.tenant, item.create.retention_days
    if item.seal:
        row.seal = True
    if item.fence is not None:
        row.fence_purpose, row.fence_holder = item.fence.purpose, item.fence.holder
        row.fence_epoch = item.fence.epoch
        row.fence_stream = UNSET if item.fence.stream is None else item.fence.stream
    if item.key is not None:
        row.key_tenant, row.key_caller, row.key_operation, row.key_scope, row.key = item.key.place
        row.fingerprint, row.status, row.body = item.key.fingerprint, item.key.status, item.key.answer
    return row


def _is_plain(item: Append) -> bool:
    """Whether it may go the set-wise way; its fence, if any, is on the lease of its own stream."""
    if item.key is not None or item.create is not None or item.seal or not item.events:
        return False
    return item.fence is None or item.fence.stream is None


def _is_new(item: Append) -> bool:
    """Whether it may go the set-wise way of new streams."""
    if item.create is None or item.expected or not item.events:
        return False
    return item.key is None and not item.seal and item.fence is None


def _array(texts: Iterable[str]) -> bytes:
    """Texts as PostgreSQL writes an array of them."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return ("{" + ",".join('"' + text + '"' for text in quoted) + "}").encode()


def _is_short(item: Append) -> bool:
    return len(item.events) == 1 and not item.events[0].redactions and not item.events[0].classes


def _text(value: str | UnsetType) -> bytes | None:
    return None if value is UNSET else value.encode()
