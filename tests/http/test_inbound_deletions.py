"""Edits and deletions on the platforms, over a real socket: an edit is never taken, a deletion counts in any order."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from inbound_scenes import OTHER, Desk, fresh, inbound_desk, number, slack_signature
from live_server import until
from outside import status
from verbs import verb

ORDERS = list(itertools.permutations(("m", "e1", "e2", "d")))
PLAIN = list(itertools.permutations(("m", "e1", "e2")))


SIGNING = "another-slack-signing-secret"

EVERYBODY = f"""
[channels.all]
kind = "slack"
tenant = "acme"
token = "xoxb-1"
inboundSecret = "{SIGNING}"
baseUrl = "{{url}}"
allowLoopback = true
allowlist = "open"
agent = "echo"
"""


@pytest.fixture(scope="module")
def desk(new_data_dir: Callable[[], Path]) -> Iterator[Desk]:
    with inbound_desk(new_data_dir(), more=EVERYBODY) as made:
        yield made
        assert "Traceback" not in made.server.logs()


WAITING = """
SELECT FROM minutebook.events e
WHERE e.type = 'envelope_received' AND e.payload ->> 'kind' = 'user' AND NOT EXISTS (
    SELECT FROM minutebook.events u WHERE u.stream_id = e.stream_id AND u.type = 'user_recorded'
    AND u.payload ->> 'id' = e.payload ->> 'id' AND (u.payload ->> 'status' = 'rejected' OR EXISTS (
        SELECT FROM minutebook.events r WHERE r.stream_id = u.stream_id AND r.type = 'reply_recorded'
        AND r.payload -> 'turn' = u.payload -> 'turn')))
"""
"""Messages without an end."""


class Message:
    """One message in a Slack chat of its own, its two edits and its deletion. texts: what each says."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.user, self.chat, self.ts = f"U{number()}", f"D{number()}", f"{number()}.1"
        self.texts = {name: fresh(f"canary {name} ") for name in ("m", "e1", "e2")}

    def come(self, name: str) -> httpx.Response:
        """What the platform says of it: m, e1, e2 or d."""
        if name == "m":
            return self.event(user=self.user, text=self.texts["m"], ts=self.ts)
        was = {"type": "message", "user": self.user, "text": self.texts["m"], "ts": self.ts}
        if name == "d":
            return self.event(subtype="message_deleted", hidden=True, deleted_ts=self.ts, previous_message=was)
        now = {**was, "text": self.texts[name], "edited": {"user": self.user, "ts": f"{number()}.2"}}
        return self.event(subtype="message_changed", hidden=True, message=now, previous_message=was)

    def event(self, **fields: Any) -> httpx.Response:
        """Something that Slack tells of the chat."""
        event = {"type": "message", "ts": f"{number()}.9", "channel": self.chat, "channel_type": "im", **fields}
        document = {"type": "event_callback", "team_id": "T1", "event_id": fresh("Ev"), "event": event}
        body = json.dumps(document).encode()
        answer = self.desk.post("all", body, slack_signature(body, secret=SIGNING))
        assert (answer.status_code, answer.json()) == (200, {}), answer.text
        return answer


def decided(desk: Desk, channel: str, outcome: str, conversation: str | None = None) -> list[dict[str, Any]]:
    rows = desk.rows(
        "SELECT payload FROM minutebook.events WHERE type = 'inbound_decided' AND payload ->> 'channel' = %s"
        " AND payload ->> 'outcome' = %s ORDER BY ts",
        channel,
        outcome,
    )
    return [row[0] for row in rows if conversation is None or row[0].get("conversation") == conversation]


def erase(desk: Desk, *more: str) -> dict[str, Any]:
    done = verb("erase", "--deleted", "--json", "--data-dir", desk.server.data_dir, *more)
    assert done.code == 0, done.said
    return json.loads(done.out.splitlines()[-1])


def wishes(desk: Desk) -> int:
    return desk.rows("SELECT count(*) FROM minutebook.inbound_deletions")[0][0]


