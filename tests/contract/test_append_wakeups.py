"""B17: the wake-up carries stream ids and nothing else, once a batch, whatever the size of what was stored."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from append_helpers import append, creation, event, events, item, one, outcomes, stream_id

OTHER = "room:bbbbbbbb"
MAX_PAYLOAD_BYTES = 7900
"""Beyond this the wake-up says `*`: look at all. PostgreSQL itself refuses 8000."""


@pytest.fixture
def app(any_database: Any) -> Any:
    with any_database.connect("app") as connection:
        yield connection


@pytest.fixture
def listener(any_database: Any) -> Any:
    with any_database.connect("app") as connection:
        connection.execute("LISTEN minutebook")
        yield connection


def heard(listener: psycopg.Connection, app: psycopg.Connection) -> list[str]:
    """Every wake-up since the last call; a mark of our own ends the list."""
    app.execute("NOTIFY minutebook, 'mark'")
    payloads: list[str] = []
    for notification in listener.notifies(timeout=30):
        if notification.payload == "mark":
            return payloads
        payloads.append(notification.payload)
    raise AssertionError("the mark never came")


def test_one_wake_up_a_batch_with_the_ids_of_the_streams_that_moved(app: Any, listener: Any) -> None:
    append(app, creation(), creation(stream=OTHER), creation(stream="room:cccccccc"))
    first, second, third = (str(stream_id(app, f"room:{letter * 8}")) for letter in "abc")
    (payload,) = heard(listener, app)
    assert set(payload.split(",")) == {first, second, third}
    append(app, item(1, *events(3)), item(9, event(), stream=OTHER), item(1, stream="room:cccccccc"))
    assert heard(listener, app) == [first]
    append(app, item(4, event()), item(5, event()), item(1, event(), stream=OTHER))
    (payload,) = heard(listener, app)
    assert set(payload.split(",")) == {first, second}


def test_what_appends_nothing_and_what_rolls_back_wakes_nobody(app: Any, listener: Any) -> None:
    append(app, creation())
    heard(listener, app)
    append(app, item(7, event()), item(1), item(0, event(), stream="room:unknown0"))
    append(app, item(1, event()), notify=False)
    app.autocommit = False
    append(app, item(2, event()))
    app.rollback()
    app.autocommit = True
    assert heard(listener, app) == []


def test_b17_messages_around_the_limit_are_stored_whole_and_wake_alike(app: Any, listener: Any) -> None:
    """7,900 to 8,100 bytes in steps of 1 in ASCII; the same in 4-byte characters; 60 KB; in one batch and alone."""
    texts = ["a" * size for size in range(7900, 8101)]
    texts += ["\U0001d11e" * (size // 4) + "b" * (size % 4) for size in range(7900, 8101)]
    texts += ["c" * 60_000, "\U0001d11e" * 15_000, '\x01\x1f\u2028\\"' * 4000]
    append(app, creation())
    (expected,) = heard(listener, app)
    assert outcomes(append(app, item(1, *(event({"text": text}) for text in texts)))) == ["appended"]
    for n, text in enumerate((texts[0], texts[97], texts[300], texts[-1]), 1 + len(texts)):
        append(app, item(n, event({"text": text})))
    assert heard(listener, app) == [expected] * 5
    stored = app.execute("SELECT payload->>'text' FROM minutebook.events WHERE seq > 1 ORDER BY seq").fetchall()
    assert [text for (text,) in stored] == [*texts, texts[0], texts[97], texts[300], texts[-1]]


def test_b17_a_batch_of_too_many_streams_to_name_says_look_at_all(any_database: Any, app: Any, listener: Any) -> None:
    """Ids of 12 digits, so that 607 of them and their commas are 7,890 bytes, and 608 are 7,903."""
    with any_database.connect("postgres") as superuser:
        superuser.execute("ALTER SEQUENCE minutebook.streams_id_seq RESTART 100000000000")
    names = [f"room:n{n}" for n in range(608)]
    append(app, *(creation(stream=name) for name in names))
    assert heard(listener, app) == ["*"]
    append(app, *(item(1, event(), stream=name) for name in names[1:]))
    (payload,) = heard(listener, app)
    assert len(payload) == 607 * 13 - 1
    assert len(payload) <= MAX_PAYLOAD_BYTES
    assert set(payload.split(",")) == {str(100000000000 + n) for n in range(1, 608)}
    append(app, *(item(2, event(), stream=name) for name in names[1:]), item(1, event(), stream=names[0]))
    assert heard(listener, app) == ["*"]
    assert one(app, "SELECT count(*) FROM minutebook.events") == 608 * 2 + 607
