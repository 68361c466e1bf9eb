"""Erasure of one payload: by the eraser, for what an erasure event names, once, and nothing but payload and salt."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import append, contents, creation, event, events, item, one, refused, stream_id, verdict

OTHER = "room:bbbbbbbb"


def erasure(seq: Any, **fields: Any) -> dict[str, Any]:
    return event({"kind": "payload_erased", "erasedSeq": seq}, t="state_changed", **fields)


def erase(stream: int, seq: int, change: str = "payload = NULL, salt = NULL") -> str:
    return f"UPDATE minutebook.events SET {change} WHERE stream_id = {stream} AND seq = {seq}"


@pytest.fixture
def superuser(any_database: Any) -> Any:
    """A room whose event 6 lets go of 2, 7 of itself; and a room where nothing names anything."""
    with any_database.connect("app") as app:
        append(app, creation(*events(5), erasure(2), erasure(7)), creation(*events(5), stream=OTHER))
    with any_database.connect("postgres") as connection:
        yield connection


def test_the_eraser_takes_payload_and_salt_of_a_named_event_once(any_database: Any, superuser: Any) -> None:
    stream = stream_id(superuser)
    columns = "SELECT to_jsonb(e) - 'payload' - 'salt' FROM minutebook.events e WHERE stream_id = %s ORDER BY seq"
    kept = superuser.execute(columns, (stream,)).fetchall()
    head = contents(superuser)[1]
    with any_database.connect("eraser") as eraser:
        assert verdict(eraser, erase(stream, 2)) == "passed, rows: 1"
        assert verdict(eraser, erase(stream, 2)) == "passed, rows: 0"
        for back in ("payload = '{}'", "payload = '{}', salt = 'x'", "salt = 'x'"):
            assert verdict(eraser, erase(stream, 2, back)) == "passed, rows: 0", back
    gone = superuser.execute("SELECT seq FROM minutebook.events WHERE payload IS NULL AND salt IS NULL").fetchall()
    assert gone == [(2,)]
    assert superuser.execute(columns, (stream,)).fetchall() == kept
    assert contents(superuser)[1] == head


def test_what_no_later_event_names_keeps_its_payload(any_database: Any, superuser: Any) -> None:
    before = contents(superuser)
    stream, other = stream_id(superuser), stream_id(superuser, OTHER)
    with any_database.connect("eraser") as eraser:
        for target in ((stream, 1), (stream, 6), (stream, 7), (other, 2)):
            assert verdict(eraser, erase(*target)) == "MB010", target
        assert verdict(eraser, "UPDATE minutebook.events SET payload = NULL, salt = NULL") == "MB010"
    assert contents(superuser) == before


def test_half_an_erasure_or_more_than_one_is_refused(any_database: Any, superuser: Any) -> None:
    before = contents(superuser)
    stream = stream_id(superuser)
    with any_database.connect("eraser") as eraser:
        for change in ("payload = NULL", "salt = NULL", "payload = '{}'", "payload = 'null', salt = NULL"):
            assert verdict(eraser, erase(stream, 2, change)) == "MB010", change
        for column in ("type = 'x'", "commitment = ''", "hash = hash", "seq = 9", "classes = '{}'", "ts = now()"):
            change = f"payload = NULL, salt = NULL, {column}"
            assert verdict(eraser, erase(stream, 2, change)) == "42501", column
        assert verdict(eraser, f"DELETE FROM minutebook.events WHERE stream_id = {stream}") == "42501"
        assert verdict(eraser, "SELECT salt FROM minutebook.events") == "42501"
        assert verdict(eraser, "INSERT INTO minutebook.events (stream_id) VALUES (1)") == "42501"
    assert contents(superuser) == before


def test_the_trigger_alone_allows_no_other_column(any_database: Any, superuser: Any) -> None:
    """The column grant is the outer wall; this widens it, as a migration could by mistake."""
    stream = stream_id(superuser)
    superuser.execute("GRANT UPDATE ON minutebook.events TO minutebook_eraser")
    before = contents(superuser)
    with any_database.connect("eraser") as eraser:
        for column in (
            "type = 'x'",
            "commitment = ''",
            "hash = ''",
            "seq = 9",
            "ts = now()",
            "bytes = 0",
            "run_id = 'r'",
        ):
            assert verdict(eraser, erase(stream, 2, f"payload = NULL, salt = NULL, {column}")) == "MB010", column
    assert contents(superuser) == before


@pytest.mark.parametrize("role", ["app", "projector", "retention", "auditor"])
def test_no_other_role_erases(any_database: Any, superuser: Any, role: str) -> None:
    before = contents(superuser)
    stream = stream_id(superuser)
    with any_database.connect(role) as connection:
        assert verdict(connection, erase(stream, 2)) == "42501"
        assert verdict(connection, "SET ROLE minutebook_eraser") == "42501"
    assert contents(superuser) == before


def test_the_owner_and_a_superuser_do_not_erase_either(superuser: Any) -> None:
    stream = stream_id(superuser)
    for role in ("postgres", "minutebook_owner"):
        superuser.execute(f"SET ROLE {role}")
        with refused("MB010"):
            superuser.execute(erase(stream, 2))


def test_look_alikes_of_an_erasure_event_name_nothing(any_database: Any, superuser: Any) -> None:
    stream = stream_id(superuser)
    with any_database.connect("app") as app:
        append(
            app,
            item(
                7,
                erasure(3, o="harness", ak="agent"),
                erasure("3"),
                erasure([3]),
                event({"nested": {"kind": "payload_erased", "erasedSeq": 3}}),
                event({"kind": "payload_erased", "erasedseq": 3}),
                event([{"kind": "payload_erased", "erasedSeq": 3}]),
                event({"text": '{"kind": "payload_erased", "erasedSeq": 3}'}),
            ),
        )
    before = contents(superuser)
    with any_database.connect("eraser") as eraser:
        assert verdict(eraser, erase(stream, 3)) == "MB010"
        assert contents(superuser) == before
        with any_database.connect("app") as app:
            append(app, item(14, erasure(3)))
        assert verdict(eraser, erase(stream, 3)) == "passed, rows: 1"
    assert one(superuser, "SELECT count(*) FROM minutebook.events WHERE payload IS NULL") == 1


def test_an_erased_event_stays_in_the_chain_and_the_stream_goes_on(any_database: Any, superuser: Any) -> None:
    stream = stream_id(superuser)
    with any_database.connect("eraser") as eraser:
        eraser.execute(erase(stream, 2))
    with any_database.connect("app") as app:
        result = append(app, item(7, event()))[0]
    assert (result.outcome, result.seq) == ("appended", 8)
    broken = one(
        superuser,
        "SELECT count(*) FROM minutebook.events e JOIN minutebook.events p"
        " ON p.stream_id = e.stream_id AND p.seq = e.seq - 1 WHERE e.prev_hash <> p.hash",
    )
    assert broken == 0