def places_of(desk: Desk, *words: str) -> list[str]:
    """Tables that have one of these texts in any row, in whatever column, payloads among them."""
    tables = desk.rows(
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND n.nspname LIKE 'minutebook%%' ORDER BY 1"
    )
    assert len(tables) > 40
    found: list[str] = []
    for (table,) in tables:
        query = f"SELECT count(*) FROM {table} t WHERE t::text LIKE ANY (%s)"
        if desk.rows(query, [f"%{each}%" for each in words])[0][0]:
            found.append(table)
    return found


def over(desk: Desk) -> None:
    """Return once no turn runs or waits, and none is to be answered."""
    until(lambda: not desk.rows(WAITING), 30, "the end of all turns")
    until(lambda: not desk.rows("SELECT FROM minutebook.answers"), 30, "the answers")
    until(lambda: not desk.rows("SELECT FROM minutebook.deliveries WHERE ended_at IS NULL"), 30, "the deliveries")


def test_b74_every_order_of_a_message_its_edits_and_its_deletion_ends_without_a_word(desk: Desk) -> None:
    """Whatever comes twice, and whatever comes first; 24 chats at once."""
    messages = [Message(desk) for _ in ORDERS]
    for step in range(4):
        for message, order in zip(messages, ORDERS, strict=True):
            message.come(order[step])
            message.come(order[step])
    over(desk)
    words = [text for each in messages for text in each.texts.values()]
    assert not places_of(desk, *[each.texts[name] for each in messages for name in ("e1", "e2")])
    first = [each for each, order in zip(messages, ORDERS, strict=True) if order.index("d") < order.index("m")]
    assert not places_of(desk, *[each.texts["m"] for each in first]), "it was deleted before it came"
    assert [each["reason"] for each in decided(desk, "all", "ignored")].count("deleted") >= len(first) == 12
    assert wishes(desk) == 12
    spoken = decided(desk, "all", "accepted")
    conversations = [each["conversation"] for each in spoken if "conversation" in each]
    would = erase(desk, "--dry-run")
    assert places_of(desk, *words)
    assert wishes(desk) == 12
    done = erase(desk)
    assert len(done["streams"]) == len(would["streams"]) > 0
    assert (done["kept"], done["fulfilled"], wishes(desk)) == ([], 12, 0)
    assert not places_of(desk, *words)
    assert erase(desk) == {"isDryRun": False, "streams": [], "kept": [], "fulfilled": 0}
    for message in messages:
        for name in ("m", "e1", "e2", "d"):
            message.come(name)
    over(desk)
    assert not places_of(desk, *words), "nothing brings it back"
    for conversation in set(conversations):
        done = verb("verify", f"conversation:{conversation}", "--data-dir", desk.server.data_dir)
        assert done.code == 0, done.said


def test_b74_without_a_deletion_every_order_ends_in_one_turn_of_the_first_text(desk: Desk) -> None:
    messages = [Message(desk) for _ in PLAIN]
    for step in range(3):
        for message, order in zip(messages, PLAIN, strict=True):
            message.come(order[step])
            message.come(order[step])
    over(desk)
    assert not places_of(desk, *[each.texts[name] for each in messages for name in ("e1", "e2")])
    for message in messages:
        ((count,),) = desk.rows(
            "SELECT count(*) FROM minutebook.events WHERE type = 'user_recorded' AND payload ->> 'text' = %s",
            message.texts["m"],
        )
        assert count == 1
        desk.platforms.told(message.chat, message.texts["m"])


@pytest.mark.parametrize("how", ["tombstone", "unnamed"])
def test_b74_a_message_with_answers_is_deleted_too_and_one_whose_author_slack_does_not_name(
    desk: Desk, how: str
) -> None:
    for is_first in (True, False):
        message = Message(desk)
        if not is_first:
            message.come("m")
        if how == "tombstone":
            was = {"user": message.user, "text": message.texts["m"], "ts": message.ts}
            now = {"subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted.", "ts": message.ts}
            message.event(subtype="message_changed", hidden=True, message=now, previous_message=was)
        else:
            message.event(subtype="message_deleted", deleted_ts=message.ts)
        message.come("m")
        over(desk)
        erase(desk)
        assert not places_of(desk, *message.texts.values())


