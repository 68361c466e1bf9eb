"""The chain, recomputed from its description alone: every stored byte counts, and tampering is found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from append_helpers import append, creation, event, events, item, run

ZERO = bytes(32)

COLUMNS = (
    "SELECT s.name, e.seq::text, e.id, e.type, e.schema_version::text, e.actor_kind, e.actor_id, e.actor_role,"
    " e.run_id, e.caused_by::text, e.origin, e.ts AT TIME ZONE 'UTC', e.redactions, e.classes, e.origin_client,"
    " e.origin_key, e.salt, e.payload::text, e.commitment, e.prev_hash, e.hash"
    " FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.name = %s ORDER BY e.seq"
)

STREAM = "room:größe-𝄞"

ODD = (
    event({"text": "größe 𝄞 \u2028 \\ \" 'x'"}, ai="zoë:5,", rd=["rule-ä", "rule-b"], cl=["internal"]),
    event({}, r="", ar="", rd=[], cl=[""]),
    event({"n": 1.1, "big": 10**30, "tiny": 1e-20, "list": [1, None, {"b": 1, "a": 2}]}, r="run1", cb=1, o="harness"),
    event(["a", "b"], oc="bridge", ok="events:1", o="broker", ak="system", ar="owner"),
    event("just text", cl=["1:a,", "b"], rd=["", ""]),
    event(0, t="état", v=2**31 - 1),
    event(False),
)


def netstring(value: str | None) -> bytes:
    """`length:bytes,` with the length in UTF-8 bytes; a null is `:,`, an empty text `0:,`."""
    if value is None:
        return b":,"
    data = value.encode()
    return b"%d:%s," % (len(data), data)


def list_of(values: Sequence[str]) -> bytes:
    """A list is the netstring of its elements' netstrings; an empty one `0:,`."""
    inner = b"".join(netstring(value) for value in values)
    return b"%d:%s," % (len(inner), inner)


def faults(connection: psycopg.Connection, stream: str = STREAM) -> list[str]:
    """What does not verify in a stream: `<seq> <what>`; empty where everything does."""
    found: list[str] = []
    previous = ZERO
    rows = connection.execute(COLUMNS, (stream,)).fetchall()
    for n, row in enumerate(rows, 1):
        *scalars, ts, redactions, classes, client, number, salt, payload, commitment, prev_hash, hash_ = row
        if row[1] != str(n):
            found.append(f"{n} seq")
        if payload is not None and hashlib.sha256(salt + payload.encode()).digest() != commitment:
            found.append(f"{n} payload")
        form = b"minutebook.event.v1," + b"".join(netstring(value) for value in scalars)
        form += netstring(f"{ts:%Y-%m-%dT%H:%M:%S.%f}Z") + list_of(redactions) + list_of(classes)
        form += netstring(client) + netstring(number) + netstring(commitment.hex()) + netstring(prev_hash.hex())
        if prev_hash != previous or hashlib.sha256(form).digest() != hash_:
            found.append(f"{n} chain")
        previous = hash_
    head = connection.execute("SELECT version, head_hash FROM minutebook.streams WHERE name = %s", (stream,)).fetchone()
    if head != (len(rows), previous):
        found.append("head")
    return found


@pytest.fixture
def superuser(any_database: Any) -> Any:
    with any_database.connect("app") as app:
        append(app, creation(*ODD, stream=STREAM), item(len(ODD), event(), stream=STREAM))
        append(app, creation(*events(3)))
    with any_database.connect("postgres") as connection:
        connection.autocommit = False
        yield connection


def test_every_stored_form_is_covered_and_verifies(any_database: Any, superuser: Any) -> None:
    with any_database.connect("auditor") as auditor:
        auditor.execute("SET timezone = 'Asia/Kathmandu'")
        auditor.execute("SET datestyle = 'SQL, DMY'")
        assert faults(auditor) == []
        assert faults(auditor, "room:aaaaaaaa") == []
        rows = auditor.execute("SELECT count(*), count(DISTINCT salt), count(DISTINCT hash) FROM minutebook.events")
        assert rows.fetchone() == (11, 11, 11)


