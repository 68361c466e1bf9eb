"""Erasure where more than one row has the words: behind a seal, in snapshots, in the copies of forks (law 10)."""

from __future__ import annotations

import asyncio
import json
from typing import Any, LiteralString, cast

import psycopg
import pytest
from append_helpers import (
    ROOM,
    Background,
    append,
    creation,
    event,
    events,
    item,
    one,
    stream_id,
    until,
    verdict,
)
from minutebook.infra.postgres.erasure import Erased, Erasure, ErasureRefused
from minutebook.infra.postgres.erasure import erase as everywhere
from minutebook.infra.postgres.export import verify_database
from minutebook.infra.postgres.store import SAVE_SNAPSHOT
from ulid_transform import ulid_now


def erasure(seq: Any, **fields: Any) -> dict[str, Any]:
    """An event that names another one."""
    return event({"kind": "payload_erased", "erasedSeq": seq}, t="state_changed", **fields)


def erase(stream: int, seq: int) -> str:
    """The eraser's statement."""
    return f"UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE stream_id = {stream} AND seq = {seq}"


def assert_verifies(database: Any) -> None:
    """Every stream's chain verifies, and what is gone was erased."""
    report = verify_database(database.url("auditor"))
    assert report.ok, report.breaks


@pytest.fixture
def superuser(any_database: Any) -> Any:
    """A room whose event 6 lets go of 2, 7 of itself."""
    with any_database.connect("app") as app:
        append(app, creation(*events(5), erasure(2), erasure(7)))
    with any_database.connect("postgres") as connection:
        yield connection


# Behind a seal

SEALED = "room:cccccccc"


@pytest.fixture
def sealed(any_database: Any, superuser: Any) -> int:
    """A sealed room of five events."""
    with any_database.connect("app") as app:
        append(app, creation(*events(5), stream=SEALED, seal=True))
    return stream_id(superuser, SEALED)


INSERT = (
    "INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin,"
    " redactions, classes, payload)"
    " VALUES (%s, %s, '01J00000000000000000000000', %s, 1, 'system', 'minutebook', %s, '{{}}', '{{}}', '{}')"
)


def inserted(
    superuser: Any, stream: int, payload: str, seq: int = 6, type_: str = "state_changed", o: str = "broker"
) -> str:
    """How the guards take an event, as the owner of the log inserts it."""
    superuser.execute("SET ROLE minutebook_owner")
    try:
        with superuser.transaction():
            superuser.execute(cast("LiteralString", INSERT.format(payload)), (stream, seq, type_, o))
    except psycopg.Error as error:
        return error.sqlstate or ""
    finally:
        superuser.execute("RESET ROLE")
    return "passed"


NAMES_2 = '{"kind": "payload_erased", "erasedSeq": 2, "reason": "asked for"}'


def test_an_erasure_alone_is_appended_behind_a_seal(any_database: Any, superuser: Any, sealed: int) -> None:
    for payload in (
        '{"kind": "room_phase", "erasedSeq": 2}',
        '{"kind": "payload_erased", "erasedSeq": 2, "text": "and this"}',
        '{"kind": "payload_erased", "erasedSeq": 2, "left": {"isErased": true}}',
        '{"kind": "payload_erased", "erasedSeq": "2"}',
        '{"kind": "payload_erased", "erasedSeq": 2.5}',
        '{"kind": "payload_erased", "erasedSeq": 6}',
        '{"kind": "payload_erased", "erasedSeq": 0}',
        '{"kind": "payload_erased"}',
        '["payload_erased"]',
    ):
        assert inserted(superuser, sealed, payload) == "MB002", payload
    assert inserted(superuser, sealed, NAMES_2, type_="message") == "MB002"
    assert inserted(superuser, sealed, NAMES_2, o="harness") == "MB002"
    assert inserted(superuser, sealed, NAMES_2, seq=7) == "MB003"
    with any_database.connect("app") as app:
        assert append(app, item(5, erasure(2), stream=SEALED))[0].outcome == "sealed"

    before = one(superuser, "SELECT (sealed, closed_at)::text FROM minutebook.streams WHERE id = %s", sealed)
    assert inserted(superuser, sealed, NAMES_2) == "passed"
    assert inserted(superuser, sealed, NAMES_2, seq=7) == "MB002", "once"
    row = "SELECT (sealed, closed_at)::text FROM minutebook.streams WHERE id = %s AND version = 6"
    assert one(superuser, row, sealed) == before
    with any_database.connect("eraser") as eraser:
        assert verdict(eraser, erase(sealed, 2)) == "passed, rows: 1"
    assert inserted(superuser, sealed, NAMES_2, seq=7) == "MB002", "what is gone is not named again"


def test_an_erasure_takes_the_snapshot_and_refuses_an_older_one(any_database: Any, superuser: Any) -> None:
    stream = stream_id(superuser)
    superuser.execute(
        "INSERT INTO minutebook.snapshots VALUES (%s, 5, 'room.2', '{\"queue\": [\"words\"]}')", (stream,)
    )
    with any_database.connect("eraser") as eraser:
        eraser.execute(erase(stream, 2))
    stored = "SELECT (seq, schema, state)::text FROM minutebook.snapshots WHERE stream_id = %s"
    assert one(superuser, stored, stream) == "(7,erased,{})"
    with any_database.connect("app") as app:
        for seq, schema in ((5, "room.2"), (7, "room.2")):
            app.execute(SAVE_SNAPSHOT, (stream, seq, schema, "{}"))
            assert one(superuser, stored, stream) == "(7,erased,{})", "folded before the erasure was known"
        app.execute(SAVE_SNAPSHOT, (stream, 8, "room.2", "{}"))
    assert one(superuser, stored, stream) == "(8,room.2,{})"


