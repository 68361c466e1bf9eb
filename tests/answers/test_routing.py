"""Answers over channels: the real server, its process of jobs, and real webhook receivers (delivery.md, Routing)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import httpx
import pytest
from answer_scenes import HOOKS, Routes, targets
from bad_input import refused
from live_server import until
from outside import status
from talks import reply, say, start


@pytest.fixture(scope="module")
def alice(routes: Routes) -> httpx.Client:
    """Who asks."""
    return routes.server.member("alice")


def to(*names: str, **fields: Any) -> dict[str, Any]:
    """A target of kind channels."""
    return {"kind": "channels", "channels": list(names), **fields}


def notices(routes: Routes, path: str) -> list[str]:
    """Those that came to a hook."""
    documents = [each.json["data"] for each in routes.receiver.requests if each.path == path]
    return [each["text"] for each in documents if each["kind"] == "notice"]


def test_delivery_originating_only(routes: Routes) -> None:
    """Whatever else is linked, and whoever was active last: to the chat that asked, and nowhere else."""
    routes.office.link("ivy", "talkative", "ivy-1")
    routes.office.link("ivy", "mail", "ivy-2", "all")
    routes.write("ivy-1", "where I am")
    routes.office.speak("mail", "ivy-2")
    routes.write("ivy-1", "where I was")
    until(lambda: len(routes.got("where I")) == 2, 20, "both answers")
    came = [each.json["data"] for each in routes.receiver.requests if "where I" in each.json["data"]["text"]]
    assert {each["text"] for each in came} == {"echo: where I am", "echo: where I was"}
    assert [each["to"] for each in came] == [{"nativeId": "ivy-1", "conversation": "ivy-1"}] * 2
    assert not any("label" in each for each in came)


def test_a_message_of_a_channel_names_its_target(routes: Routes) -> None:
    routes.office.link("jane", "talkative", "jane-1")
    routes.office.link("jane", "mail", "jane-2")
    routes.write("jane-1", "elsewhere", responseTarget={"kind": "channels", "channels": ["mail", "h14"]})
    until(lambda: len(routes.got("elsewhere")) == 2, 20, "both answers")
    assert routes.got("elsewhere") == [("h14", "", "echo: elsewhere"), ("mail", "jane-2", "echo: elsewhere")]
    (labelled,) = [each.json["data"] for each in routes.receiver.requests if each.json["data"].get("label") != "api"
                   and each.path == "/h14"]  # fmt: skip
    assert labelled["label"] == "talkative"


def test_delivery_specific_channel(routes: Routes, alice: httpx.Client) -> None:
    talk = routes.turn(alice, "specific", {"kind": "channel", "channel": "h1", "echoInput": True})
    shown = routes.settled(alice, talk, 1)
    (intended,) = shown["intended"]
    assert set(intended) == {"deliveryId", "channel", "state"}
    assert (intended["channel"], intended["state"], shown["skipped"]) == ("h1", "accepted", [])
    assert routes.got("specific") == [("h1", "", "echo: specific"), ("h1", "", "specific")]
    parts = [each.json["data"] for each in routes.receiver.requests if "specific" in each.json["data"]["text"]]
    assert [(each["kind"], each["label"]) for each in parts] == [("echo", "api"), ("reply", "api")]
    assert [each["key"] for each in parts] == [f"{intended['deliveryId']}.{n}" for n in (1, 2)]


def test_delivery_selected_channels(routes: Routes, alice: httpx.Client) -> None:
    talk = routes.turn(alice, "selected", to("h2", "h3", "tg", "h2"))
    shown = routes.settled(alice, talk, 2)
    assert [each["channel"] for each in shown["intended"]] == ["h2", "h3"]
    assert shown["skipped"] == [{"channel": "tg", "reason": "not_linked"}]
    assert routes.got("selected") == [(name, "", "echo: selected") for name in ("h2", "h3")]


def test_delivery_active_channel(routes: Routes) -> None:
    bob = routes.server.member("bob")
    routes.office.link("bob", "chat", "bob-1")
    routes.office.link("bob", "mail", "bob-2")
    talk = routes.turn(bob, "active-1", {"kind": "active"})
    routes.settled(bob, talk, 1)
    routes.office.speak("chat", "bob-1")
    talk = routes.turn(bob, "active-2", {"kind": "active"})
    routes.settled(bob, talk, 1)
    assert routes.got("active-1") == [("mail", "bob-2", "echo: active-1")]
    assert routes.got("active-2") == [("chat", "bob-1", "echo: active-2")]


def test_delivery_all_linked(routes: Routes) -> None:
    carol = routes.server.member("carol")
    routes.office.link("carol", "chat", "carol-1")
    muted = routes.office.link("carol", "chat", "carol-2")
    routes.office.link("carol", "mail", "carol-3", "all")
    routes.office.link("dave", "mail", "dave-1", "all")
    routes.office.push("carol", muted, "off")
    talk = routes.turn(carol, "linked", {"kind": "all_linked"})
    shown = routes.settled(carol, talk, 2)
    assert Counter(each["channel"] for each in shown["intended"]) == {"chat": 1, "mail": 1}
    assert shown["skipped"] == [{"channel": "chat", "reason": "muted"}]
    assert routes.got("linked") == [("chat", "carol-1", "echo: linked"), ("mail", "carol-3", "echo: linked")]


def test_an_inbox_is_the_person_s_own(routes: Routes) -> None:
    """Whoever has never linked anything has one, too; a guest has none."""
    kate, liam = routes.server.member("kate"), routes.server.member("liam")
    talk = routes.turn(kate, "boxed", {"kind": "channel", "channel": "box", "echoInput": True})
    routes.settled(kate, talk, 1)
    items = sorted(kate.get("/v1/inbox").json()["items"], key=lambda item: item["part"])
    assert [(item["text"], item.get("echo", False)) for item in items] == [("boxed", True), ("echo: boxed", False)]
    assert {(item["conversation"], item["turn"]) for item in items} == {(talk, 1)}
    assert liam.get("/v1/inbox").json()["items"] == []
    routes.office.link("mia", "talkative", "mia-1")
    routes.write("mia-1", "from a chat", responseTarget=to("box"))
    mia = routes.server.member("mia")
    until(lambda: mia.get("/v1/inbox").json()["items"], 20, "the item")
    assert [each["text"] for each in mia.get("/v1/inbox").json()["items"]] == ["echo: from a chat"]


def test_identities_are_for_those_who_relay_and_for_who_wants_them(routes: Routes) -> None:
    routes.office.link("erin", "mail", "erin-all", "all")
    routes.office.link("erin", "mail", "erin-replies")
    identities = [{"channel": "mail", "nativeId": each} for each in ("erin-all", "erin-replies", "nobody")]
    body = {"text": "relayed", "responseTarget": {"kind": "identities", "identities": identities}}
    plain, relay = routes.server.member("frank"), routes.server.client("human:frank", "agents-member", "agents-relay")
    talk = start(plain)
    refused(plain.post(f"/v1/conversations/{talk}/turns", json=body), 403, "forbidden", None)
    assert relay.post(f"/v1/conversations/{talk}/turns", json=body).status_code == 202
    shown = routes.settled(relay, talk, 1)
    assert shown["skipped"] == [{"channel": "mail", "reason": reason} for reason in ("muted", "not_linked")]
    assert routes.got("relayed") == [("mail", "erin-all", "echo: relayed")]


def test_multicast_fan_out_is_bounded(routes: Routes, alice: httpx.Client) -> None:
    talk = start(alice)
    hooks = [f"h{n}" for n in range(1, HOOKS + 1)]
    body = {"text": "wide", "responseTarget": to(*hooks)}
    answer = alice.post(f"/v1/conversations/{talk}/turns", json=body)
    refused(answer, 422, "fan_out_exceeded", None)
    assert answer.json()["limit"] == HOOKS - 1
    body["responseTarget"] = to(*hooks[:-1], *hooks[:-1])
    assert alice.post(f"/v1/conversations/{talk}/turns", json=body).status_code == 202
    routes.settled(alice, talk, HOOKS - 1)
    assert routes.got("wide") == sorted((name, "", "echo: wide") for name in hooks[:-1])


def test_multicast_retries_independently(routes: Routes, alice: httpx.Client) -> None:
    routes.receiver.troubles = lambda request: request.path == "/h6"
    routes.receiver.mischief = [status(503), status(410)]
    talk = routes.turn(alice, "retried", to("h5", "h6", "h7"))
    shown = routes.settled(alice, talk, 3)
    assert [each["state"] for each in shown["intended"]] == ["accepted", "dead", "accepted"]
    came = Counter(each.path for each in routes.receiver.requests if "retried" in each.json["data"]["text"])
    assert came == {"/h5": 1, "/h6": 2, "/h7": 1}


def test_multicast_is_idempotent_per_destination(routes: Routes, alice: httpx.Client) -> None:
    talk = start(alice)
    body = {"text": "once", "messageId": "m-1", "responseTarget": to("h8", "h9")}
    path = f"/v1/conversations/{talk}/turns"
    first, again = (alice.post(path, json=body) for _ in range(2))
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    before = routes.settled(alice, talk, 2)
    assert alice.post(path, json=body).json() == first.json()
    refused(alice.post(path, json={**body, "responseTarget": to("h8")}), 422, "idempotency_key_reused", None)
    with routes.server.sql() as superuser:
        assert superuser.execute(
            "SELECT count(*) FROM minutebook.deliveries WHERE conversation_id = %s", (talk,)
        ).fetchone() == (2,)
        assert superuser.execute("SELECT count(*) FROM minutebook.answers").fetchone() == (0,)
    assert targets(alice, talk) == before
    assert routes.got("once") == [(name, "", "echo: once") for name in ("h8", "h9")]


UNKNOWN: list[dict[str, Any]] = [
    {"kind": "channel", "channel": "nowhere"},
    {"kind": "channel", "channel": "theirs"},
    to("h1", "theirs"),
]


@pytest.mark.parametrize("target", UNKNOWN, ids=repr)
def test_names_of_nobody_and_of_another_tenant_are_alike(alice: httpx.Client, target: dict[str, Any]) -> None:
    talk = start(alice)
    path = f"/v1/conversations/{talk}/turns"
    answer = alice.post(path, json={"text": "x", "responseTarget": target})
    refused(answer, 422, "unknown_target", None)
    nobody = alice.post(path, json={"text": "x", "responseTarget": {"kind": "channel", "channel": "nobody"}})
    volatile = ("instance", "errorId")
    assert {name: value for name, value in answer.json().items() if name not in volatile} == {
        name: value for name, value in nobody.json().items() if name not in volatile
    }


def test_a_stranger_learns_nothing_of_targets(routes: Routes, alice: httpx.Client) -> None:
    talk = start(alice)
    mallory = routes.server.member("mallory")
    body = {"text": "x", "responseTarget": {"kind": "channel", "channel": "nowhere"}}
    refused(mallory.post(f"/v1/conversations/{talk}/turns", json=body), 404, "not_found", None)


def test_a_participant_does_not_see_where_anothers_answer_went(routes: Routes, alice: httpx.Client) -> None:
    talk = start(alice, mode="shared")
    assert alice.put(f"/v1/conversations/{talk}/participants/human:bob", json={}).status_code == 200
    say(alice, talk, "shared", responseTarget=to("h10"))
    routes.settled(alice, talk, 1)
    bob = routes.server.member("bob")
    refused(bob.get(f"/v1/conversations/{talk}/turns/1/targets"), 404, "not_found", None)
    refused(alice.get(f"/v1/conversations/{talk}/turns/2/targets"), 404, "not_found", None)


def test_an_ordinary_turn_leaves_nothing_of_an_answer(routes: Routes, alice: httpx.Client) -> None:
    talks = [routes.turn(alice, "plain", target) for target in (None, {"kind": "originating"}, {"kind": "none"})]
    for talk in talks:
        reply(alice, talk, 1)
        assert targets(alice, talk) == {"intended": [], "skipped": []}
        with routes.server.sql() as superuser:
            row = superuser.execute(
                "SELECT count(*) FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
                " WHERE s.kind = 'answer' AND e.payload ->> 'conversationId' = %s",
                (talk,),
            ).fetchone()
        assert row == (0,)


def test_a_failed_turn_is_told_in_a_notice(routes: Routes, alice: httpx.Client) -> None:
    talk = routes.turn(alice, "!fail 400", to("h11"))
    routes.settled(alice, talk, 1)
    (notice,) = notices(routes, "/h11")
    assert notice.startswith("There is no answer: the turn failed (")


def test_a_message_that_never_ran_is_told_in_a_notice(routes: Routes, alice: httpx.Client) -> None:
    talk = start(alice)
    say(alice, talk, "!hang")
    say(alice, talk, "waits", responseTarget=to("h12"))
    assert alice.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    until(lambda: notices(routes, "/h12"), 20, "the notice")
    assert notices(routes, "/h12") == ["Your message was not taken up (closed)."]


def test_classes_that_a_channel_may_not_carry(routes: Routes, alice: httpx.Client) -> None:
    routes.office.link("alice", "chat", "alice-1")
    talk = routes.turn(alice, "classified", to("h13", "cleared", "chat"), classes=["secret"])
    shown = routes.settled(alice, talk, 2)
    assert [each["channel"] for each in shown["intended"]] == ["cleared", "chat"]
    assert shown["skipped"] == [{"channel": "h13", "reason": "audience"}]
    assert routes.got("classified") == [("cleared", "", "echo: classified")]
    (pointer,) = [
        each.json["data"] for each in routes.receiver.requests if each.json["data"]["to"].get("nativeId") == "alice-1"
    ]
    assert (pointer["kind"], talk in pointer["text"]) == ("pointer", True)


def test_no_more_pushes_than_an_hour_takes(routes: Routes) -> None:
    grace = routes.server.member("grace")
    routes.office.link("grace", "chat", "grace-1")
    talk = start(grace)
    for turn in range(1, 8):
        say(grace, talk, f"pushed {turn}", responseTarget={"kind": "all_linked"})
    states = [routes.settled(grace, talk, 1, turn)["intended"][0]["state"] for turn in range(1, 8)]
    assert Counter(states) == {"accepted": 5, "cancelled": 2}
    assert len(routes.got("pushed")) == 5


def test_unlinking_takes_along_what_waits(routes: Routes) -> None:
    henry = routes.server.member("henry")
    link = routes.office.link("henry", "mail", "henry-1")
    routes.receiver.troubles = lambda request: request.json["data"]["to"].get("nativeId") == "henry-1"
    routes.receiver.mischief = [status(503, retry_after="3600")]
    talk = routes.turn(henry, "unlinked", {"kind": "all_linked"})
    until(lambda: [each["state"] for each in targets(henry, talk)["intended"]] == ["waiting"], 20, "the wait")
    routes.office.unlink("henry", link)
    shown = routes.settled(henry, talk, 1)
    assert shown["intended"][0]["state"] == "cancelled"
    with routes.server.sql() as superuser:
        row = superuser.execute(
            "SELECT reason FROM minutebook.deliveries WHERE id = %s", (shown["intended"][0]["deliveryId"],)
        ).fetchone()
    assert row == ("unlink",)
