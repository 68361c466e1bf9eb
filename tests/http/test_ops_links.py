"""Operators at links, codes that wait and handles of background turns: by id, of the own tenant, never a secret."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest
from background import look, send
from bad_input import refused
from link_world import LinkWorld
from live_server import LiveServer
from talks import start

OPS = "/v1/ops"
WHY = {"reason": "stolen_phone"}


@pytest.fixture
def operator(world: LinkWorld) -> httpx.Client:
    """An operator of the tenant."""
    return world.person("olaf", groups=["agents-operator"])


@pytest.fixture
def foreign(world: LinkWorld) -> httpx.Client:
    """An operator of another one."""
    return world.person("olaf", "umbrella", groups=["agents-operator"])


def name() -> str:
    """Somebody new."""
    return f"p{uuid.uuid4().hex[:12]}"


def begin(page: httpx.Client) -> dict[str, Any]:
    """Ask for a code."""
    answer = page.post("/v1/links", json={"channel": "tg", "mechanism": "code"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def linked(world: LinkWorld, page: httpx.Client, chat: str) -> str:
    """A chat linked to a page that has begun; the link's id."""
    begun = begin(page)
    body = {"consentDigest": world.present(chat, begun["code"]).consent_digest, "push": "replies"}
    answer = page.post(f"/v1/links/{begun['id']}/confirm", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["linkId"]


def every(client: httpx.Client, kind: str, limit: int = 1) -> list[dict[str, Any]]:
    """All rows of a list, page by page."""
    rows: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": limit}
    while True:
        answer = client.get(f"{OPS}/{kind}", params=params)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store"), answer.text
        rows += answer.json()[kind]
        if "nextCursor" not in answer.json():
            return rows
        params["cursor"] = answer.json()["nextCursor"]


def test_a_link_is_seen_by_hashes_and_unlinked(world: LinkWorld, operator: httpx.Client, foreign: httpx.Client) -> None:
    who, chat = name(), name()
    page = world.person(who)
    link_id = linked(world, page, chat)
    rows = every(operator, "links")
    assert len({row["id"] + row["channel"] + row["native"] for row in rows}) == len(rows)
    mine = [row for row in rows if row["id"] == link_id]
    assert mine
    assert all(row["native"].startswith("h:") for row in mine)
    assert who not in str(rows)
    assert chat not in str(rows)
    assert every(foreign, "links") == []
    refused(foreign.request("DELETE", f"{OPS}/links/{link_id}", json=WHY), 404, "not_found")
    key = {"idempotency-key": f"unlink-{link_id}"}
    answer = operator.request("DELETE", f"{OPS}/links/{link_id}", json=WHY, headers=key)
    assert answer.status_code == 200, answer.text
    assert answer.json()["cancelled"] == {"deliveries": 0, "continuations": 0}
    assert page.get("/v1/links").json()["links"] == []
    again = operator.request("DELETE", f"{OPS}/links/{link_id}", json=WHY, headers=key)
    assert (again.status_code, again.headers.get("idempotency-replayed")) == (200, "true"), again.text
    assert again.json() == answer.json()
    other = operator.request("DELETE", f"{OPS}/links/{link_id}", json={"reason": "another"}, headers=key)
    refused(other, 422, "idempotency_key_reused")


def test_a_code_that_waits_is_seen_by_its_id_and_voided(
    world: LinkWorld, operator: httpx.Client, foreign: httpx.Client
) -> None:
    page = world.person(name())
    begun = begin(page)
    rows = every(operator, "challenges")
    assert [set(row) for row in rows if row["id"] == begun["id"]] == [{"id", "account", "expiresAt"}]
    assert begun["code"] not in str(rows)
    refused(foreign.request("DELETE", f"{OPS}/challenges/{begun['id']}", json=WHY), 404, "not_found")
    key = {"idempotency-key": f"void-{begun['id']}"}
    answers = [
        operator.request("DELETE", f"{OPS}/challenges/{begun['id']}", json=WHY, headers=key).json() for _ in range(2)
    ]
    assert set(answers[0]) == {"seq", "id", "chain"}
    assert answers[0] == answers[1]
    assert page.get("/v1/links").json()["pending"] == []
    assert begun["id"] not in {row["id"] for row in every(operator, "challenges")}


def test_a_handle_is_seen_by_its_id_and_cancelled(server: LiveServer) -> None:
    alice = server.member("alice")
    token = send(alice, start(alice), "!hang")
    own = server.client("human:olaf", "agents-operator")
    (mine,) = [row for row in every(own, "continuations", 100) if row["id"] == look(alice, token)["id"]]
    assert "status" not in mine
    assert token not in str(mine)
    other = server.client("human:olaf", "agents-operator", tenant="elsewhere")
    refused(other.request("DELETE", f"{OPS}/continuations/{mine['id']}", json=WHY), 404, "not_found")
    for _ in range(2):
        answer = own.request("DELETE", f"{OPS}/continuations/{mine['id']}", json=WHY)
        assert (answer.status_code, set(answer.json())) == (200, {"seq", "chain"})
    shown = look(alice, token)
    assert (shown["status"], shown["reason"]) == ("cancelled", "operator")


@pytest.mark.parametrize("kind", ["links", "challenges", "continuations"])
def test_what_is_none_is_refused(operator: httpx.Client, kind: str) -> None:
    refused(operator.get(f"{OPS}/{kind}", params={"limit": 0}), 422, "invalid")
    refused(operator.get(f"{OPS}/{kind}", params={"cursor": "x" * 300}), 400, "invalid_cursor")
    refused(operator.request("DELETE", f"{OPS}/{kind}/none", json={}), 422, "invalid")
    refused(operator.request("DELETE", f"{OPS}/{kind}/none", json={"reason": " "}), 422, "invalid")
    refused(operator.request("DELETE", f"{OPS}/{kind}/none", json=WHY), 404, "not_found")
