"""Links over HTTP: two ends, one code, a consent; and that whatever fails says nothing (delivery.md, Linking)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import httpx
import pytest
from bad_input import refused
from link_world import LinkWorld
from live_server import LiveServer
from minutebook.domain.errors import NotVisible
from minutebook.domain.linking.codes import CODE_CHARS, MAX_WRONG

LINKS = "/v1/links"
NO_CODE = "WRNG0000"


def name() -> str:
    """Somebody new."""
    return f"p{uuid.uuid4().hex[:12]}"


def begin(client: httpx.Client, **headers: str) -> dict[str, Any]:
    """Ask for a code."""
    answer = client.post(LINKS, json={"channel": "tg", "mechanism": "code"}, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def present(client: httpx.Client, code: str, **headers: str) -> httpx.Response:
    """Show a code."""
    return client.post(f"{LINKS}/present", json={"code": code}, headers=headers)


def confirm(client: httpx.Client, link_id: str, digest: str, push: str = "replies", **headers: str) -> httpx.Response:
    """Consent."""
    body = {"consentDigest": digest, "push": push}
    return client.post(f"{LINKS}/{link_id}/confirm", json=body, headers=headers)


def linked(world: LinkWorld, client: httpx.Client, chat: str) -> str:
    """A chat linked to a page that has begun; the link's id."""
    begun = begin(client)
    shown = world.present(chat, begun["code"])
    answer = confirm(client, begun["id"], shown.consent_digest)
    assert answer.status_code == 200, answer.text
    return answer.json()["linkId"]


def test_linking_a_verified_identity_links_two_channels(world: LinkWorld) -> None:
    """Gate: a page begins, a chat that has proven itself shows the code, the page confirms what it sees."""
    who, chat = name(), name()
    page = world.person(who)
    before = world.account(chat)
    begun = begin(page)
    assert set(begun) == {"seq", "chain", "id", "code", "expiresAt"}
    assert len(begun["code"]) == CODE_CHARS
    shown = world.present(chat, begun["code"].lower())
    (pending,) = page.get(LINKS).json()["pending"]
    assert pending == {
        "id": begun["id"],
        "state": "presented",
        "expiresAt": begun["expiresAt"],
        "ends": [{"channel": "token", "display": f"human:{who}"}, {"channel": "tg", "display": f"@{chat}"}],
        "consentDigest": shown.consent_digest,
    }
    answer = confirm(page, begun["id"], pending["consentDigest"], "all")
    assert answer.status_code == 200
    assert answer.json()["linkId"] == begun["id"]
    listed = page.get(LINKS).json()
    (link,) = listed["links"]
    assert listed["pending"] == []
    assert link.pop("linkedAt").endswith("Z")
    assert link == {"id": begun["id"], "channel": "tg", "display": f"@{chat}", "push": "all"}
    assert world.account(chat) != before
    other = world.person(name()).get(LINKS).json()
    assert other == {"links": [], "pending": []}


def test_linking_a_chat_begins_and_a_page_presents(world: LinkWorld) -> None:
    who, chat = name(), name()
    page = world.person(who)
    begun = world.begin(chat)
    answer = present(page, begun.code)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert set(body) == {"seq", "chain", "id", "state", "ends", "consentDigest"}
    assert body["ends"] == [
        {"channel": "tg", "display": f"@{chat}"},
        {"channel": "token", "display": f"human:{who}"},
    ]
    assert page.get(LINKS).json()["links"] == []
    world.confirm(chat)
    assert [each["display"] for each in page.get(LINKS).json()["links"]] == [f"@{chat}"]


