"""A log with conversations and turns in it is as whole, and as forgetful, as one with rooms alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from append_helpers import append, creation, event, expire, item, key, one, stream_id
from minutebook.commands.conversations.encoding import PAYLOAD_BYTES
from minutebook.infra.export_file import verify_file
from minutebook.infra.postgres.doctor import Urls, examine
from minutebook.infra.postgres.export import export_all, verify_database
from minutebook.infra.postgres.rebuild import rebuild
from minutebook.infra.postgres.retention import purge_expired
from minutebook.infra.postgres.views import PROJECTIONS

TALK, OTHER, ROOM = "conversation:" + "a" * 26, "conversation:" + "b" * 26, "room:aaaaaaaa"
TURN = "turn:" + "ab" * 32
CANARY = "canary-c0ffee"


def said(type_: str, **payload: Any) -> dict[str, Any]:
    """An event of a conversation, with the canary in what it says."""
    return event({"text": CANARY, "kid": "k", "mac": "m", **payload}, t=type_)


@pytest.fixture
def log(database: Any) -> Any:
    """A conversation with a turn, both sealed, with everything beside them; another one; and the audit feed on."""
    with database.connect("postgres") as superuser:
        superuser.execute("SELECT minutebook.feed_switch_v1(true)")
        with database.connect("app") as app:
            start = event({"owner": {"actor": "human:ada"}, "handle": CANARY}, t="conversation_started")
            large = said("conversation_rotated", carry={"words": "x" * (PAYLOAD_BYTES - 1000)})
            answer = key("m1", keyOperation="send_turn", keyScope=TALK, body={"said": CANARY})
            append(app, creation(start, said("envelope_received", kind="user"), large, stream=TALK, **answer))
            append(app, creation(start, stream=OTHER), creation(said("model_answered"), stream=TURN))
            append(app, item(3, said("user_recorded", ord=1, turn=1), stream=TALK))
            talk = stream_id(app, TALK)
            epoch = one(app, "SELECT epoch FROM minutebook.lease_take_v1(%s, 'runner', %s, 15)", TALK, CANARY)
            rows = [{"s": talk, "t": 1, "a": 1, "o": 0, "x": CANARY, "e": epoch}]
            assert one(app, "SELECT minutebook.deltas_put_v1(%s::json)", json.dumps(rows)) == 1
            app.execute("SELECT minutebook.turn_seen_v1(%s, 1, 3)", (talk,))
            reserve = "SELECT minutebook.token_reserve_v1(%s, '', 'human:ada', '', 'echo', 5, 9)"
            assert one(app, reserve, TURN.partition(":")[2])
            append(app, item(4, said("conversation_closed"), stream=TALK, seal=True))
            append(app, item(1, said("turn_ended"), stream=TURN, seal=True))
            app.execute("SELECT minutebook.feed_advance_v1()")
        yield superuser


def holding(superuser: psycopg.Connection, text: str) -> list[str]:
    """Every table, of the product and of its job engine, that holds the text anywhere."""
    tables = [
        row[0]
        for row in superuser.execute(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname LIKE 'minutebook%' AND c.relkind IN ('r', 'p') ORDER BY 1"
        )
    ]
    assert {"minutebook.deltas", "minutebook_views.room_list", "minutebook_jobs.procrastinate_jobs"} < set(tables)
    search = "SELECT EXISTS (SELECT FROM {} t WHERE strpos(t::text, %s) > 0)"
    return [table for table in tables if one(superuser, search.format(table), text)]


def assert_whole(database: Any, folder: Path, streams: int) -> None:
    """Doctor, verify, export and rebuild find nothing amiss."""
    auditor, app, postgres = (database.url(role) for role in ("auditor", "app", "postgres"))
    ailing = [check for check in examine(Urls(auditor, app, app, postgres)) if not check.ok]
    assert ailing == []
    verified = verify_database(auditor)
    assert verified.ok, verified.breaks
    file = folder / "all.jsonl"
    with file.open("wb") as out:
        export_all(auditor, out)
    assert file.read_bytes().count(b'"stream"') >= streams
    exported = verify_file(file)
    assert exported.ok, exported.breaks
    for projection in PROJECTIONS.values():
        report = rebuild(database.url("projector"), projection, check=True)
        assert (report.streams, report.events, report.differences, report.parked) == (0, 0, [], [])


def test_doctor_verify_export_feed_and_rebuild_are_clean(
    database: Any, log: psycopg.Connection, tmp_path: Path
) -> None:
    assert_whole(database, tmp_path, 3)
    fed = log.execute(
        "SELECT s.kind, count(*) FROM minutebook.feed f JOIN minutebook.streams s ON s.id = f.stream_id"
        " GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert fed == [("conversation", 6), ("turn", 2)]


def test_law_10_after_retention_no_table_holds_a_word_of_them(
    database: Any, log: psycopg.Connection, tmp_path: Path
) -> None:
    urls = database.url("retention"), database.url("auditor")
    before = holding(log, CANARY)
    assert {"minutebook.events", "minutebook.deltas", "minutebook.idempotency", "minutebook.leases"} <= set(before)
    assert asyncio.run(purge_expired(*urls)).tenants == []
    for name in (TALK, TURN):
        expire(log, name, days=90)
    report = asyncio.run(purge_expired(*urls))
    assert report.ok, report.failures
    assert [(each.streams, each.events) for each in report.tenants] == [(2, 7)]
    left = holding(log, CANARY)
    assert left == ["minutebook.events"], "the handle of the other one"
    assert one(log, "SELECT array_agg(DISTINCT s.name) FROM minutebook.streams s") == [OTHER]
    assert holding(log, TURN.partition(":")[2]) == []
    assert_whole(database, tmp_path, 1)


def test_no_word_of_a_conversation_is_erased_by_itself(database: Any, log: psycopg.Connection) -> None:
    """What is signed would be none of ours without it: there is a way of its own (39_conversation_erasure.sql)."""
    name = "SELECT outcome FROM minutebook.name_erasure_v1(%s, %s, %s, 'why', '{}', true)"
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    with database.connect("eraser") as eraser:
        outcomes = [one(eraser, name, TALK, seq, ulid) for seq in range(1, 6)]
        outcomes += [one(eraser, name, TURN, seq, ulid) for seq in range(1, 3)]
    assert outcomes == ["not_found"] * 7