TAMPERS = {
    "type = 'forged'": 2,
    "id = '01ARZ3NDEKTSV4RRFFQ69G5FAV'": 2,
    "schema_version = 9": 2,
    "actor_kind = 'system'": 2,
    "actor_id = 'eve'": 2,
    "actor_role = NULL": 2,
    "run_id = NULL": 2,
    "run_id = 'run2'": 3,
    "caused_by = NULL": 3,
    "origin = 'broker'": 3,
    "ts = ts + interval '1 microsecond'": 2,
    "redactions = '{}'": 1,
    "redactions = '{rule-b,rule-ä}'": 1,
    "redactions = '{\"rule-ä,6:rule-b\"}'": 1,
    "classes = '{}'": 2,
    "classes = redactions, redactions = classes": 1,
    "origin_client = NULL, origin_key = NULL": 4,
    "origin_client = 'bridgeevents', origin_key = ':1'": 4,
    'payload = \'{"text": "forged"}\'': 1,
    "payload = jsonb_set(payload, '{n}', '1.10')": 3,
    "salt = sha256(salt)": 2,
    "payload = '0', salt = 's', commitment = sha256('s0')": 2,
    "prev_hash = sha256(prev_hash)": 2,
    "hash = sha256(hash)": 2,
}


def test_every_change_of_a_stored_event_is_found(superuser: Any) -> None:
    """By a superuser with the triggers off: what the guards cannot stop, the chain shows."""
    for change, seq in TAMPERS.items():
        superuser.execute("ALTER TABLE minutebook.events DISABLE TRIGGER ALL")
        done = run(superuser, f"UPDATE minutebook.events SET {change} WHERE seq = {seq} AND stream_id = 1")
        assert done.rowcount == 1, change
        found = faults(superuser)
        assert found, change
        assert found[0].startswith(f"{seq} "), (change, found)
        superuser.rollback()
    assert faults(superuser) == []


def test_a_removed_swapped_or_moved_event_is_found(superuser: Any) -> None:
    changes = {
        "a middle one removed": "DELETE FROM minutebook.events WHERE stream_id = 1 AND seq = 4",
        "the last one removed": "DELETE FROM minutebook.events WHERE stream_id = 1 AND seq = 8",
        "two swapped": "UPDATE minutebook.events SET seq = CASE seq WHEN 5 THEN 106 WHEN 6 THEN 105 END"
        " WHERE stream_id = 1 AND seq IN (5, 6); UPDATE minutebook.events SET seq = seq - 100 WHERE seq > 100",
        "one from another stream": "DELETE FROM minutebook.events WHERE stream_id = 1 AND seq = 1;"
        " UPDATE minutebook.events SET stream_id = 1 WHERE stream_id = 2 AND seq = 1",
        "the stream renamed": "UPDATE minutebook.streams SET name = 'room:other' WHERE id = 1",
    }
    for what, statements in changes.items():
        for table in ("events", "streams"):
            run(superuser, f"ALTER TABLE minutebook.{table} DISABLE TRIGGER ALL")
        for statement in statements.split(";"):
            run(superuser, statement)
        stream = "room:other" if "renamed" in what else STREAM
        assert faults(superuser, stream), what
        superuser.rollback()
    assert faults(superuser) == []


def test_the_chain_verifies_without_the_erased_payload(any_database: Any, superuser: Any) -> None:
    superuser.rollback()
    with any_database.connect("app") as app:
        erasing = event({"kind": "payload_erased", "erasedSeq": 3}, t="state_changed")
        append(app, item(len(ODD) + 1, erasing, event(), stream=STREAM))
    with any_database.connect("eraser") as eraser:
        eraser.execute("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE stream_id = 1 AND seq = 3")
    with any_database.connect("auditor") as auditor:
        assert faults(auditor) == []


def test_an_answer_holds_the_chain_that_the_log_holds(any_database: Any) -> None:
    with any_database.connect("app") as app:
        result = append(app, creation(*events(3)))[0]
        stored = app.execute(
            "SELECT encode(hash, 'hex'), to_char(ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
            " FROM minutebook.events WHERE seq = 3"
        ).fetchone()
        assert (result.chain, result.ts) == stored
        assert faults(app, "room:aaaaaaaa") == []
