"""The inbox over a real socket: nothing lost or doubled however a client comes back, and nothing but what is theirs."""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from delivery_desk import PAYLOAD_KEY, Desk
from inboxes import acknowledge, at_desk, deliver, following, inbox, items, wish
from live_server import LiveServer, until
from minutebook.commands.deliveries.keeping import Keeping
from minutebook.domain.channels.messages import Address
from minutebook.infra.postgres.inbox import PostgresInbox
from talks import ask, say, start

CONFIG = f"""
[delivery]
payloadKey = "{base64.b64encode(PAYLOAD_KEY).decode()}"
[clearance]
groups = {{ "sec" = ["secret"] }}
"""

_names = itertools.count(1)


@pytest.fixture(scope="module")
def boxes(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server whose payloads at rest are encrypted."""
    with LiveServer(new_data_dir(), config=CONFIG) as running:
        yield running
        running.assert_no_token_in_logs()


class Person:
    """Somebody new, with a conversation that has one turn."""

    def __init__(self, server: LiveServer) -> None:
        self.name = f"pia{next(_names)}"
        self.who = f"human:{self.name}"
        self.client = server.member(self.name)
        self.talk = start(self.client)
        ask(self.client, self.talk, "hello")


@pytest.fixture
def pia(boxes: LiveServer) -> Person:
    return Person(boxes)


def receipts(server: LiveServer, delivery_id: str) -> list[str]:
    with server.sql() as connection:
        rows = connection.execute(
            "SELECT e.payload ->> 'state' FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s AND e.type = 'receipt_noted' ORDER BY e.seq",
            (f"delivery:{delivery_id}",),
        ).fetchall()
    return [row[0] for row in rows]


def test_what_is_delivered_lies_in_the_inbox(boxes: LiveServer, pia: Person) -> None:
    (first,) = deliver(boxes, wish(pia.talk, 1, "hello", "echo: hello \u2028 <b>\n", to=pia.who))
    (second,) = deliver(boxes, wish(pia.talk, 1, "canary-9d1c", to=pia.who))
    found = inbox(pia.client)
    assert "nextCursor" not in found
    rows = found["items"]
    assert [(row["deliveryId"], row["part"], row.get("echo"), row["text"]) for row in rows] == [
        (first, 1, True, "hello"),
        (first, 2, None, "echo: hello \u2028 <b>\n"),
        (second, 1, None, "canary-9d1c"),
    ]
    assert {(row["conversation"], row["turn"], row["observed"]) for row in rows} == {(pia.talk, 1, False)}
    cursors = [int(row["cursor"]) for row in rows]
    assert cursors == sorted(set(cursors))
    page = inbox(pia.client, limit=2)
    assert page == {"items": rows[:2], "nextCursor": rows[1]["cursor"]}
    assert inbox(pia.client, limit=2, cursor=page["nextCursor"])["items"] == rows[2:]
    with boxes.sql() as connection:
        stored = connection.execute("SELECT count(*) FROM minutebook.inbox_items i WHERE i::text LIKE '%canary%'")
        assert stored.fetchone() == (0,), "encrypted as other payloads are"
        plain = connection.execute(
            "SELECT count(*) FROM minutebook.inbox_items i WHERE encode(i.body, 'escape') LIKE '%canary%'"
        )
        assert plain.fetchone() == (0,)


def test_nobody_elses_inbox_is_seen(boxes: LiveServer, pia: Person) -> None:
    (id_,) = deliver(boxes, wish(pia.talk, 1, "for her", to=pia.who))
    others = [
        boxes.member("bob"),
        boxes.member(pia.name, tenant="elsewhere"),
        boxes.client("human:oscar", "agents-operator", "agents-admin"),
    ]
    for other in others:
        assert inbox(other)["items"] == []
        assert acknowledge(other, [id_], [id_]) == 0
    assert receipts(boxes, id_) == []
    acting = boxes.client(pia.who, "agents-member", act="system:desk")
    assert acting.get("/v1/inbox").status_code == 403
    strange = Person(boxes)
    deliver(boxes, wish(pia.talk, 1, "of her conversation", to=strange.who))
    assert inbox(strange.client)["items"] == [], "who has no part in the conversation sees nothing of it"


def test_a_stream_goes_on_from_any_place_and_hears_at_once(boxes: LiveServer, pia: Person) -> None:
    deliver(boxes, *(wish(pia.talk, 1, f"early {n}", to=pia.who) for n in range(3)))
    with following(pia.client) as stream:
        early = items(stream, 3)
        deliver(boxes, *(wish(pia.talk, 1, f"late {n}", to=pia.who) for n in range(3)))
        late = items(stream, 3)
    frames = [*early, *late]
    assert [frame.event for frame in frames] == ["delivery"] * 6
    assert [frame.id for frame in frames] == [frame.json["cursor"] for frame in frames]
    assert [frame.json["text"] for frame in frames] == [f"{when} {n}" for when in ("early", "late") for n in range(3)]
    assert [frame.json for frame in frames] == inbox(pia.client)["items"]
    for place, frame in enumerate(frames[:-1]):
        with following(pia.client, frame.id, cursor="0") as stream:
            assert items(stream, 5 - place) == frames[place + 1 :]


def test_two_who_put_at_once_are_both_heard_in_order(boxes: LiveServer, pia: Person) -> None:
    """A place is given in the order of the commits: who resumes from the newest one misses none below it."""
    with following(pia.client) as stream:
        threads = [
            threading.Thread(
                target=deliver, args=(boxes, *(wish(pia.talk, 1, f"{who}-{n}", to=pia.who) for n in range(10)))
            )
            for who in range(3)
        ]
        for thread in threads:
            thread.start()
        found = items(stream, 30)
        for thread in threads:
            thread.join()
    assert [int(str(frame.id)) for frame in found] == sorted({int(str(frame.id)) for frame in found})
    assert {frame.json["text"] for frame in found} == {f"{who}-{n}" for who in range(3) for n in range(10)}


def test_a_cursor_beyond_the_end_is_reset_and_one_of_another_form_refused(boxes: LiveServer, pia: Person) -> None:
    deliver(boxes, wish(pia.talk, 1, "one", to=pia.who))
    (row,) = inbox(pia.client)["items"]
    with following(pia.client, str(int(row["cursor"]) + 1000)) as stream:
        (reset,) = items(stream, 1)
        assert (reset.event, reset.id, reset.json) == ("reset", None, {"cursor": row["cursor"]})
        deliver(boxes, wish(pia.talk, 1, "two", to=pia.who))
        assert items(stream, 1)[0].json["text"] == "two"
    for bad in ("01", "-1", "1.2", "x", ""):
        answer = pia.client.get("/v1/inbox/stream", headers={"last-event-id": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), bad
        answer = pia.client.get("/v1/inbox", params={"cursor": bad})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), bad


def test_who_reads_slowly_gets_all_of_it(boxes: LiveServer, pia: Person) -> None:
    text = "x" * 20_000
    with following(pia.client) as stream:
        deliver(boxes, *(wish(pia.talk, 1, f"{n} {text}", to=pia.who) for n in range(120)))
        assert boxes.metric("inbox_streams") == 1
        found = items(stream, 120)
    assert [frame.json["text"].split()[0] for frame in found] == [str(n) for n in range(120)]
    until(lambda: boxes.metric("inbox_streams") == 0, 10, "the end of the stream")


def test_what_arrived_and_was_read_goes_into_the_delivery_forward_only(boxes: LiveServer, pia: Person) -> None:
    one, two = deliver(
        boxes, wish(pia.talk, 1, "question", "answer", to=pia.who), wish(pia.talk, 1, "more", to=pia.who)
    )
    assert acknowledge(pia.client, [one]) == 1
    assert acknowledge(pia.client, [one]) == 0
    assert receipts(boxes, one) == ["delivered", "delivered"], "of both of its parts"
    assert [row["observed"] for row in inbox(pia.client)["items"]] == [False, False, False]
    assert acknowledge(pia.client, [], [one, two, "no-such-delivery"]) == 2
    assert receipts(boxes, one) == ["delivered", "delivered", "observed", "observed"]
    assert receipts(boxes, two) == ["observed"]
    assert acknowledge(pia.client, [one, two], [one]) == 0, "what was read has arrived"
    assert receipts(boxes, two) == ["observed"]
    assert [row["observed"] for row in inbox(pia.client)["items"]] == [True, True, True]
    for body in ({"delivered": ["x"] * 101}, {"seen": []}, {"delivered": [1]}, {"delivered": [""]}):
        assert pia.client.post("/v1/inbox/ack", json=body).status_code == 422


def test_what_is_purged_goes_and_viewers_are_told(boxes: LiveServer, pia: Person) -> None:
    one, two = deliver(boxes, *(wish(pia.talk, 1, text, to=pia.who) for text in ("canary-77e2", "stays")))
    operator = boxes.client("human:oscar", "agents-operator")
    with following(pia.client) as stream:
        first = items(stream, 2)
        purged = operator.post(f"/v1/ops/deliveries/{one}/purge", json={"reason": "wrong_person"})
        assert purged.status_code == 202, purged.text
        (revoked,) = items(stream, 1)
        assert (revoked.event, revoked.json["deliveryId"]) == ("revoked", one)
        assert revoked.id == revoked.json["cursor"] > str(first[-1].id)
    assert [row["deliveryId"] for row in inbox(pia.client)["items"]] == [two]
    with following(pia.client, first[0].id) as stream:
        assert [frame.event for frame in items(stream, 2)] == ["delivery", "revoked"], "who was away is told as well"
    assert acknowledge(pia.client, [one], [one]) == 0

    async def again(_: Desk, rows: PostgresInbox) -> tuple[bool, str]:
        try:
            await rows.put("default", "inbox", Address("inbox", pia.who), {"kind": "reply", "text": "x"}, f"{one}.1")
        except Exception as error:
            return await rows.has("default", f"{one}.1"), getattr(error, "code", "")
        return False, ""

    assert at_desk(boxes, again) == (True, "already_ended")


def test_what_is_purged_after_its_stream_was_sealed_goes_too(boxes: LiveServer, pia: Person) -> None:
    one, two = deliver(boxes, *(wish(pia.talk, 1, text, to=pia.who) for text in ("canary-88f3", "stays")))
    with boxes.sql() as connection:
        connection.execute("UPDATE minutebook.deliveries SET seal_at = clock_timestamp() WHERE id = %s", (one,))

    async def keep(desk: Desk, _: PostgresInbox) -> int:
        return (await Keeping(desk.board, desk.payloads, desk.store, desk.bulk).run()).sealed

    assert at_desk(boxes, keep) == 1
    operator = boxes.client("human:oscar", "agents-operator")
    with following(pia.client) as stream:
        items(stream, 2)
        purged = operator.post(f"/v1/ops/deliveries/{one}/purge", json={"reason": "wrong_person"})
        assert purged.status_code == 202, purged.text
        assert [row["deliveryId"] for row in inbox(pia.client)["items"]] == [two]
        (revoked,) = items(stream, 1)
        assert (revoked.event, revoked.json["deliveryId"]) == ("revoked", one)
    with boxes.sql() as connection:
        kept = connection.execute(
            "SELECT i.body, i.wrapped FROM minutebook.inbox_items i WHERE i.delivery_id = %s", (one,)
        ).fetchall()
    assert kept == [(None, None)]


def test_erased_words_go_from_the_inbox(boxes: LiveServer, pia: Person) -> None:
    deliver(boxes, wish(pia.talk, 1, "erase me", to=pia.who), wish(pia.talk, 2, "stays", to=pia.who))
    with boxes.sql() as connection:
        seq = connection.execute(
            "SELECT e.seq FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s AND e.type = 'reply_recorded'",
            (f"conversation:{pia.talk}",),
        ).fetchone()
        assert seq is not None
        with following(pia.client) as stream:
            assert [frame.json["text"] for frame in items(stream, 2)] == ["erase me", "stays"]
            named = connection.execute(
                "SELECT outcome FROM minutebook.name_words_erasure_v1(%s, %s, %s, 'asked', '{}', '{}', false)",
                (f"conversation:{pia.talk}", seq[0], "01J00000000000000000000000"),
            ).fetchone()
            assert named == ("named",)
            assert items(stream, 1)[0].event == "revoked"
    assert [row["text"] for row in inbox(pia.client)["items"]] == ["stays"]


def test_erased_words_wait_for_no_send_and_come_into_no_inbox(boxes: LiveServer, pia: Person) -> None:
    wished = wish(pia.talk, 1, "canary-5c0e", to=pia.who)

    async def plan(desk: Desk, _: PostgresInbox) -> str:
        return (await desk.planner.plan([wished]))[0]

    async def put(_: Desk, rows: PostgresInbox) -> str:
        try:
            await rows.put("default", "inbox", Address("inbox", pia.who), {"kind": "reply", "text": "x"}, f"{one}.1")
        except Exception as error:
            return getattr(error, "code", "")
        return "stored"

    one = at_desk(boxes, plan)
    stored = (
        "SELECT d.has_payload, (SELECT count(*) FROM minutebook.delivery_payloads p WHERE p.delivery_id = d.id)"
        " FROM minutebook.deliveries d WHERE d.id = %s"
    )
    with boxes.sql() as connection:
        assert connection.execute(stored, (one,)).fetchone() == (True, 1)
        seq = connection.execute(
            "SELECT e.seq FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s AND e.type = 'reply_recorded'",
            (f"conversation:{pia.talk}",),
        ).fetchone()
        assert seq is not None
        connection.execute(
            "SELECT outcome FROM minutebook.name_words_erasure_v1(%s, %s, %s, 'asked', '{}', '{}', false)",
            (f"conversation:{pia.talk}", seq[0], "01J00000000000000000000001"),
        )
        assert connection.execute(stored, (one,)).fetchone() == (False, 0)
    assert at_desk(boxes, put) == "already_ended", "somebody had read the words before they were erased"
    assert inbox(pia.client)["items"] == []


def test_who_is_taken_out_of_the_conversation_sees_its_items_no_more(boxes: LiveServer, pia: Person) -> None:
    guest = Person(boxes)
    talk = start(pia.client, mode="shared")
    pia.client.put(f"/v1/conversations/{talk}/participants/{guest.who}").raise_for_status()
    ask(guest.client, talk, "mine")
    say(pia.client, talk, "hers", classes=["secret"])
    until(lambda: pia.client.get(f"/v1/conversations/{talk}").json()["turns"] == 2, 10, "the second turn")
    until(lambda: "running" not in pia.client.get(f"/v1/conversations/{talk}").json(), 10, "its end")
    deliver(boxes, wish(talk, 1, "own", to=guest.who), wish(talk, 2, "of a class", to=guest.who))
    assert [row["text"] for row in inbox(guest.client)["items"]] == ["own"], (
        "what they are not cleared for is not shown"
    )
    cleared = boxes.member(guest.name)
    assert [row["text"] for row in inbox(cleared)["items"]] == ["own"]
    trusted = boxes.client(guest.who, "agents-member", "sec")
    assert [row["text"] for row in inbox(trusted)["items"]] == ["own", "of a class"]
    with following(guest.client) as stream:
        (frame,) = items(stream, 1)
        pia.client.delete(f"/v1/conversations/{talk}/participants/{guest.who}").raise_for_status()
        deliver(boxes, wish(talk, 1, "too late", to=guest.who), wish(guest.talk, 1, "elsewhere", to=guest.who))
        assert items(stream, 1)[0].json["text"] == "elsewhere"
    assert [row["text"] for row in inbox(guest.client)["items"]] == ["elsewhere"]
    assert acknowledge(guest.client, [frame.json["deliveryId"]]) == 0


def test_what_is_over_is_deleted(boxes: LiveServer, pia: Person) -> None:
    deliver(boxes, wish(pia.talk, 1, "short", to=pia.who), ttl_s=0)
    deliver(boxes, wish(pia.talk, 1, "long", to=pia.who))
    assert [row["text"] for row in inbox(pia.client)["items"]] == ["long"]

    async def forget(_: Desk, rows: PostgresInbox) -> int:
        return await rows.forget()

    assert at_desk(boxes, forget) == 1
    assert at_desk(boxes, forget) == 0
    with boxes.sql() as connection:
        connection.execute("UPDATE minutebook.inbox_items SET expires_at = clock_timestamp()")
        connection.execute("UPDATE minutebook.inbox_heads SET used_at = used_at - interval '31 days'")
        before = inbox(pia.client)
        assert before["items"] == []
        head = connection.execute("SELECT last FROM minutebook.inbox_heads WHERE recipient = %s", (pia.who,)).fetchone()
        assert at_desk(boxes, forget) > 0
        assert connection.execute("SELECT count(*) FROM minutebook.inbox_heads").fetchone() == (0,)
    deliver(boxes, wish(pia.talk, 1, "new", to=pia.who))
    (row,) = inbox(pia.client)["items"]
    assert head is not None
    assert int(row["cursor"]) > head[0], "no place is given twice"


def test_so_many_streams_of_one_inbox(boxes: LiveServer) -> None:
    client = Person(boxes).client
    opened = [client.send(client.build_request("GET", "/v1/inbox/stream"), stream=True) for _ in range(16)]
    assert {each.status_code for each in opened} == {200}
    refused = client.get("/v1/inbox/stream")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    for each in opened:
        each.close()
    until(lambda: boxes.metric("inbox_streams") == 0, 10, "all to be gone")
    with following(client):
        pass


def test_a_server_that_stops_tells_where_to_go_on(own_data_dir: Path) -> None:
    with LiveServer(own_data_dir, config=CONFIG) as server:
        who = Person(server)
        deliver(server, wish(who.talk, 1, "one", to=who.who))
        with following(who.client) as stream:
            (frame,) = items(stream, 1)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            (last,) = items(stream, 1)
            assert (last.event, last.json) == ("reconnect", {"cursor": frame.id, "reason": "server_stopping"})
            stopping.join()
