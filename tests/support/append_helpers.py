"""SQL-level steps that the contract tests share: batches for append_v1, sealed and expired streams, refusals."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
import pytest
from psycopg import sql
from ulid_transform import ulid_now

ROOM = "room:aaaaaaaa"

LOGIN_ROLES = ("app", "projector", "retention", "eraser", "auditor")

APPEND = (
    "SELECT item, outcome, seq, event_id, chain, ts, bytes, status, body"
    " FROM minutebook.append_v1(%s::pg_catalog.text[], %s::pg_catalog.json, %s::pg_catalog.json, %s, %s)"
)

Event = dict[str, Any]
Item = dict[str, Any]


class Result(NamedTuple):
    """One row of append_v1."""

    item: int
    outcome: str
    seq: int
    event_id: str | None
    chain: str
    ts: str | None
    bytes: int
    status: int | None
    body: str | None


def event(payload: Any = None, **fields: Any) -> Event:
    """An event in append_v1's form; `fields` are its own short names."""
    plain: Event = {
        "id": ulid_now(),
        "t": "message",
        "v": 1,
        "ak": "human",
        "ai": "anna",
        "o": "client",
        "rd": [],
        "cl": [],
    }
    return {**plain, "p": {"text": "hello"} if payload is None else payload, **fields}


def events(count: int) -> list[Event]:
    """`count` events that differ in their text."""
    return [event({"text": f"number {n}"}) for n in range(1, count + 1)]


def item(expected: int, *rows: Event, stream: str = ROOM, **fields: Any) -> Item:
    """An item of a batch, with its events under `rows`."""
    return {"stream": stream, "expected": expected, "rows": list(rows), **fields}


def creation(*rows: Event, stream: str = ROOM, **fields: Any) -> Item:
    """An item that begins a stream; with one event where none are given."""
    begin = {"kind": stream.split(":", 1)[0], "tenant": "acme", "retention": 90}
    return item(0, *(rows or (event(),)), stream=stream, **{**begin, **fields})


def key(name: str, fingerprint: str = "0a", **fields: Any) -> dict[str, Any]:
    """The fields of an idempotency key, to be spread into an item."""
    place = {"keyTenant": "acme", "keyCaller": "anna", "keyOperation": "post", "keyScope": "rooms", "key": name}
    return {**place, "fingerprint": fingerprint, "status": 201, "body": {"ok": True}, **fields}


def arguments(*items: Item, notify: bool = True) -> tuple[Any, ...]:
    """The parameters of `APPEND` for a batch."""
    streams: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    inserted: list[dict[str, Any]] = []
    for n, one in enumerate(items, 1):
        place = streams.setdefault(one["stream"], len(streams) + 1)
        rest = {name: value for name, value in one.items() if name not in ("stream", "rows")}
        rows.append({"n": n, "s": place, "count": len(one["rows"]), **rest})
        inserted += [{**row, "i": n, "k": k} for k, row in enumerate(one["rows"], 1)]
    creates = any("kind" in one for one in items)
    return (list(streams), json.dumps(rows), json.dumps(inserted), creates, notify)


def append(connection: psycopg.Connection, *items: Item, notify: bool = True) -> list[Result]:
    """Run one batch; its outcomes in the order of the items."""
    return [Result(*row) for row in connection.execute(APPEND, arguments(*items, notify=notify))]


def outcomes(results: list[Result]) -> list[str]:
    """Only the words."""
    return [result.outcome for result in results]


@contextlib.contextmanager
def refused(*sqlstates: str) -> Generator[None]:
    """The statement inside must be refused by the database with one of exactly these codes."""
    with pytest.raises(psycopg.Error) as caught:
        yield
    assert caught.value.sqlstate in sqlstates, f"{caught.value.sqlstate}: {caught.value}"


def verdict(connection: psycopg.Connection, statement: str) -> str:
    """The SQLSTATE that refused a statement, or `passed, rows: <n>`."""
    try:
        return f"passed, rows: {run(connection, statement).rowcount}"
    except psycopg.Error as error:
        return error.sqlstate or str(error)


def run(connection: psycopg.Connection, statement: str) -> psycopg.Cursor[Any]:
    """Execute a statement that a test put together."""
    return connection.execute(cast("LiteralString", statement))


def append_one(connection: psycopg.Connection, stream: str, expected: int, payload: str = "{}") -> str:
    """What the short path answers for one event of a room."""
    return one(
        connection,
        "SELECT minutebook.append_one_v2(%s, %s, %s, 'message', 1, %s::pg_catalog.jsonb, 'human', 'anna', NULL, NULL,"
        " NULL, 'client', '{}', '{}', NULL, NULL, false)",
        stream,
        expected,
        ulid_now(),
        payload,
    )