def test_linking_unlink_and_deny_leak_nothing(world: LinkWorld) -> None:
    """Gate: whatever is wrong with a code, the answer is one; and after an unlink nothing is left to see."""
    ann, bob = world.person(name()), world.person(name())
    chat = name()
    link_id = linked(world, ann, chat)
    used, mine, others = begin(bob), begin(ann), world.begin(name(), tenant="umbrella", channel="theirs")
    expired = world.begin(name(), ago=timedelta(minutes=11))
    world.present(name(), used["code"])
    voided = begin(bob)
    with pytest.raises(NotVisible):
        world.present(name(), voided["code"], is_group=True)
    taken = world.begin(chat)
    asked = [
        (world.person(name()), used["code"]),
        (ann, mine["code"]),
        (world.person(name()), others.code),
        (world.person(name()), voided["code"]),
        (world.person(name()), expired.code),
        (bob, taken.code),
        (bob, NO_CODE),
        (bob, "no code at all"),
        (bob, ""),
    ]
    bodies = {present(client, code).content for client, code in asked}
    assert len(bodies) == 1
    unknown = bob.post(f"{LINKS}/{link_id}/confirm", json={"consentDigest": "", "push": "all"})
    assert unknown.status_code == 404
    for client in (bob, world.person(name(), "umbrella")):
        refused(client.delete(f"{LINKS}/{link_id}"), 404, "not_found")
        refused(client.patch(f"{LINKS}/{link_id}", json={"push": "off"}), 404, "not_found")
    gone = ann.delete(f"{LINKS}/{link_id}")
    assert gone.status_code == 200
    assert gone.json()["cancelled"] == {"deliveries": 0, "continuations": 0}
    assert "ended" not in gone.json()
    assert ann.get(LINKS).json()["links"] == []
    refused(ann.delete(f"{LINKS}/{link_id}"), 404, "not_found")
    for secret in (used["code"], mine["code"], taken.code):
        assert secret not in world.server.logs()


def test_an_end_that_was_unlinked_goes_to_another_account_after_a_week_alone(world: LinkWorld) -> None:
    ann, bob, chat = world.person(name()), world.person(name()), name()
    ann.delete(f"{LINKS}/{linked(world, ann, chat)}")
    begun = begin(bob)
    with pytest.raises(NotVisible):
        world.present(chat, begun["code"])
    again = linked(world, ann, chat)
    ann.delete(f"{LINKS}/{again}")
    with world.server.sql() as superuser:
        superuser.execute(
            "UPDATE minutebook.linked_identities SET free_at = free_at - interval '7 days' WHERE link_id = %s", (again,)
        )
    linked(world, bob, chat)


def test_a_code_of_another_tenant_is_no_code(world: LinkWorld) -> None:
    begun = begin(world.person(name()))
    refused(present(world.person(name(), "umbrella"), begun["code"]), 404, "not_found")
    foreign = world.person(name(), "umbrella").post(LINKS, json={"channel": "tg", "mechanism": "code"})
    refused(foreign, 422, "invalid", "$.channel")


@pytest.mark.parametrize("channel", ["nowhere", "push", "page", "token", ""])
def test_a_channel_over_which_nobody_writes_is_not_linked(world: LinkWorld, channel: str) -> None:
    answer = world.person(name()).post(LINKS, json={"channel": channel, "mechanism": "code"})
    refused(answer, 422, "invalid", "$.channel")


def test_what_was_not_looked_at_is_not_consented_to(world: LinkWorld) -> None:
    page = world.person(name())
    begun = begin(page)
    refused(confirm(page, begun["id"], "0" * 64), 409, "stale_consent")
    shown = world.present(name(), begun["code"])
    refused(confirm(page, begun["id"], "0" * 64), 409, "stale_consent")
    refused(confirm(world.person(name()), begun["id"], shown.consent_digest), 404, "not_found")
    assert confirm(page, begun["id"], shown.consent_digest).status_code == 200


def test_three_may_wait_and_one_is_given_up(world: LinkWorld) -> None:
    page = world.person(name())
    ids = [begin(page)["id"] for _ in range(3)]
    answer = page.post(LINKS, json={"channel": "tg", "mechanism": "code"})
    refused(answer, 409, "too_many_pending")
    assert [each["id"] for each in page.get(LINKS).json()["pending"]] == ids
    refused(world.person(name()).delete(f"{LINKS}/{ids[0]}"), 404, "not_found")
    dropped = page.delete(f"{LINKS}/{ids[0]}")
    assert dropped.status_code == 200
    assert set(dropped.json()) == {"seq", "chain", "id"}
    begin(page)


def test_five_wrong_codes_are_one_hours_wait(world: LinkWorld) -> None:
    thief, victim = world.person(name()), name()
    for _ in range(MAX_WRONG):
        refused(present(thief, NO_CODE), 404, "not_found")
    stolen = world.begin(victim)
    blocked = present(thief, stolen.code)
    assert blocked.content == present(thief, NO_CODE).content
    with world.server.sql() as superuser:
        superuser.execute("UPDATE minutebook.link_wrongs SET until = until - interval '1 hour' WHERE count >= 5")
    assert present(thief, stolen.code).status_code == 200


