"""kill -9 of a server at every step of a message from a channel: whoever sends it again gets it through, once."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import doomed_server
import httpx
import pausing_server
import pytest
from inbound_scenes import HOOK, TELEGRAM, Desk, fresh, inbound_desk, number, signature
from live_server import LiveServer, until
from scratch import SCRATCH
from verbs import verb

POINTS = (
    pytest.param("judged", marks=pytest.mark.soak),
    "recorded",
    "acted",
    pytest.param("spent", marks=pytest.mark.soak),
)


@pytest.fixture(scope="module")
def heir() -> Iterator[Desk]:
    """Who is there when the platform sends it again."""
    with tempfile.TemporaryDirectory(prefix="mbi", dir=SCRATCH) as folder, inbound_desk(Path(folder) / "data") as desk:
        yield desk


def dies_of(heir: Desk, point: str, name: str, body: bytes, headers: dict[str, str]) -> None:
    """A server that is killed at the point takes the request."""
    program = [doomed_server.__file__, point, "0"]
    with LiveServer(heir.server.data_dir, program=program, arguments=["--role", "http"]) as doomed:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{doomed.url}/v1/channels/{name}/inbound", content=body, headers=headers)
        doomed.process.wait(15)


@pytest.mark.parametrize("point", POINTS)
def test_law_29_a_message_is_taken_once_wherever_the_server_is_killed(heir: Desk, point: str) -> None:
    sender = fresh("killed")
    body = json.dumps({"from": sender, "messageId": fresh(), "text": f"over a kill at {point}"}).encode()
    headers = signature(HOOK, body)
    dies_of(heir, point, "hook", body, headers)
    again = heir.post("hook", body, headers)
    if point == "spent":
        assert again.status_code == 401, "its proof is spent, with its effect"
    else:
        assert (again.status_code, again.json()["outcome"], again.json().get("duplicate")) == (202, "accepted", None)
    last = heir.post("hook", body, signature(HOOK, body))
    assert (last.status_code, last.json()["duplicate"]) == (202, True)
    event = heir.decided(last.json()["id"])
    assert heir.asked(event["conversation"]) == [f"over a kill at {point}"]
    then = heir.hook("and then", sender=sender).json()
    assert heir.decided(then["id"])["conversation"] == event["conversation"]
    assert heir.rows(
        "SELECT count(*) FROM minutebook.events WHERE type = 'conversation_started'"
        " AND payload -> 'owner' ->> 'actor' = %s",
        f"guest:{event['account']}",
    ) == [(1,)]


def test_a_verb_is_answered_once_wherever_the_server_is_killed(heir: Desk) -> None:
    chat = {"id": 7, "type": "private"}
    message = {"message_id": 1, "date": 1, "chat": chat, "from": {"id": 7, "is_bot": False}, "text": "/link"}
    body = json.dumps({"update_id": number(), "message": message}).encode()
    headers = {"x-telegram-bot-api-secret-token": TELEGRAM}
    dies_of(heir, "acted", "tg", body, headers)
    assert heir.post("tg", body, headers).json() == {}
    assert heir.post("tg", body, headers).json() == {}
    heir.platforms.told("7", "Your code is")
    heir.telegram("/status")
    heir.platforms.told("7", "This chat is")
    assert sum("Your code is" in text for text in heir.platforms.texts("7")) == 1


@pytest.mark.parametrize("point", ["recorded", "acted"])
def test_b74_what_is_deleted_after_a_kill_has_no_turn_or_one_that_is_to_be_erased(heir: Desk, point: str) -> None:
    """The message is decided, and killed before its effect or before it is told; then it is deleted; then the platform
    sends it once more."""
    sender, message, text = fresh("killed"), fresh(), f"deleted after a kill at {point}"
    body = json.dumps({"from": sender, "messageId": message, "text": text, "background": True}).encode()
    dies_of(heir, point, "hook", body, signature(HOOK, body))
    wishes = "SELECT conversation_id FROM minutebook.inbound_deletions"
    assert heir.hook(None, sender=sender, deletes=message).json()["outcome"] == "accepted"
    ((conversation,),) = heir.rows(wishes)
    again = heir.post("hook", body, signature(HOOK, body)).json()
    assert (again["outcome"], again.get("duplicate")) == ("ignored", None)
    last = heir.post("hook", body, signature(HOOK, body)).json()
    assert last["duplicate"]
    assert heir.asked(conversation) == ([] if point == "recorded" else [text])
    done = verb("erase", "--deleted", "--json", "--data-dir", heir.server.data_dir)
    assert done.code == 0, done.said
    assert len(heir.rows(wishes)) == (point == "recorded"), "it stays while the message may come again"
    ((left,),) = heir.rows("SELECT count(*) FROM minutebook.events WHERE payload::text LIKE %s", f"%{text}%")
    assert left == 0
    with heir.server.sql() as connection:
        connection.execute("UPDATE minutebook.inbound_deletions SET at = at - interval '31 days'")
    assert verb("erase", "--deleted", "--data-dir", heir.server.data_dir).code == 0
    assert not heir.rows(wishes)


def test_b74_what_is_deleted_between_the_look_and_the_effect_is_stopped(heir: Desk, tmp_path: Path) -> None:
    """The message has looked and was not deleted; the deletion has looked and there was no turn yet."""
    sender, message = fresh("racing"), fresh()
    body = json.dumps({"from": sender, "messageId": message, "text": "!hang"}).encode()
    program = [pausing_server.__file__, "recorded", str(tmp_path)]
    with LiveServer(heir.server.data_dir, program=program, arguments=["--role", "http"]) as slow:
        url, headers = f"{slow.url}/v1/channels/hook/inbound", signature(HOOK, body)
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(httpx.post, url, content=body, headers=headers, timeout=30)
            until((tmp_path / "paused").exists, 20, "the message at its effect")
            heir.hook(None, sender=sender, deletes=message)
            (tmp_path / "go").touch()
            told = taken.result().json()
    event = heir.decided(told["id"])
    heir.asked(event["conversation"])
    query = (
        "SELECT e.payload ->> 'status' FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        " WHERE s.name = %s AND e.type = 'reply_recorded'"
    )
    assert heir.rows(query, f"conversation:{event['conversation']}") == [("interrupted",)]
    assert not heir.platforms.texts(sender)
    assert verb("erase", "--deleted", "--data-dir", heir.server.data_dir).code == 0


def test_b74_a_turn_that_went_into_another_conversation_is_found(heir: Desk) -> None:
    """Its own was closed between its decision and its effect."""
    sender, message, text = fresh("moved"), fresh(), "into the next conversation"
    body = json.dumps({"from": sender, "messageId": message, "text": text}).encode()
    page = heir.linked("moved", sender)
    heir.hook("before", sender=sender)
    dies_of(heir, "recorded", "hook", body, signature(HOOK, body))
    conversation = heir.newest("hook")["conversation"]
    heir.asked(conversation)
    assert page.post(f"/v1/conversations/{conversation}/close").status_code == 200
    assert heir.post("hook", body, signature(HOOK, body)).json()["outcome"] == "accepted"
    heir.platforms.told(sender, text)
    heir.hook(None, sender=sender, deletes=message)
    assert verb("erase", "--deleted", "--data-dir", heir.server.data_dir).code == 0
    ((left,),) = heir.rows("SELECT count(*) FROM minutebook.events WHERE payload::text LIKE %s", f"%{text}%")
    assert left == 0


@pytest.mark.parametrize("point", ["recorded", "acted"])
def test_b74_a_deletion_is_done_once_wherever_the_server_is_killed(heir: Desk, point: str) -> None:
    sender, message, text = fresh("killed"), fresh(), f"deleted over a kill at {point}"
    told = heir.hook(text, sender=sender, messageId=message).json()
    conversation = heir.decided(told["id"])["conversation"]
    assert heir.asked(conversation) == [text]
    body = json.dumps({"from": sender, "messageId": fresh(), "deletes": message}).encode()
    dies_of(heir, point, "hook", body, signature(HOOK, body))
    assert "duplicate" not in heir.post("hook", body, signature(HOOK, body)).json()
    assert heir.post("hook", body, signature(HOOK, body)).json()["duplicate"]
    assert verb("erase", "--deleted", "--data-dir", heir.server.data_dir).code == 0
    ((left,),) = heir.rows("SELECT count(*) FROM minutebook.events WHERE payload::text LIKE %s", f"%{text}%")
    assert left == 0