def test_b74_what_is_deleted_while_its_turn_runs_stops_and_is_not_answered(desk: Desk) -> None:
    sender, gone, waiting = fresh("deleter"), fresh(), fresh()
    first = desk.hook("!hang", sender=sender, messageId=gone).json()
    conversation = desk.decided(first["id"])["conversation"]
    until(lambda: reply(desk, conversation, "user_recorded"), 20, "the turn")
    desk.hook(f"behind {sender}", sender=sender, messageId=waiting)
    kept = desk.hook(f"stays {sender}", sender=sender).json()
    for name in (waiting, gone):
        answer = desk.hook(None, sender=sender, deletes=name)
        assert (answer.status_code, answer.json()["outcome"]) == (202, "accepted"), answer.text
    desk.platforms.told(sender, f"stays {sender}")
    over(desk)
    assert len(desk.platforms.texts(sender)) == 1, "the deleted ones have no answer"
    assert [each["status"] for each in reply(desk, conversation, "reply_recorded")][:2] == ["interrupted"] * 2
    assert erase(desk)["fulfilled"] == 2
    assert not places_of(desk, f"behind {sender}")
    assert places_of(desk, f"stays {sender}")
    assert desk.decided(kept["id"])["outcome"] == "accepted"


def reply(desk: Desk, conversation: str, type_: str) -> list[dict[str, Any]]:
    rows = desk.rows(
        "SELECT e.payload FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        " WHERE s.name = %s AND e.type = %s ORDER BY e.seq",
        f"conversation:{conversation}",
        type_,
    )
    return [row[0] for row in rows]


def test_b74_what_is_deleted_while_its_answer_waits_is_not_sent(desk: Desk) -> None:
    """Its recipient's server is away until the deletion is there."""
    sender, gone = fresh("late"), fresh()
    text = f"an answer of {sender}"
    desk.platforms.troubles = lambda request: text.encode() in request.body
    desk.platforms.mischief.append(status(503, retry_after="60"))
    told = desk.hook(text, sender=sender, messageId=gone).json()
    query = "SELECT state, reason FROM minutebook.deliveries WHERE correlation_id = %s"
    until(lambda: [row[0] for row in desk.rows(query, told["id"])] == ["waiting"], 20, "a try")
    desk.hook(None, sender=sender, deletes=gone)
    assert desk.rows(query, told["id"]) == [("cancelled", "redaction")], "at once, not when it would be sent"
    assert desk.platforms.texts(sender) == [f"echo: {text}"], "one try, from before"
    assert erase(desk)["fulfilled"] == 1
    assert not places_of(desk, text)


@pytest.mark.parametrize("is_first", [True, False])
def test_b74_a_deletion_by_somebody_else_or_elsewhere_does_nothing(desk: Desk, is_first: bool) -> None:
    sender, message = fresh("own"), fresh()
    text = f"still here {message}"

    def delete() -> None:
        assert desk.hook(None, sender="stranger", deletes=message).json()["outcome"] == "accepted"
        elsewhere = desk.hook(None, sender=sender, name="other", secret=OTHER, deletes=message)
        assert elsewhere.json()["outcome"] == "accepted", "though nobody there may speak"

    if is_first:
        delete()
    assert desk.hook(text, sender=sender, messageId=message).json()["outcome"] == "accepted"
    if not is_first:
        delete()
    desk.platforms.told(sender, text)
    over(desk)
    assert (wishes(desk), erase(desk)["fulfilled"]) == (0, 0)
    assert places_of(desk, text)


