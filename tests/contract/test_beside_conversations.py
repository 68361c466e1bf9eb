"""What the events of conversations mean beside the log: work that waits, whose they are, replies on their way."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from append_helpers import (
    LOGIN_ROLES,
    Background,
    append,
    as_role,
    creation,
    event,
    expire,
    item,
    key,
    one,
    outcomes,
    stream_id,
    until_blocked,
    verdict,
)

TALK = "conversation:aaaaaaaaaaaaaaaaaaaaaaaaaa"
OTHER = "conversation:bbbbbbbbbbbbbbbbbbbbbbbbbb"
TURN = "turn:" + "ab" * 32
ROOM = "room:aaaaaaaa"
WORK = "SELECT w.seq FROM minutebook.turn_work w WHERE w.stream_id = %s"
DONE = "SELECT minutebook.turn_work_done_v1(%s, %s)"
SEEN = "SELECT minutebook.turn_seen_v1(%s, %s, %s)"
PUT = "SELECT minutebook.deltas_put_v1(%s::pg_catalog.json)"
CANARY = "canary-7f3a"


def started(**owner: str) -> dict[str, Any]:
    """The first event of a conversation."""
    return event({"owner": {"actor": "human:ada", **owner}}, t="conversation_started", ai="ada")


def envelope(text: str = "hello") -> dict[str, Any]:
    """Something that waits."""
    return event({"kind": "user", "text": text}, t="envelope_received", ai="ada")


def reply(turn: int) -> dict[str, Any]:
    """A turn's one end."""
    return event({"turn": turn, "text": CANARY}, t="reply_recorded", ak="system", ai="conversations", o="broker")


def work(connection: Any, stream: str = TALK) -> int | None:
    """The seq of what may wait."""
    row = connection.execute(WORK, (stream_id(connection, stream),)).fetchone()
    return None if row is None else row[0]


def lease(connection: Any, stream: str = TALK, holder: str = "r1") -> int:
    """Take the runner's lease; its epoch."""
    return one(connection, "SELECT epoch FROM minutebook.lease_take_v1(%s, 'runner', %s, 15)", stream, holder)


def delta(stream: int, epoch: int, start: int, text: str, *, turn: int = 1, attempt: int = 1) -> dict[str, Any]:
    """A row of a batch."""
    return {"s": stream, "t": turn, "a": attempt, "o": start, "x": text, "e": epoch}


def put(connection: Any, *rows: dict[str, Any]) -> int:
    """One batch; the rows that were stored."""
    return one(connection, PUT, json.dumps(rows))


def texts(connection: Any) -> list[tuple[int, int, int, str]]:
    """Turn, attempt, start and text of every row."""
    return connection.execute(
        "SELECT d.turn, d.attempt, d.start, d.text FROM minutebook.deltas d ORDER BY 1, 2, 3"
    ).fetchall()


