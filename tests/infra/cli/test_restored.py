"""`minutebook restored`: after a restore the log is another one, and what waited for the audit feed waits no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from append_helpers import append, creation, events, one, refused
from verbs import Done, at, verb

FAR = "9223372036854775807"
"""A transaction id of a cluster that had many more transactions than this one ever will."""


def test_the_log_gets_a_new_id_and_the_feed_goes_on(database: Any, on_database: Callable[..., Done]) -> None:
    with database.connect("postgres") as owner, database.connect("app") as app:
        owner.execute("SELECT minutebook.feed_switch_v1(true)")
        append(app, creation(*events(3)))
        owner.execute("UPDATE minutebook.feed_queue SET txid = %s::xid8", (FAR,))
        assert one(app, "SELECT minutebook.feed_advance_v1()") == 0  # as after a restore: it would wait for ever
        before = one(owner, "SELECT log_id FROM minutebook.log")

        dry = on_database("restored", "--dry-run", "--json")
        assert (dry.code, dry.json) == (0, {"before": before, "after": None, "queued": 1})
        assert one(owner, "SELECT log_id FROM minutebook.log") == before

        done = on_database("restored", "--json")
        assert done.code == 0
        assert done.json["before"] == before
        after = one(owner, "SELECT log_id FROM minutebook.log")
        assert done.json["after"] == after != before
        assert len(after) == 32
        assert one(app, "SELECT minutebook.feed_advance_v1()") == 3
        append(app, creation(*events(2), stream="room:bbbbbbbb"))
        assert one(app, "SELECT minutebook.feed_advance_v1()") == 5
    assert on_database("verify").code == 0
    assert "start the servers now" in on_database("restored").out


def test_the_owner_alone_may_do_it(any_database: Any, tmp_path: Path) -> None:
    for role in ("app", "projector", "retention", "eraser", "auditor"):
        with any_database.connect(role) as connection, refused("42501"):
            connection.execute("SELECT minutebook.restored_v1()")
        env = at(any_database, tmp_path) | {"MINUTEBOOK_DATABASE_OWNER_URL": any_database.url(role)}
        done = verb("restored", env=env)
        assert (done.code, "Only the owner of the log may do this" in done.said) == (3, True), done


def test_a_database_that_was_not_migrated_is_said_so(database: Any, tmp_path: Path) -> None:
    env = at(database, tmp_path) | {"MINUTEBOOK_DATABASE_OWNER_URL": database.server.url("postgres", "postgres")}
    done = verb("restored", env=env)
    assert (done.code, "run `minutebook migrate` first" in done.said) == (3, True), done