def test_a_retry_gets_the_same_code_and_nobody_else_does(world: LinkWorld) -> None:
    page, key = world.person(name()), {"idempotency-key": uuid.uuid4().hex}
    first = begin(page, **key)
    again = page.post(LINKS, json={"channel": "tg", "mechanism": "code"}, headers=key)
    assert (again.json(), again.headers["idempotency-replayed"]) == (first, "true")
    refused(page.post(LINKS, json={"channel": "tg", "mechanism": "oidc"}, headers=key), 422, "idempotency_key_reused")
    other = begin(world.person(name()), **key)
    assert other["code"] != first["code"]
    with world.server.sql() as superuser:
        rows = superuser.execute("SELECT k::text FROM minutebook.idempotency k").fetchall()
        assert not any(first["code"] in row for (row,) in rows)


def test_every_step_is_done_once_under_its_key(world: LinkWorld) -> None:
    page, chat = world.person(name()), name()
    begun = world.begin(chat)
    keys = [{"idempotency-key": uuid.uuid4().hex} for _ in range(4)]
    shown = present(page, begun.code, **keys[0])
    assert shown.status_code == 200
    assert present(page, begun.code, **keys[0]).json() == shown.json()
    world.confirm(chat)
    one = page.patch(f"{LINKS}/{begun.link_id}", json={"push": "off"}, headers=keys[1])
    assert one.status_code == 200
    assert page.get(LINKS).json()["links"][0]["push"] == "off"
    page.patch(f"{LINKS}/{begun.link_id}", json={"push": "all"})
    assert page.patch(f"{LINKS}/{begun.link_id}", json={"push": "off"}, headers=keys[1]).json() == one.json()
    assert page.get(LINKS).json()["links"][0]["push"] == "all"
    gone = page.delete(f"{LINKS}/{begun.link_id}", headers=keys[2])
    again = page.delete(f"{LINKS}/{begun.link_id}", headers=keys[2])
    assert (again.json(), again.headers["idempotency-replayed"]) == (gone.json(), "true")
    begun = begin(page)
    digest = world.present(chat, begun["code"]).consent_digest
    first = confirm(page, begun["id"], digest, **keys[3])
    again = confirm(page, begun["id"], digest, **keys[3])
    assert (again.status_code, again.json()) == (200, first.json())


def test_channels_are_those_that_an_answer_may_be_sent_to(world: LinkWorld) -> None:
    page = world.person(name())
    found = {each["name"]: each for each in page.get("/v1/channels").json()["channels"]}
    assert list(found) == ["page", "push", "tg"]
    assert found["tg"] == {
        "name": "tg",
        "kind": "telegram",
        "can": {"receive": True, "push": True, "threads": True, "keys": False, "receipts": False, "lookUp": False},
        "linked": False,
    }
    linked(world, page, name())
    assert {each["name"] for each in page.get("/v1/channels").json()["channels"] if each["linked"]} == {"tg"}
    theirs = world.person(name(), "umbrella").get("/v1/channels").json()["channels"]
    assert [each["name"] for each in theirs] == ["theirs"]


def test_a_command_line_client_links_nothing(world: LinkWorld) -> None:
    client = world.person(name(), azp="cli")
    answer = client.post(LINKS, json={"channel": "tg", "mechanism": "code"})
    refused(answer, 403, "client_not_allowed")
    assert client.get(LINKS).status_code == 200


def test_only_people_link(server: LiveServer) -> None:
    answer = server.client("system:deployer").post(LINKS, json={"channel": "tg", "mechanism": "code"})
    refused(answer, 403, "forbidden")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", LINKS, {"channel": "tg"}),
        ("POST", LINKS, {"channel": "tg", "mechanism": "sms"}),
        ("POST", LINKS, {"channel": "tg", "mechanism": "code", "more": 1}),
        ("POST", f"{LINKS}/present", {"code": 12345678}),
        ("POST", f"{LINKS}/{'a' * 26}/confirm", {"consentDigest": "0", "push": "some"}),
        ("PATCH", f"{LINKS}/{'a' * 26}", {}),
    ],
)
def test_bad_bodies_are_refused_with_their_path(world: LinkWorld, method: str, path: str, body: Any) -> None:
    refused(world.person(name()).request(method, path, json=body), 422, "invalid")


def test_steps_are_counted_without_anybodys_name(world: LinkWorld) -> None:
    page, chat = world.person(name()), name()
    linked(world, page, chat)
    present(page, NO_CODE)
    text = httpx.get(f"{world.server.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("minutebook_link_attempt_total{")]
    assert any('channel="token",outcome="linked",reason=""' in line for line in lines), lines
    assert any('channel="token",outcome="refused",reason="unknown"' in line for line in lines), lines
    assert chat not in text