# Copies

FORK, TWICE, ASIDE = "room:ffffffff", "room:gggggggg", "room:hhhhhhhh"


def fork(app: Any, source: str, seq: int, stream: str) -> None:
    """A fork; its own event is the last."""
    event_ = json.dumps({**event({"kind": "forked_from", "room": source.removeprefix("room:"), "seq": seq}, o="broker"),
                         "t": "state_changed"})  # fmt: skip
    assert app.execute("SELECT outcome FROM minutebook.fork_v1(%s, %s, %s, %s, 1000, 1000000)",
                       (source, seq, stream, event_)).fetchone() == ("appended",)  # fmt: skip


def erased_everywhere(database: Any, seq: int, stream: str = ROOM, *, dry_run: bool = False) -> list[Erased]:
    """What the verb does."""
    wanted = Erasure(stream, seq, "asked for", [])
    return asyncio.run(everywhere(database.url("eraser"), wanted, ulid_now, dry_run=dry_run))


def words(superuser: Any, text: str) -> int:
    """In how many rows of the log and of the snapshots it stands."""
    found = "SELECT count(*) FROM (SELECT payload::text AS t FROM minutebook.events UNION ALL SELECT state::text FROM"
    return one(superuser, f"{found} minutebook.snapshots) r WHERE r.t LIKE %s", f"%{text}%")


@pytest.fixture
def copies(any_database: Any, superuser: Any) -> Any:
    """A fork of ROOM, a sealed fork of that one, and a fork that ends before event 8; ROOM is sealed too."""
    with any_database.connect("app") as app:
        append(app, item(7, event({"text": "by mistake"}), event({"text": "fine"})))
        fork(app, ROOM, 9, FORK)
        fork(app, FORK, 10, TWICE)
        fork(app, ROOM, 7, ASIDE)
        for stream, version in ((TWICE, 11), (ROOM, 9)):
            assert append(app, item(version, event(), stream=stream, seal=True))[0].outcome == "appended"
    assert words(superuser, "by mistake") == 3
    return superuser


def test_law_10_an_erasure_reaches_the_copies_of_forks_and_their_forks(any_database: Any, copies: Any) -> None:
    dry = erased_everywhere(any_database, 8, dry_run=True)
    assert [(each.stream, each.named_by) for each in dry] == [(ROOM, None), (FORK, None), (TWICE, None)]
    assert words(copies, "by mistake") == 3
    found = erased_everywhere(any_database, 8)
    assert [(each.stream, each.was_there) for each in found] == [(ROOM, True), (FORK, True), (TWICE, True)]
    assert words(copies, "by mistake") == 0
    assert words(copies, "asked for") == 3
    for each in found:
        stream = stream_id(copies, each.stream)
        payload = "SELECT payload FROM minutebook.events WHERE stream_id = %s AND seq = %s"
        assert one(copies, payload, stream, each.named_by) == {
            "kind": "payload_erased", "erasedSeq": 8, "reason": "asked for",
        }  # fmt: skip
    assert_verifies(any_database)
    again = erased_everywhere(any_database, 8)
    assert [(each.named_by, each.was_there) for each in again] == [(each.named_by, False) for each in found]


def test_an_erasure_goes_on_where_it_was_cut_off(any_database: Any, copies: Any) -> None:
    erased_everywhere(any_database, 8, FORK)
    assert words(copies, "by mistake") == 1, "an erasure in a fork is the fork's and that of its forks"
    assert [each.was_there for each in erased_everywhere(any_database, 8)] == [True, False, False]
    assert words(copies, "by mistake") == 0


def test_a_fork_that_is_being_made_is_waited_for(any_database: Any, copies: Any) -> None:
    late = "room:22222222"
    with any_database.connect("app") as app:
        with app.transaction():
            fork(app, ROOM, 9, late)
            erasing = Background(lambda: erased_everywhere(any_database, 8))
            until(copies, "SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE pg_blocking_pids(a.pid) <> '{}')")
        assert late in [each.stream for each in erasing.result()]
    assert words(copies, "by mistake") == 0


def test_what_is_held_or_no_words_stays_everywhere(any_database: Any, copies: Any) -> None:
    with any_database.connect("app") as app:
        app.execute(
            "SELECT minutebook.hold_closed_v1(%s, true, '01J00000000000000000000000', 'human', 'a', 'x', NULL)",
            (TWICE,),
        )
    before = words(copies, "")
    for seq, why in ((8, "legal hold"), (6, "says what the room is"), (99, "has no event 99")):
        with pytest.raises(ErasureRefused, match=why):
            erased_everywhere(any_database, seq)
    assert (words(copies, ""), words(copies, "by mistake")) == (before, 3)


@pytest.mark.parametrize("role", ["app", "projector", "retention", "auditor"])
def test_no_other_role_names_an_erasure(any_database: Any, copies: Any, role: str) -> None:
    call = "SELECT minutebook.name_erasure_v1('room:aaaaaaaa', 8, '01J00000000000000000000000', 'x', '{}', false)"
    with any_database.connect(role) as connection:
        assert verdict(connection, call) == "42501"
    assert words(copies, "by mistake") == 3