def test_an_envelope_leaves_work_in_its_own_transaction_and_a_later_one_keeps_it(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("app") as other:
        append(app, creation(started(), stream=TALK))
        talk = stream_id(app, TALK)
        assert work(app) is None
        with app.transaction():
            append(app, item(1, envelope(), stream=TALK))
            assert (work(app), work(other)) == (2, None)
        append(app, item(2, envelope(), envelope(), reply(1), stream=TALK))
        assert work(app) == 4
        assert one(app, DONE, talk, 3) is False
        assert work(app) == 4
        assert one(app, DONE, talk, 5) is True
        assert work(app) is None
        assert one(app, DONE, talk, 5) is False


def test_work_that_comes_while_the_last_is_done_is_never_lost(any_database: Any) -> None:
    """Either way around: the deletion that waits for an open append, and the append that waits for an open deletion."""
    with (
        any_database.connect("app") as runner,
        any_database.connect("app") as sender,
        any_database.connect("postgres") as watch,
    ):
        append(runner, creation(started(), envelope(), stream=TALK))
        talk = stream_id(runner, TALK)
        sender.autocommit = False
        append(sender, item(2, envelope(), stream=TALK))
        deletion = Background(lambda: one(runner, DONE, talk, 2))
        until_blocked(watch, runner.info.backend_pid)
        sender.commit()
        assert deletion.result() is False
        sender.autocommit = True
        assert work(runner) == 3

        runner.autocommit = False
        assert one(runner, DONE, talk, 3) is True
        appending = Background(lambda: outcomes(append(sender, item(3, envelope(), stream=TALK))))
        until_blocked(watch, sender.info.backend_pid)
        runner.commit()
        assert appending.result() == ["appended"]
        assert work(sender) == 4


def test_whose_a_conversation_is_is_there_when_it_is_started(any_database: Any) -> None:
    with any_database.connect("app") as app:
        whole = started(tenant="acme", onBehalfOf="human:ben")
        append(app, creation(started(), stream=TALK), creation(whole, started(), stream=OTHER))
        rows = app.execute(
            "SELECT c.tenant, c.actor, c.on_behalf_of, c.started_at = e.ts FROM minutebook.conversations c"
            " JOIN minutebook.events e ON e.stream_id = c.stream_id AND e.seq = 1 ORDER BY 1"
        ).fetchall()
        assert rows == [("", "human:ada", "", True), ("acme", "human:ada", "human:ben", True)]


def test_who_takes_part_in_a_shared_conversation_is_kept_while_they_do(any_database: Any) -> None:
    def people(app: psycopg.Connection) -> list[tuple[str, str]]:
        sql = "SELECT tenant, actor FROM minutebook.conversation_participants ORDER BY stream_id, actor"
        return app.execute(sql).fetchall()

    def change(what: str, actor: str = "human:ben") -> dict[str, Any]:
        return event({"participant": {"actor": actor, "tenant": "acme"}}, t=f"participant_{what}")

    with any_database.connect("app") as app:
        of_ada = event({"owner": {"actor": "human:ada"}, "mode": "shared"}, t="conversation_started")
        append(app, creation(of_ada, change("added"), change("added"), stream=TALK))
        append(app, creation(started(), stream=OTHER), creation(of_ada, change("added"), stream=ROOM))
        assert people(app) == [("", "human:ada"), ("acme", "human:ben")]
        append(app, item(3, change("removed", "human:eve"), change("removed"), stream=TALK))
        assert people(app) == [("", "human:ada")]
        append(app, item(5, change("added"), stream=TALK))
        fork = "SELECT outcome FROM minutebook.fork_v1(%s, 2, %s, %s::pg_catalog.json, 100, 99999)"
        assert one(app, fork, TALK, "conversation:copy", json.dumps(event({"kind": "forked_from"}))) == "appended"
        assert people(app) == [("", "human:ada"), ("acme", "human:ben")]


def test_events_of_those_types_mean_nothing_in_other_streams_and_in_copies(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(started(), envelope(), reply(1), stream=ROOM), creation(started(), stream=TALK))
        append(app, item(1, envelope(), stream=TALK))
        fork = "SELECT outcome FROM minutebook.fork_v1(%s, 2, %s, %s::pg_catalog.json, 100, 99999)"
        assert one(app, fork, TALK, OTHER, json.dumps(event({"kind": "forked_from"}))) == "appended"
        assert one(app, "SELECT count(*) FROM minutebook.turn_work") == 1
        assert one(app, "SELECT count(*) FROM minutebook.conversations") == 1
        malformed = event({"owner": 7}, t="conversation_started")
        append(app, creation(malformed, stream="conversation:c"))
        assert one(app, "SELECT count(*) FROM minutebook.conversations") == 1


def test_what_was_seen_only_grows_and_goes_with_the_reply(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(started(), stream=TALK), creation(stream=ROOM))
        talk = stream_id(app, TALK)
        for turn, offset in ((1, 5), (1, 3), (2, 9), (1, 7)):
            app.execute(SEEN, (talk, turn, offset))
        app.execute(SEEN, (stream_id(app, ROOM), 1, 1))
        app.execute(SEEN, (talk + 1000, 1, 1))
        seen = "SELECT array_agg(array[t.turn, t.seen] ORDER BY t.turn) FROM minutebook.turn_seen t"
        assert one(app, seen) == [[1, 7], [2, 9]]
        append(app, item(1, reply(1), stream=TALK))
        assert one(app, seen) == [[2, 9]]
        append(app, item(2, event({"turn": "x"}, t="reply_recorded"), event({}, t="reply_recorded"), stream=TALK))
        append(app, item(4, reply(3), stream=TALK))
        assert one(app, seen) is None


def test_law_25_deltas_of_another_epoch_are_not_stored(any_database: Any) -> None:
    with any_database.connect("app") as app:
        append(app, creation(started(), stream=TALK), creation(started(), stream=OTHER))
        talk, other = stream_id(app, TALK), stream_id(app, OTHER)
        assert put(app, delta(talk, 1, 0, "nobody has the lease")) == 0
        first = lease(app)
        app.execute("SELECT minutebook.lease_take_v1(%s, 'driver', 'x', 15)", (OTHER,))
        rows = (delta(talk, first, 0, "mine"), delta(talk, first + 1, 4, "forged"), delta(other, 1, 0, "of a driver"))
        assert put(app, *rows) == 1
        second = lease(app)
        assert put(app, delta(talk, first, 4, "displaced")) == 0
        assert put(app, delta(talk, second, 0, "again", attempt=2)) == 1
        assert texts(app) == [(1, 1, 0, "mine"), (1, 2, 0, "again")]
        app.execute("SELECT minutebook.lease_drop_v1(%s, 'runner', 'r1', %s)", (TALK, second))
        assert put(app, delta(talk, second, 5, "dropped")) == 0
        third = lease(app)
        append(app, item(1, reply(1), stream=TALK, seal=True))
        assert put(app, delta(talk, third, 0, "after the end", turn=2)) == 0


def test_a_longer_delta_from_the_same_place_wins_and_old_ones_go(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation(started(), stream=TALK))
        talk, epoch = stream_id(app, TALK), lease(app)
        assert put(app, delta(talk, epoch, 0, ""), delta(talk, epoch, 0, "ab"), delta(talk, epoch, 2, "c")) == 2
        assert (
            put(app, delta(talk, epoch, 0, "a"), delta(talk, epoch, 2, "cd"), delta(talk, epoch, 0, "z", turn=2)) == 2
        )
        assert texts(app) == [(1, 1, 0, "ab"), (1, 1, 2, "cd"), (2, 1, 0, "z")]
        app.execute("SELECT minutebook.deltas_drop_v1(%s, 1)", (talk,))
        assert texts(app) == [(2, 1, 0, "z")]
        assert one(app, "SELECT minutebook.deltas_expire_v1()") == 0
        superuser.execute("UPDATE minutebook.deltas SET put_at = put_at - interval '15 minutes'")
        assert one(app, "SELECT minutebook.deltas_expire_v1()") == 1


def test_a_batch_of_deltas_is_one_wake_up_on_its_own_channel(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("app") as ear:
        ear.execute("LISTEN minutebook_deltas")
        names = [f"conversation:n{n}" for n in range(4)]
        append(app, *(creation(started(), stream=name) for name in names))
        ids = [stream_id(app, name) for name in names]
        epochs = [lease(app, name) for name in names]
        put(app, *(delta(id_, epoch, n, "x") for id_, epoch in zip(ids, epochs, strict=True) for n in range(3)))
        put(app, delta(ids[0], epochs[0] + 1, 9, "forged"))
        put(app, delta(ids[0], epochs[0], 9, "x"))
        heard = [notify.payload for notify in ear.notifies(timeout=5, stop_after=2)]
        assert sorted(map(int, heard[0].split(","))) == sorted(ids)
        assert heard[1] == str(ids[0])


@pytest.mark.parametrize("role", LOGIN_ROLES)
def test_nobody_writes_what_is_beside_conversations_by_hand(any_database: Any, role: str) -> None:
    with any_database.connect("app") as app:
        append(app, creation(started(), envelope(), stream=TALK))
        put(app, delta(stream_id(app, TALK), lease(app), 0, "x"))
    rows = {
        "turn_work": "(1, 9)",
        "conversations": "(1, 'acme', 'human:eve', '', now())",
        "turn_seen": "(1, 1, 1)",
        "deltas": "(1, 1, 1, 0, 'x', now())",
        "token_use": "('acme', 'human:eve', '', 'echo', now()::date, 0, 0)",
        "token_reservations": "('e', 'acme', 'human:eve', '', 'echo', now()::date, 0, 0)",
        "memories": "('acme', 's', 'k', 'x', 'w', '{}', 1, now())",
    }
    kept = ("deltas", "token_reservations") if role == "retention" else ()
    with any_database.connect("postgres") as connection:
        as_role(connection, role)
        for table, row in rows.items():
            for statement in (
                f"INSERT INTO minutebook.{table} VALUES {row}",
                f"UPDATE minutebook.{table} SET {'execution' if table == 'token_reservations' else 'actor'} = 'x'"
                if table in ("conversations", "token_use", "token_reservations")
                else f"UPDATE minutebook.{table} SET stream_id = 2",
                f"TRUNCATE minutebook.{table}",
                *([] if table in kept else [f"DELETE FROM minutebook.{table}"]),
            ):
                assert verdict(connection, statement) == "42501", statement
        for table in kept:
            assert verdict(connection, f"DELETE FROM minutebook.{table}") == "passed, rows: 0"
        if role not in ("app", "auditor"):
            for table in rows:
                assert verdict(connection, f"SELECT * FROM minutebook.{table}") == "42501", table
        if role != "app":
            memory = "memory_write_v1(1, 1, 'acme', 's', 'k', 'x', 'w', '{}')"
            for call in ("turn_work_done_v1(1, 9)", "turn_seen_v1(1, 1, 1)", "deltas_put_v1('[]')", memory):
                assert verdict(connection, f"SELECT minutebook.{call}") == "42501", call


def test_law_10_a_purge_takes_a_conversation_and_its_turns_whole(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(
            app,
            creation(started(), envelope(CANARY), stream=TALK, **key(CANARY, keyOperation="send_turn")),
            creation(started(), stream=OTHER),
            creation(event({"text": CANARY}, t="model_answered"), stream=TURN),
        )
        ids = {name: stream_id(app, name) for name in (TALK, OTHER, TURN)}
        for name in (TALK, OTHER):
            put(app, delta(ids[name], lease(app, name), 0, CANARY if name == TALK else "kept"))
            app.execute(SEEN, (ids[name], 1, 4))
        for execution in (TURN[5:], "other"):
            assert one(
                app, "SELECT minutebook.token_reserve_v1(%s, 'acme', 'human:ada', '', 'echo', 5, NULL)", execution
            )
        append(app, item(2, reply(0), stream=TALK, seal=True), item(1, event(), stream=TURN, seal=True))
        for name in (TALK, TURN):
            expire(superuser, name, days=90)
        with any_database.connect("retention") as retention:
            purged = [one(retention, "SELECT minutebook.purge_stream_v1(%s)", ids[name]) for name in ids]
        assert purged == [3, None, 2]
        assert found(superuser, CANARY) == []
        assert found(superuser, TURN[5:]) == []
        for table in ("deltas", "turn_seen", "conversations"):
            assert one(superuser, f"SELECT array_agg(t.stream_id) FROM minutebook.{table} t") == [ids[OTHER]], table
        assert one(superuser, "SELECT count(*) FROM minutebook.turn_work") == 0
        assert one(superuser, "SELECT array_agg(r.execution) FROM minutebook.token_reservations r") == ["other"]


def found(superuser: Any, text: str) -> list[str]:
    """Every table of the product that holds the text anywhere."""
    tables = [
        row[0]
        for row in superuser.execute(
            "SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname LIKE 'minutebook%' AND c.relkind IN ('r', 'p') ORDER BY 1"
        )
    ]
    assert "minutebook.deltas" in tables
    search = "SELECT EXISTS (SELECT FROM {} t WHERE strpos(t::text, %s) > 0)"
    return [table for table in tables if one(superuser, search.format(table), text)]


def test_keys_of_messages_stay_as_long_as_their_conversation(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        append(app, creation(started(), stream=TALK, **key("m", keyOperation="send_turn")))
        append(app, creation(stream=ROOM, **key("r")))
        superuser.execute("UPDATE minutebook.idempotency SET created_at = created_at - interval '400 days'")
        with any_database.connect("retention") as retention:
            assert verdict(retention, "DELETE FROM minutebook.idempotency") == "passed, rows: 1"
        assert one(superuser, "SELECT array_agg(k.key) FROM minutebook.idempotency k") == ["m"]
