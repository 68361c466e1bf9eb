"""What comes in over channels, over a real socket: what is proven, what is taken once, what nobody is told."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from bad_input import refused
from inbound_scenes import HOOK, OTHER, SLACK, TELEGRAM, Desk, fresh, inbound_desk, number, signature, slack_signature
from live_server import until


@pytest.fixture(scope="module")
def desk(new_data_dir: Callable[[], Path]) -> Iterator[Desk]:
    with inbound_desk(new_data_dir(), more='[delivery]\ninboundTtl = "9d"\n') as made:
        yield made
        logs = made.server.logs()
        assert "Traceback" not in logs
        assert "canary" not in logs


def test_a_webhook_s_message_becomes_one_turn_of_a_guest(desk: Desk) -> None:
    answer = desk.hook("over a webhook", sender="webby")
    assert answer.status_code == 202, answer.text
    assert set(answer.json()) == {"id", "outcome"}
    assert answer.json()["outcome"] == "accepted"
    event = desk.decided(answer.json()["id"])
    assert (event["outcome"], event["reason"], event["channel"]) == ("accepted", "allowed", "hook")
    assert "webby" not in json.dumps(event)
    assert desk.asked(event["conversation"]) == ["over a webhook"]
    assert desk.owner(event["conversation"]) == f"guest:{event['account']}"
    again = desk.hook("and once more", sender="webby").json()
    assert desk.decided(again["id"])["conversation"] == event["conversation"]
    assert desk.asked(event["conversation"]) == ["over a webhook", "and once more"]
    days = desk.rows("SELECT DISTINCT s.retention_days FROM minutebook.streams s WHERE s.kind = 'inbound'")
    assert days == [(9,)], "inboundTtl of the settings"
    other = desk.hook("somebody else", sender="another").json()
    assert desk.decided(other["id"])["conversation"] != event["conversation"]


def test_what_does_not_prove_itself_is_one_401(desk: Desk) -> None:
    before = desk.count()
    body = json.dumps({"from": "ann", "messageId": fresh(), "text": "hello"}).encode()
    good = signature(HOOK, body)
    old, future = (signature(HOOK, body, at=time.time() + shift) for shift in (-400, 400))
    bad = [
        desk.post("hook", body, {"content-type": "application/json"}),
        desk.post("hook", body + b" ", good),
        desk.post("hook", body, old),
        desk.post("hook", body, future),
        desk.post("hook", body, signature(OTHER, body)),
        desk.post("hook", body, {**good, "webhook-signature": "v1,AAAA"}),
        desk.post("hook", body, {**good, "authorization": "Bearer nonsense"} | {"webhook-signature": ""}),
        desk.post("hook", b"\xff\xfe", good),
        desk.post("nothere", body, good),
        desk.post("sealed", body, good),
        desk.post("tg", b"{}", {"x-telegram-bot-api-secret-token": "wrong"}),
        desk.post("sl", b"{}", {"x-slack-signature": "v0=00", "x-slack-request-timestamp": str(int(time.time()))}),
        desk.post("mail", b"From: ann@acme.example\r\n\r\nhello", {"authorization": "Bearer relay-token"}),
        desk.post("hook", body, {}, "receipts"),
        desk.post("nothere", body, {}, "receipts"),
    ]
    bodies = {json.dumps({k: v for k, v in each.json().items() if k != "instance"}) for each in bad}
    assert {each.status_code for each in bad} == {401}
    assert len(bodies) == 1
    assert desk.count() == before
    assert desk.post("hook", body, good).status_code == 202, "the signature was good all the time"


def test_a_proof_is_good_for_one_effect(desk: Desk) -> None:
    document = {"from": "ann", "messageId": fresh(), "text": "once"}
    body = json.dumps(document).encode()
    headers = signature(HOOK, body)
    first = desk.post("hook", body, headers)
    assert first.status_code == 202
    refused(desk.post("hook", body, headers), 401, "unauthenticated")
    again = desk.signed(document)
    assert again.status_code == 202
    assert again.json() == {**first.json(), "duplicate": True}
    reworded = desk.signed({**document, "text": "not what was said first"})
    assert reworded.json() == again.json()
    assert desk.asked(desk.decided(first.json()["id"])["conversation"]).count("once") == 1
    assert "not what was said first" not in str(desk.asked(desk.decided(first.json()["id"])["conversation"]))


def test_many_at_once_are_one(desk: Desk) -> None:
    document = {"from": "crowd", "messageId": fresh(), "text": "all at once"}
    body = json.dumps(document).encode()
    one = signature(HOOK, body)
    with ThreadPoolExecutor(12) as pool:
        same = list(pool.map(lambda _: desk.post("hook", body, one), range(6)))
        others = list(pool.map(lambda _: desk.signed(document), range(6)))
    assert sorted(each.status_code for each in same) == [202] + [401] * 5
    assert [each.status_code for each in others] == [202] * 6
    ids = {each.json()["id"] for each in (*same, *others) if each.status_code == 202}
    assert len(ids) == 1
    assert desk.asked(desk.decided(ids.pop())["conversation"]) == ["all at once"]


def test_two_first_messages_at_once_are_in_one_conversation(desk: Desk) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = [each.json()["id"] for each in pool.map(lambda n: desk.hook(f"first {n}", sender="twins"), range(8))]
    conversations = {desk.decided(each)["conversation"] for each in ids}
    assert len(conversations) == 1
    assert sorted(desk.asked(conversations.pop())) == [f"first {n}" for n in range(8)]


def test_telegram_is_answered_with_nothing(desk: Desk) -> None:
    update = number()
    for _ in range(2):
        answer = desk.telegram("over telegram", update=update)
        assert (answer.status_code, answer.json()) == (200, {})
    event = desk.newest("tg")
    assert desk.asked(event["conversation"]).count("over telegram") == 1
    for document in (b"{}", b"[]", b"not json", b'{"update_id":"x"}', json.dumps({"update_id": number()}).encode()):
        answer = desk.post("tg", document, {"x-telegram-bot-api-secret-token": TELEGRAM})
        assert (answer.status_code, answer.json()) == (200, {}), document


@pytest.mark.parametrize(
    ("channel", "name"),
    [
        ("hook", "webhook-id"),
        ("hook", "webhook-timestamp"),
        ("sl", "x-slack-request-timestamp"),
        ("sl", "x-slack-signature"),
        ("tg", "x-telegram-bot-api-secret-token"),
    ],
)
def test_b73_a_header_that_proves_and_comes_twice_proves_nothing(desk: Desk, channel: str, name: str) -> None:
    """Whichever of the two somebody in between reads."""
    body = json.dumps({"from": "ann", "messageId": fresh(), "text": "hello", "type": "x", "update_id": 1}).encode()
    proofs = {
        "hook": signature(HOOK, body),
        "sl": slack_signature(body),
        "tg": {"x-telegram-bot-api-secret-token": TELEGRAM},
    }
    good = proofs[channel]
    for first, second in ((good[name], good[name]), ("x", good[name]), (good[name], "x")):
        headers = [*((key, text) for key, text in good.items() if key != name), (name, first), (name, second)]
        answer = desk.http.post(f"/v1/channels/{channel}/inbound", content=body, headers=headers)
        refused(answer, 401, "unauthenticated")


def test_a_proof_of_what_is_ignored_is_spent_as_well(desk: Desk) -> None:
    """Of a signed request only the first one is authentic, whatever it came to."""
    event = {"type": "message", "bot_id": "B1", "text": "of a bot", "ts": f"{number()}.1", "channel": "C7"}
    for document in (
        {"type": "event_callback", "team_id": "T1", "event_id": fresh("Ev"), "event": event},
        {"type": "url_verification", "challenge": fresh(), "token": "x"},
    ):
        body = json.dumps(document).encode()
        headers = slack_signature(body)
        assert desk.post("sl", body, headers).status_code == 200
        refused(desk.post("sl", body, headers), 401, "unauthenticated")
        assert desk.post("sl", body, slack_signature(body, at=time.time() - 9)).status_code == 200, "a platform's retry"


def test_slack_is_answered_with_nothing_but_its_challenge(desk: Desk) -> None:
    answer = desk.slack_body(json.dumps({"type": "url_verification", "challenge": "abc", "token": "x"}).encode())
    assert (answer.status_code, answer.json()) == (200, {"challenge": "abc"})
    answer = desk.slack("over &lt;slack&gt;")
    assert (answer.status_code, answer.json()) == (200, {})
    event = desk.newest("sl")
    assert desk.asked(event["conversation"])[-1] == "over <slack>"
    form = {"command": "/status", "text": "", "user_id": "U7", "channel_id": "D7", "trigger_id": fresh()}
    answer = desk.slack_body(urlencode(form).encode(), "application/x-www-form-urlencoded")
    assert (answer.status_code, answer.json()) == (200, {})
    assert (desk.newest("sl")["verb"], desk.newest("sl")["outcome"]) == ("status", "accepted")
    assert SLACK not in desk.server.logs()


def test_mail_of_a_proven_author_is_taken(desk: Desk) -> None:
    message_id = fresh()
    for _ in range(2):
        answer = desk.mail("over mail", message_id=message_id)
        assert (answer.status_code, answer.json()) == (200, {})
    assert desk.asked(desk.newest("mail")["conversation"]) == ["over mail"]
    assert desk.mail("no", author="eve@acme.example").status_code == 200
    assert desk.newest("mail")["reason"] == "not_allowed"


def test_a_body_has_a_bound_and_a_shape(desk: Desk) -> None:
    big = json.dumps({"from": "ann", "messageId": fresh(), "text": "x" * (256 * 1024)}).encode()
    refused(desk.signed(big), 413, "payload_too_large")
    document = {"from": "ann", "messageId": fresh(), "text": "hello"}
    for bad in (
        {**document, "extra": 1},
        {**document, "from": " ann "},
        {**document, "text": 1},
        {**document, "command": "link"},
        {**document, "responseTarget": {"kind": "nowhere"}},
        {**document, "responseTarget": {"kind": "none", "more": 1}},
        {"from": "ann", "messageId": fresh()},
        [],
    ):
        refused(desk.signed(bad), 422, "invalid")
    refused(desk.signed(b'{"from":"ann","from":"eve","messageId":"x","text":"hello"}'), 422, "invalid")
    refused(desk.signed({"receipts": []}), 422, "invalid")
    refused(desk.signed(document, to="receipts"), 422, "invalid")
    assert desk.signed(document).status_code == 202, "nothing of it was spent"


def test_a_conversation_that_is_named_is_the_senders_own(desk: Desk) -> None:
    first = desk.decided(desk.hook("mine", sender="owner").json()["id"])["conversation"]
    named = desk.hook("again", sender="owner", conversation=first).json()
    assert (named["outcome"], desk.decided(named["id"])["conversation"]) == ("accepted", first)
    for conversation in (first, "conv" * 6 + "aa", "nonsense", "a" * 255):
        answer = desk.hook("not mine", sender="stranger", conversation=conversation)
        assert (answer.status_code, answer.json()["outcome"]) == (202, "denied")
        assert desk.decided(answer.json()["id"])["reason"] == "no_conversation"
    assert desk.asked(first) == ["mine", "again"]


def test_receipts_are_signed_and_applied_once(desk: Desk) -> None:
    answer = desk.signed({"receipts": [{"key": "nothing.1", "state": "delivered"}]}, to="receipts")
    assert (answer.status_code, answer.json()) == (200, {"applied": 0})
    desk.hook(None, command="status", sender="receiver")
    desk.platforms.told("receiver", "This chat is")
    with desk.platforms.lock:
        sent = [each.json["data"] for each in desk.platforms.requests if each.path == "/hook"]
    key = next(each["key"] for each in sent if each["to"].get("nativeId") == "receiver")
    accepted = "SELECT true FROM minutebook.deliveries d WHERE d.id = %s AND d.state = 'accepted'"
    until(lambda: desk.rows(accepted, key.partition(".")[0]), what="the delivery's end")
    body = json.dumps({"receipts": [{"key": key, "state": "delivered"}, {"key": key, "state": "observed"}]}).encode()
    headers = signature(HOOK, body)
    first = desk.post("hook", body, headers, "receipts")
    assert first.status_code == 200
    assert first.json()["applied"] in (1, 2)
    refused(desk.post("hook", body, headers, "receipts"), 401, "unauthenticated")
    assert desk.post("hook", body, signature(HOOK, body), "receipts").json() == {"applied": 0}
    other = desk.signed({"receipts": [{"key": key, "state": "failed"}]}, "other", OTHER, "receipts")
    assert other.json() == {"applied": 0}, "another channel's word says nothing of it"


def test_no_secret_and_no_name_is_in_the_log(desk: Desk) -> None:
    desk.hook("canary-text", sender="canary-name", messageId="canary-id")
    with desk.server.sql() as connection:
        events = connection.execute(
            "SELECT payload::text FROM minutebook.events WHERE type = 'inbound_decided'"
        ).fetchall()
        rows = connection.execute("SELECT m::text FROM minutebook.inbound_messages m").fetchall()
        sessions = connection.execute("SELECT s::text FROM minutebook.channel_sessions s").fetchall()
    assert "canary" not in str((events, rows, sessions))
    assert HOOK not in desk.server.logs()


def test_a_webhook_asks_for_its_background_turn_and_stops_it(desk: Desk) -> None:
    begun = desk.hook("!slow 400 50", sender="bea", background=True).json()
    token = begun["continuation"]["token"]

    def command(name: str, sender: str = "bea", **fields: object) -> httpx.Response:
        return desk.hook(None, sender=sender, command=name, **{"continuation": token, **fields})

    def asked() -> dict[str, object]:
        answer = command("status")
        assert answer.status_code == 202, answer.text
        return answer.json()["continuation"]

    until(lambda: asked()["status"] == "running", 10, "its start")
    assert set(asked()) == {"id", "status", "expiresAt", "turn"}
    strange = [
        command("status", "mallory"),
        command("cancel", "mallory"),
        command("status", continuation="x" * 43),
        desk.hook(None, sender="bea", name="other", secret=OTHER, command="status", continuation=token),
    ]
    assert [each.status_code for each in strange[:3]] == [404] * 3
    assert strange[3].json()["outcome"] == "denied"
    assert "continuation" not in strange[3].json()
    once = fresh()
    stopped = [command("cancel", messageId=once) for _ in range(2)]
    assert [each.status_code for each in stopped] == [202, 202], stopped[0].text
    until(lambda: asked()["status"] == "cancelled", 10, "its end")
    assert "result" not in asked(), "words go where the channel may carry them"
    refused(command("cancel"), 409, "already_ended")


@pytest.mark.parametrize("fields", [{"text": "how is it?"}, {"command": "new"}])
def test_a_continuation_goes_with_status_and_cancel_alone(desk: Desk, fields: dict[str, str]) -> None:
    before = desk.count()
    refused(desk.signed({"from": "ann", "messageId": fresh(), "continuation": "x", **fields}), 422, "invalid")
    assert desk.count() == before


def test_a_message_that_was_done_is_not_done_again_for_who_sees_its_conversation_no_more(desk: Desk) -> None:
    """As where its sender was linked since, and has another account now."""
    once = fresh()
    first = desk.hook("in the background", sender="first", background=True, messageId=once).json()
    assert first["continuation"]["token"]
    until(lambda: desk.asked(desk.decided(first["id"])["conversation"]), 10, "its turn")
    before = desk.rows("SELECT count(*) FROM minutebook.conversations"), desk.count()
    again = desk.hook("in the background", sender="second", background=True, messageId=once)
    assert (again.status_code, again.json()) == (202, {"id": first["id"], "outcome": "accepted", "duplicate": True})
    assert (desk.rows("SELECT count(*) FROM minutebook.conversations"), desk.count()) == before
    same = desk.hook("in the background", sender="first", background=True, messageId=once).json()
    assert same["continuation"]["token"] == first["continuation"]["token"]


def test_a_crash_before_its_sender_was_linked_makes_no_second_turn(desk: Desk) -> None:
    once = fresh()
    first = desk.decided(desk.hook("only once", sender="late", messageId=once).json()["id"])
    assert desk.asked(first["conversation"]) == ["only once"]
    desk.hook(None, command="link code", sender="lead")
    code = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", desk.platforms.told("lead", "Your code is"))
    assert code is not None
    desk.hook(None, command=f"link {code[0]}", sender="late")
    word = re.search(r"/confirm ([0-9a-f]{8})", desk.platforms.told("lead", "wants to be linked"))
    assert word is not None
    desk.hook(None, command=f"confirm {word[1]}", sender="lead")
    desk.platforms.told("lead", "are linked now")
    with desk.server.sql() as connection:  # as if the server had been killed right before it said so
        connection.execute(
            "UPDATE minutebook.inbound_messages SET done_at = NULL WHERE correlation_id = %s", (first["correlationId"],)
        )
    refused(desk.hook("only once", sender="late", messageId=once), 404, "not_found")
    assert desk.rows(
        "SELECT count(*) FROM minutebook.events WHERE type = 'envelope_received' AND payload ->> 'text' = 'only once'"
    ) == [(1,)]
