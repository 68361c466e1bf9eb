"""Law 26: a budget is a ceiling. The reservation is atomic and comes first; it is settled once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from append_helpers import Background, one, refused, until_blocked

RESERVE = "SELECT minutebook.token_reserve_v1(%s, 'acme', 'human:ada', '', %s, %s, %s)"
SETTLE = "SELECT minutebook.token_settle_v1(%s, %s)"
USE = "SELECT array[u.used, u.reserved] FROM minutebook.token_use u WHERE u.agent = %s"


def reserve(connection: Any, execution: str, tokens: int, ceiling: int | None = 100, agent: str = "echo") -> bool:
    """Whether the reservation was taken."""
    return one(connection, RESERVE, execution, agent, tokens, ceiling)


def use(connection: Any, agent: str = "echo") -> list[int]:
    """Used and reserved of today."""
    return one(connection, USE, agent)


def test_law_26_reservations_add_up_to_the_ceiling_and_are_settled_once(any_database: Any) -> None:
    with any_database.connect("app") as app:
        assert not reserve(app, "over", 101)
        assert one(app, "SELECT count(*) FROM minutebook.token_use") == 0
        assert reserve(app, "a", 60)
        assert not reserve(app, "b", 41)
        assert reserve(app, "b", 40)
        assert reserve(app, "a", 60), "the same execution again"
        assert use(app) == [0, 100]
        assert one(app, SETTLE, "a", 10) is True
        assert one(app, SETTLE, "a", 99) is False
        assert use(app) == [10, 40]
        assert reserve(app, "a", 60), "settled, and still the same execution"
        assert not reserve(app, "c", 51)
        assert reserve(app, "c", 50)
        assert one(app, SETTLE, "c", 500) is True, "a provider may take more than was asked for"
        assert use(app) == [510, 40]
        assert not reserve(app, "d", 0)
        assert reserve(app, "d", 5, ceiling=None), "no ceiling"
        assert reserve(app, "e", 100, agent="other")
        assert one(app, SETTLE, "unknown", 1) is False
        for statement in (RESERVE, SETTLE):
            for tokens in (-1, None):
                with refused("22023"):
                    one(app, statement, *(("f", "echo", tokens, 9) if statement == RESERVE else ("d", tokens)))


def test_law_26_two_that_reserve_at_once_wait_for_each_other(any_database: Any) -> None:
    with (
        any_database.connect("app") as first,
        any_database.connect("app") as second,
        any_database.connect("postgres") as watch,
    ):
        first.autocommit = False
        assert reserve(first, "a", 60)
        other = Background(lambda: reserve(second, "b", 60))
        until_blocked(watch, second.info.backend_pid)
        first.commit()
        assert other.result() is False
        assert reserve(first, "c", 10)
        same = Background(lambda: reserve(second, "c", 10))
        until_blocked(watch, second.info.backend_pid)
        first.rollback()
        assert same.result() is True
        assert use(second) == [0, 70]


def test_law_26_many_at_once_never_pass_the_ceiling(any_database: Any) -> None:
    def worker(number: int) -> int:
        taken = 0
        with any_database.connect("app") as app:
            for turn in range(25):
                execution = f"{number}-{turn}"
                if reserve(app, execution, 7, 600):
                    taken += 7
                    assert sum(use(app)) <= 600
                    if turn % 2:
                        assert one(app, SETTLE, execution, 7)
        return taken

    with ThreadPoolExecutor(6) as pool:
        total = sum(pool.map(worker, range(6)))
    with any_database.connect("app") as app:
        assert sum(use(app)) == total == 595


def test_days_long_past_go(any_database: Any) -> None:
    with any_database.connect("app") as app, any_database.connect("postgres") as superuser:
        assert reserve(app, "a", 60)
        move(superuser, 7)
        assert one(app, "SELECT minutebook.tokens_expire_v1()") == 0
        assert reserve(app, "b", 100), "another day"
        move(superuser, 1)
        assert one(app, "SELECT minutebook.tokens_expire_v1()") == 2
        assert one(app, SETTLE, "a", 1) is False
        assert use(app) == [0, 100]


def move(superuser: psycopg.Connection, days: int) -> None:
    """So many days pass."""
    superuser.execute("UPDATE minutebook.token_use SET day = day - %s", (days,))
    superuser.execute("UPDATE minutebook.token_reservations SET day = day - %s", (days,))