def test_b74_doubles_of_a_deletion_do_nothing_more(desk: Desk) -> None:
    sender, message = fresh("twice"), fresh()
    desk.hook(f"text {message}", sender=sender, messageId=message)
    deletion = {"from": sender, "messageId": fresh(), "deletes": message}
    first = desk.signed(deletion).json()
    over(desk)
    before = desk.rows("SELECT count(*) FROM minutebook.events")
    assert desk.signed(deletion).json() == {**first, "duplicate": True}
    assert desk.rows("SELECT count(*) FROM minutebook.events") == before
    assert wishes(desk) == 1
    rows = desk.rows("SELECT id, conversation_id, message_id, tenant, channel FROM minutebook.inbound_deletions")
    assert erase(desk)["fulfilled"] == 1
    with desk.server.sql() as connection:  # as a kill leaves it between the erasure and the end of its wish
        connection.execute(
            "INSERT INTO minutebook.inbound_deletions (id, conversation_id, message_id, tenant, channel)"
            " VALUES (%s, %s, %s, %s, %s)",
            rows[0],
        )
    before = desk.rows("SELECT count(*) FROM minutebook.events")
    done = erase(desk)
    assert ({each["wasThere"] for each in done["streams"]}, done["fulfilled"]) == ({False}, 1)
    assert desk.rows("SELECT count(*) FROM minutebook.events") == before
    assert desk.signed({**deletion, "messageId": fresh()}).json()["outcome"] == "accepted"
    erase(desk)
    assert wishes(desk) == 0
    again = desk.hook(f"text {message}", sender=sender, messageId=message)
    assert (again.status_code, again.json()["duplicate"]) == (202, True)
    over(desk)
    assert not places_of(desk, f"text {message}")


def test_b74_a_background_turn_that_was_deleted_does_not_come_with_its_retry(desk: Desk) -> None:
    sender, message = fresh("background"), fresh()
    desk.hook(None, sender=sender, deletes=message)
    for _ in range(2):
        answer = desk.hook(f"text {message}", sender=sender, messageId=message, background=True).json()
        assert (answer["outcome"], "continuation" in answer) == ("ignored", False)
    over(desk)
    assert not places_of(desk, f"text {message}")


def test_b74_a_conversation_under_hold_keeps_the_wish_and_is_named(desk: Desk) -> None:
    sender, message = fresh("held"), fresh()
    told = desk.hook(f"text {message}", sender=sender, messageId=message).json()
    over(desk)
    name = f"conversation:{desk.decided(told['id'])['conversation']}"
    desk.hook(None, sender=sender, deletes=message)
    with desk.server.sql() as connection:
        connection.execute("UPDATE minutebook.streams SET held = true WHERE name = %s", (name,))
    (kept,) = erase(desk)["kept"]
    assert "is under legal hold" in kept["why"]
    assert f"conversation:{kept['conversation']}" == name
    assert (wishes(desk), bool(places_of(desk, f"text {message}"))) == (1, True)
    with desk.server.sql() as connection:
        connection.execute("UPDATE minutebook.streams SET held = false WHERE name = %s", (name,))
    assert erase(desk)["fulfilled"] == 1
    assert not places_of(desk, f"text {message}")


def test_b74_a_deletion_is_checked_as_its_neighbours_are(desk: Desk) -> None:
    answer = desk.hook("and a text", deletes="m1")
    assert answer.status_code == 422, answer.text
    assert "$.deletes" in answer.text


def test_b74_no_answer_of_the_api_has_the_words(desk: Desk) -> None:
    """Of a person whose end is linked, and who asks in a conversation of their own."""
    sender, message = fresh("alice"), fresh()
    alice = desk.linked("alice", sender)
    talk = alice.post("/v1/conversations", json={"agent": "echo"}).json()["id"]
    text = f"canary {message}"
    told = desk.hook(text, sender=sender, messageId=message, conversation=talk, background=True).json()
    over(desk)
    paths = (
        f"/v1/conversations/{talk}/history",
        f"/v1/conversations/{talk}",
        told["continuation"]["url"],
        "/v1/conversations",
    )
    assert text in alice.get(paths[0]).text
    desk.hook(None, sender=sender, deletes=message)
    assert erase(desk)["fulfilled"] == 1
    assert not places_of(desk, text)
    answers = [alice.get(path) for path in paths]
    assert [each.status_code for each in answers] == [200] * len(paths)
    assert not any(text in each.text for each in answers)


def test_b74_the_verb_says_what_it_needs(desk: Desk) -> None:
    for call in ((), ("x", "3"), ("--deleted", "x"), ("--deleted", "--conversation")):
        assert verb("erase", *call, "--data-dir", desk.server.data_dir).code == 2