def append_plain(
    connection: psycopg.Connection,
    first: dict[str, int],
    batch: Sequence[Item],
    *,
    count: int | None = None,
    notify: bool = False,
) -> list[list[str]] | None:
    """The lines that the set-wise path answers, each as its words. `first` has the version by stream; an event without
    `i` and `k` is the next of the first stream."""
    rows = [{"i": 1, "k": k} | row for k, row in enumerate(batch, 1)]
    answer = one(
        connection,
        "SELECT minutebook.append_plain_v1(%s::pg_catalog.text[], %s::pg_catalog.int8[], %s, %s::pg_catalog.json, %s)",
        list(first),
        list(first.values()),
        len(rows) if count is None else count,
        json.dumps(rows),
        notify,
    )
    return None if answer is None else [line.split(" ") for line in answer.split("\n")]


def append_fenced(
    connection: psycopg.Connection, first: dict[str, int], batch: Sequence[Item], fences: Sequence[Item]
) -> list[list[str]] | None:
    """As append_plain, with the leases that the writer claims to hold."""
    rows = [{"i": 1, "k": k} | row for k, row in enumerate(batch, 1)]
    answer = one(
        connection,
        "SELECT minutebook.append_fenced_v1(%s::pg_catalog.text[], %s::pg_catalog.int8[], %s, %s::pg_catalog.json,"
        " %s::pg_catalog.json, false)",
        list(first),
        list(first.values()),
        len(rows),
        json.dumps(rows),
        json.dumps(fences),
    )
    return None if answer is None else [line.split(" ") for line in answer.split("\n")]


def one(connection: psycopg.Connection, statement: str, *parameters: Any) -> Any:
    """The only value of a statement's only row."""
    row = connection.execute(cast("LiteralString", statement), parameters or None).fetchone()
    assert row is not None
    return row[0]


def stream_id(connection: psycopg.Connection, stream: str = ROOM) -> int:
    """The numeric key of a stream."""
    return one(connection, "SELECT id FROM minutebook.streams WHERE name = %s", stream)


def contents(superuser: psycopg.Connection) -> list[Any]:
    """Every row of the log in full, for "nothing was changed"."""
    return [
        superuser.execute("SELECT e::text FROM minutebook.events e ORDER BY stream_id, seq").fetchall(),
        superuser.execute("SELECT s::text FROM minutebook.streams s ORDER BY id").fetchall(),
        superuser.execute("SELECT k::text FROM minutebook.idempotency k ORDER BY 1").fetchall(),
    ]


@contextlib.contextmanager
def triggers_off(superuser: psycopg.Connection, table: str) -> Generator[None]:
    """Only a superuser or the owner by ALTER TABLE can do this; it is how tests reach what the product never can."""
    superuser.execute(sql.SQL("ALTER TABLE minutebook.{} DISABLE TRIGGER ALL").format(sql.Identifier(table)))
    try:
        yield
    finally:
        superuser.execute(sql.SQL("ALTER TABLE minutebook.{} ENABLE TRIGGER ALL").format(sql.Identifier(table)))
        for (name,) in superuser.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal", (f"minutebook.{table}",)
        ).fetchall():
            superuser.execute(
                sql.SQL("ALTER TABLE minutebook.{} ENABLE ALWAYS TRIGGER {}").format(
                    sql.Identifier(table), sql.Identifier(name)
                )
            )


def expire(superuser: psycopg.Connection, stream: str = ROOM, *, days: int = 91) -> int:
    """Move a sealed stream's seal `days` into the past, with the guards off; nothing in the product can do that."""
    with triggers_off(superuser, "streams"):
        superuser.execute(
            "UPDATE minutebook.streams SET closed_at = closed_at - make_interval(days => %s)"
            " WHERE name = %s AND sealed",
            (days, stream),
        )
    return stream_id(superuser, stream)


def as_role(superuser: psycopg.Connection, role: str) -> None:
    """SET ROLE within a superuser's session."""
    superuser.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(f"minutebook_{role}")))


def until(connection: psycopg.Connection, question: str, *parameters: Any, timeout_s: float = 20.0) -> None:
    """Return once the database answers the question with true; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not one(connection, question, *parameters):
        assert time.monotonic() < deadline, f"never came true: {question}"
        connection.execute("SELECT pg_sleep(0.002)")


def until_blocked(superuser: psycopg.Connection, pid: int) -> None:
    """Return once the session `pid` waits for a lock of another."""
    until(superuser, "SELECT cardinality(pg_blocking_pids(%s)) > 0", pid)


class Background:
    """A statement under way in a thread of its own. `result()` joins it and answers or raises what it came to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._future = self._pool.submit(work)
        self._pool.shutdown(wait=False)

    def result(self) -> Any:
        """What the work returned."""
        return self._future.result(timeout=30)
