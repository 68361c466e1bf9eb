"""Every route times every kind of caller: one table, held against the routes that the application has."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_args

import httpx
import msgspec
import pytest
from live_server import LiveServer, open_room
from minutebook.domain.ids import short_id
from minutebook.domain.rooms.rights import Action
from minutebook.http.app import make_router
from minutebook.http.problems import STATUS
from minutebook.http.services import Services
from minutebook.infra.settings import Settings
from talks import reply, say, start

CALLERS = (
    *("nobody", "stranger", "watcher", "collaborator", "owner", "admin", "auditor"),
    *("run", "other_run", "ended_run", "system", "other_tenant", "client", "operator"),
)
"""client: a command-line client with a token of the owner, who drives. operator: of deliveries alone."""

ROOM = "/v1/rooms/{room_id}"

RUN = "/v1/runs/{run_id}"

TALK = "/v1/conversations/{conversation_id}"

OPS = "/v1/ops/deliveries"

LINKS = "/v1/links"

SIGN_IN = f"{LINKS}/oidc/{{issuer}}"

PAGE = "page"
"""A refusal for browsers of people without a token: one page, whoever it is."""

CONTINUATION = "/v1/continuations/{token}"
BULK = "/v1/ops/bulk"

LINKED = ("links", "challenges", "continuations")

CHANNEL = "/v1/channels/{name}"

# A column a caller, in the order above: a status, or the code of a refusal that says more.
# gone: 403 run_not_live. cli: 403 client_not_allowed.
TABLE: dict[tuple[str, str], str] = {
    ("GET", "/v1/rooms"): "401 403 200 403 200 200 200 403 403 403 200 200 200 403",
    ("POST", "/v1/rooms"): "401 403 201 403 201 201 403 403 403 403 201 201 cli 403",
    ("GET", ROOM): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("GET", f"{ROOM}/explain"): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("GET", f"{ROOM}/events"): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("GET", f"{ROOM}/transcript"): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("GET", f"{ROOM}/stream"): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("GET", f"{ROOM}/export"): "401 404 403 403 200 200 200 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/messages"): "401 404 403 201 201 201 403 201 404 gone 201 404 201 404",
    ("PUT", f"{ROOM}/members/{{principal}}"): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("DELETE", f"{ROOM}/members/{{principal}}"): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("POST", f"{ROOM}/close"): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("POST", f"{ROOM}/hold"): "401 404 403 403 200 200 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/release"): "401 404 403 403 200 200 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/fork"): "401 404 201 201 201 201 403 403 404 gone 201 404 201 404",
    ("DELETE", f"{ROOM}/queue/{{ref}}"): (
        "401 404 403 not_queued not_queued not_queued 403 403 404 gone not_queued 404 cli 404"
    ),
    ("POST", f"{ROOM}/queue/{{ref}}/promote"): "401 404 403 403 not_queued 403 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/driver/request"): "401 404 403 200 200 200 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/driver/give"): "401 404 403 403 200 403 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/driver/take"): "401 404 403 403 200 200 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/interrupt"): "401 404 403 403 202 403 403 403 404 gone 403 404 cli 404",
    ("GET", f"{ROOM}/approvals"): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("POST", f"{ROOM}/approvals/{{approval_id}}/decision"): "401 404 403 403 404 404 403 403 404 gone 403 404 cli 404",
    ("POST", f"{ROOM}/runs"): "401 404 403 403 room_busy room_busy 403 403 404 gone human_drives 404 cli 404",
    ("PUT", RUN): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("GET", RUN): "401 404 200 200 200 200 200 200 404 gone 200 404 200 404",
    ("POST", f"{RUN}/end"): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("POST", f"{RUN}/revoke"): "401 404 403 403 200 200 403 403 404 gone 200 404 cli 404",
    ("POST", "/v1/bridge/hello"): "401 403 403 403 403 403 403 200 200 gone 403 403 403 403",
    ("POST", "/v1/bridge/events"): "401 403 403 403 403 403 403 200 200 gone 403 403 403 403",
    ("GET", "/v1/bridge/stream"): "401 403 403 403 403 403 403 200 200 gone 403 403 403 403",
    ("POST", "/v1/bridge/approvals"): "401 403 403 403 403 403 403 200 200 gone 403 403 403 403",
    ("POST", "/v1/bridge/bye"): "401 403 403 403 403 403 403 200 200 409 403 403 403 403",
    ("POST", "/mcp"): "401 403 403 403 403 403 403 200 200 200 403 403 403 403",  # what a run may is its tools' to say
    ("GET", "/v1/conversations"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("POST", "/v1/conversations"): "401 403 201 403 201 403 403 403 403 403 403 403 201 403",
    ("GET", TALK): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("POST", f"{TALK}/turns"): "401 404 404 404 202 404 404 404 404 404 404 404 202 404",
    ("POST", f"{TALK}/interrupt"): "401 404 404 404 202 404 404 404 404 404 404 404 202 404",
    ("POST", f"{TALK}/turns/{{turn}}/seen"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/turns/{{turn}}/context"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/turns/{{turn}}/targets"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/history"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/entries/{{ord_}}/explain"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/events"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", f"{TALK}/participants"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("PUT", f"{TALK}/participants/{{principal}}"): "401 404 404 404 conflict 404 404 404 404 404 404 404 conflict 404",
    ("DELETE", f"{TALK}/participants/{{principal}}"): (
        "401 404 404 404 conflict 404 404 404 404 404 404 404 conflict 404"
    ),
    ("POST", f"{TALK}/close"): "401 404 404 404 200 404 404 404 404 404 404 404 200 404",
    ("GET", CONTINUATION): "401 404 404 404 404 404 404 404 404 404 404 404 404 404",
    ("DELETE", CONTINUATION): "401 404 404 404 404 404 404 404 404 404 404 404 404 404",
    ("GET", "/v1/inbox"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", "/v1/inbox/stream"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("POST", "/v1/inbox/ack"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", OPS): "401 403 403 403 403 403 403 403 403 403 403 403 403 200",
    ("GET", f"{OPS}/{{delivery_id}}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", f"{OPS}/{{delivery_id}}/replay"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", f"{OPS}/{{delivery_id}}/revoke"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", f"{OPS}/{{delivery_id}}/purge"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("GET", "/v1/ops/channels"): "401 403 403 403 403 403 403 403 403 403 403 403 403 200",
    ("POST", "/v1/ops/channels/{channel}/pause"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", "/v1/ops/channels/{channel}/resume"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", BULK): "401 403 403 403 403 403 403 403 403 403 403 403 403 201",
    ("GET", f"{BULK}/{{plan_id}}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", f"{BULK}/{{plan_id}}/run"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("DELETE", f"{BULK}/{{plan_id}}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    **{("GET", f"/v1/ops/{name}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 200" for name in LINKED},
    ("DELETE", "/v1/ops/links/{link_id}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("DELETE", "/v1/ops/challenges/{link_id}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("DELETE", "/v1/ops/continuations/{continuation_id}"): "401 403 403 403 403 403 403 403 403 403 403 403 403 404",
    ("POST", "/v1/ops/reconcile"): "401 403 403 403 403 403 403 403 403 403 403 403 403 202",
    (
        "POST",
        f"{CHANNEL}/inbound",
    ): "401 401 401 401 401 401 401 401 401 401 401 401 401 401",  # a token proves nothing there
    ("POST", f"{CHANNEL}/receipts"): "401 401 401 401 401 401 401 401 401 401 401 401 401 401",
    ("GET", "/v1/channels"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", LINKS): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("POST", LINKS): "401 invalid invalid invalid invalid invalid invalid 403 403 403 403 invalid cli invalid",
    ("POST", f"{LINKS}/present"): "401 404 404 404 404 404 404 403 403 403 403 404 cli 404",
    ("POST", f"{LINKS}/{{link_id}}/confirm"): "401 404 404 404 404 404 404 403 403 403 403 404 cli 404",
    ("PATCH", f"{LINKS}/{{link_id}}"): "401 404 404 404 404 404 404 403 403 403 403 404 cli 404",
    ("DELETE", f"{LINKS}/{{link_id}}"): "401 404 404 404 404 404 404 403 403 403 403 404 cli 404",
    ("GET", f"{SIGN_IN}/start"): "page page page page page page page page page page page page page page",
    ("GET", f"{SIGN_IN}/callback"): "page page page page page page page page page page page page page page",
    ("GET", f"{SIGN_IN}/consent"): "page page page page page page page page page page page page page page",
    ("POST", f"{SIGN_IN}/consent"): "page page page page page page page page page page page page page page",
    ("POST", "/v1/session"): "401 204 204 204 204 204 204 204 204 204 204 204 204 204",
    ("DELETE", "/v1/session"): "401 204 204 204 204 204 204 204 204 204 204 204 204 204",
    ("GET", "/v1/openapi.json"): "401 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", "/healthz"): "200 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", "/readyz"): "200 200 200 200 200 200 200 200 200 200 200 200 200 200",
    ("GET", "/metrics"): "200 200 200 200 200 200 200 200 200 200 200 200 200 200",
}

BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/rooms"): {"dataClass": "internal"},
    ("POST", f"{ROOM}/messages"): {"text": "hello"},
    ("PUT", f"{ROOM}/members/{{principal}}"): {"role": "watcher"},
    ("POST", f"{ROOM}/close"): {},
    ("POST", f"{ROOM}/hold"): {"reason": "lawsuit"},
    ("POST", f"{ROOM}/release"): {"reason": "settled"},
    ("POST", f"{ROOM}/fork"): {"seq": 1},
    ("POST", f"{ROOM}/queue/{{ref}}/promote"): {"driverEpoch": 1},
    ("POST", f"{ROOM}/driver/request"): {},
    ("POST", f"{ROOM}/driver/give"): {"to": "human:olga", "driverEpoch": 1},
    ("POST", f"{ROOM}/driver/take"): {"reason": "nobody is there"},
    ("POST", f"{ROOM}/interrupt"): {"driverEpoch": 1},
    ("POST", f"{ROOM}/approvals/{{approval_id}}/decision"): {"decision": "approved", "actionDigest": "0a"},
    ("POST", f"{ROOM}/runs"): {"role": "implementer"},
    ("POST", f"{RUN}/end"): {"reason": "stuck"},
    ("POST", f"{RUN}/revoke"): {"reason": "strange"},
    ("POST", "/v1/bridge/events"): {"items": []},
    ("POST", "/v1/conversations"): {"agent": "echo"},
    ("POST", f"{TALK}/turns"): {"text": "hello"},
    ("POST", f"{TALK}/interrupt"): {},
    ("POST", f"{TALK}/turns/{{turn}}/seen"): {"offset": 1},
    ("POST", f"{TALK}/close"): {},
    ("POST", "/v1/inbox/ack"): {"delivered": [], "observed": []},
    ("POST", "/mcp"): {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    ("POST", "/v1/bridge/approvals"): {"eventId": "e1", "callId": "c1", "class": "forge.pr", "action": {"open": 1}},
    ("POST", "/v1/bridge/bye"): {"reason": "finished"},
    ("POST", f"{CHANNEL}/inbound"): {"from": "ann", "messageId": "m1", "text": "hello"},
    ("POST", f"{CHANNEL}/receipts"): {"receipts": []},
    ("POST", LINKS): {"channel": "tg", "mechanism": "code"},
    ("POST", f"{LINKS}/present"): {"code": "WRNG0000"},
    ("POST", f"{LINKS}/{{link_id}}/confirm"): {"consentDigest": "0a", "push": "off"},
    ("PATCH", f"{LINKS}/{{link_id}}"): {"push": "off"},
    **{("POST", f"{OPS}/{{delivery_id}}/{verb}"): {"reason": "mended"} for verb in ("replay", "revoke", "purge")},
    **{("POST", f"/v1/ops/channels/{{channel}}/{verb}"): {"reason": "mended"} for verb in ("pause", "resume")},
    **{("DELETE", f"/v1/ops/{name}/{{link_id}}"): {"reason": "mended"} for name in LINKED[:2]},
    ("DELETE", "/v1/ops/continuations/{continuation_id}"): {"reason": "mended"},
    ("POST", BULK): {"action": "revoke", "filter": {"channel": "none"}, "reason": "mended"},
    ("POST", "/v1/ops/reconcile"): {},
}

UNKNOWN = {
    "turn": 1,
    "ord_": 1,
    "principal": "human:newcomer",
    "ref": 9_999_999,
    "approval_id": "01J00000000000000000000000",
    "delivery_id": "deli" * 6 + "aa",
    "link_id": "link" * 6 + "aa",
    "issuer": "corp",
    "token": "t0ken" * 8,
    "channel": "none",
    "continuation_id": "01J00000000000000000000002",
    "plan_id": "01J00000000000000000000001",
    "name": "nowhere",
}
"""What stands in paths beside room, run and conversation: nothing of it is there but the turn, and its question."""

CODES = {
    "401": "unauthenticated",
    "403": "forbidden",
    "404": "not_found",
    "409": "already_ended",
    "gone": "run_not_live",
    "cli": "client_not_allowed",
}

OPEN_TO_DELEGATES = {"/v1/session", "/v1/openapi.json", "/healthz", "/readyz", "/metrics"}

ENDS_THE_SCENE = {
    *(("POST", f"{ROOM}/close"), ("POST", f"{ROOM}/driver/take"), ("POST", "/v1/bridge/bye")),
    *(("POST", f"{RUN}/end"), ("POST", f"{RUN}/revoke"), ("POST", f"{TALK}/close")),
}
"""Rows whose success leaves nothing to try the next caller on."""

_numbers = itertools.count(1)


class Scene(msgspec.Struct):
    """A room with a collaborator, a live run and one that has ended; another run's room; the owner's conversation."""

    room: str
    run: str
    clients: dict[str, httpx.Client]
    talk: str

    def send(self, method: str, path: str, caller: str) -> httpx.Response:
        """The row's request as that caller; of a stream only its head."""
        url = path.format(room_id=self.room, run_id=self.run, conversation_id=self.talk, **UNKNOWN)
        query = {"action": "close"} if path.endswith("/explain") else None
        body = BODIES.get((method, path))
        if (method, path) == ("PUT", RUN):
            body = {"roomId": self.room, "role": "implementer"}
        with self.clients[caller].stream(method, url, params=query, json=body) as response:
            if not _is_endless(path) or response.status_code != 200:
                response.read()
            return response

    def seq(self) -> int:
        """The room's head."""
        return self.clients["admin"].get(f"/v1/rooms/{self.room}").json()["throughSeq"]


def _is_endless(path: str) -> bool:
    return path.endswith("/stream") or path == f"{TALK}/events"


def make_scene(server: LiveServer) -> Scene:
    owner = server.member("olga")
    room = open_room(owner, members=[{"principal": "human:carl", "role": "collaborator"}])
    other_room = open_room(owner)
    run, other, ended = (short_id(1_000_000 + next(_numbers)) for _ in range(3))
    clients = {
        "nobody": server.client(),
        "stranger": server.client("human:sam"),
        "watcher": server.client("human:wanda", "agents-member"),
        "collaborator": server.client("human:carl"),
        "owner": owner,
        "admin": server.client("human:adam", "agents-admin"),
        "auditor": server.client("human:audrey", "agents-auditor"),
        "run": server.client(f"agent:{run}", room=room, role="implementer"),
        "other_run": server.client(f"agent:{other}", room=other_room),
        "ended_run": server.client(f"agent:{ended}", room=room),
        "system": server.client("system:ci"),
        "other_tenant": server.client("human:olga", "agents-admin", tenant="elsewhere"),
        "client": server.client("human:olga", "agents-member", client="terminal"),
        "operator": server.client("human:oscar", "agents-operator"),
    }
    for caller, verb in (("ended_run", "hello"), ("ended_run", "bye"), ("run", "hello"), ("other_run", "hello")):
        answer = clients[caller].post(f"/v1/bridge/{verb}", json={})
        assert answer.status_code == 200, answer.text
    talk = start(owner)
    say(owner, talk, "hello")
    reply(owner, talk, 1)
    return Scene(room, run, clients, talk)


@pytest.fixture(scope="module")
def scene(server: LiveServer) -> Scene:
    """One scene for the rows that leave it as it is."""
    return make_scene(server)


def routes(tmp_path: Path) -> set[tuple[str, str]]:
    """What the application routes, but for HEAD and OPTIONS, which follow from the others."""
    nothing = cast("Any", None)
    services = Services(Settings(data_dir=tmp_path), *[nothing] * (len(Services.__struct_fields__) - 1))
    router = make_router(services, nothing, serves_metrics=True)
    return {
        (method, route.path_format)
        for route in router.routes
        for method in cast("Any", route).methods
        if method not in ("HEAD", "OPTIONS")
    }


def test_every_route_has_a_row(tmp_path: Path) -> None:
    assert routes(tmp_path) == set(TABLE)


@pytest.mark.parametrize(("method", "path"), TABLE, ids=lambda part: part)
def test_who_may_call(server: LiveServer, scene: Scene, method: str, path: str) -> None:
    expected = dict(zip(CALLERS, TABLE[method, path].split(), strict=True))
    for caller, word in expected.items():
        # An ended run must not have the live one in its way, nor the next caller a closed room.
        here = make_scene(server) if (method, path) in ENDS_THE_SCENE and word.startswith("2") else scene
        before = here.seq()
        response = here.send(method, path, caller)
        if word == PAGE:
            assert (response.status_code, response.headers["content-type"][:9]) == (400, "text/html"), caller
            continue
        code = CODES.get(word, word)
        status = int(word) if word.isdigit() else STATUS[code]
        assert response.status_code == status, f"{caller}: {response.status_code} {response.text}"
        if status >= 400:
            assert response.json()["code"] == code, caller
            assert here.seq() == before, f"{caller} was refused, and something was appended"


MISSING = ("aaaaaaaa", "no-such-room", "AAAAAAAA", "%C3%A4")


@pytest.mark.parametrize(("method", "path"), [row for row in TABLE if "{room_id}" in row[1]], ids=lambda part: part)
def test_missing_and_not_yours_are_one_answer(scene: Scene, method: str, path: str) -> None:
    for caller in ("stranger", "other_run", "other_tenant"):
        not_yours = scene.send(method, path, caller)
        for room in MISSING:
            missing = msgspec.structs.replace(scene, room=room).send(method, path, caller)
            assert missing.status_code == not_yours.status_code == 404
            assert _but_instance(missing) == _but_instance(not_yours)
            assert set(missing.headers) == set(not_yours.headers)


@pytest.mark.parametrize(("method", "path"), [row for row in TABLE if "{run_id}" in row[1]], ids=lambda part: part)
def test_a_missing_run_and_one_that_is_not_yours_are_one_answer(scene: Scene, method: str, path: str) -> None:
    for caller in ("stranger", "other_run", "other_tenant"):
        not_yours = scene.send(method, path, caller)
        for run in MISSING:
            room = "aaaaaaaa" if method == "PUT" else scene.room
            missing = msgspec.structs.replace(scene, room=room, run=run).send(method, path, caller)
            assert missing.status_code == not_yours.status_code == 404
            assert _but_instance(missing) == _but_instance(not_yours)
            assert set(missing.headers) == set(not_yours.headers)


@pytest.mark.parametrize(
    ("method", "path"), [row for row in TABLE if "{conversation_id}" in row[1]], ids=lambda part: part
)
def test_a_conversation_that_is_not_yours_is_as_one_that_is_not_there(scene: Scene, method: str, path: str) -> None:
    for caller in CALLERS:
        if caller in ("nobody", "owner", "client"):
            continue
        not_yours = scene.send(method, path, caller)
        for talk in (*MISSING, scene.talk[::-1], scene.room):
            missing = msgspec.structs.replace(scene, talk=talk).send(method, path, caller)
            assert missing.status_code == not_yours.status_code == 404, (caller, talk)
            assert _but_instance(missing) == _but_instance(not_yours)
            assert set(missing.headers) == set(not_yours.headers)


def test_a_conversation_is_nothing_on_the_routes_of_rooms(scene: Scene) -> None:
    here = msgspec.structs.replace(scene, room=scene.talk)
    for method, path in (row for row in TABLE if "{room_id}" in row[1]):
        answer = here.send(method, path, "owner")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


def _but_instance(response: httpx.Response) -> bytes:
    return response.content.replace(msgspec.json.encode(response.json()["instance"]), b'""')


def test_explain_and_you_can_say_what_the_table_says(scene: Scene) -> None:
    for caller in ("watcher", "collaborator", "owner", "admin", "auditor", "run", "system"):
        client = scene.clients[caller]
        you = client.get(f"/v1/rooms/{scene.room}").json()["you"]
        for action in get_args(Action):
            answer = client.get(f"/v1/rooms/{scene.room}/explain", params={"action": action}).json()
            assert set(answer) == {"allowed", "reason"}
            assert answer["allowed"] == (action in you["can"]), (caller, action)
            assert answer["reason"]


def test_nobody_may_write_in_a_closed_room_and_explain_says_why(server: LiveServer) -> None:
    owner = server.member("olga")
    room = open_room(owner)
    assert owner.post(f"/v1/rooms/{room}/close").status_code == 200
    for action in ("chat", "invite", "close"):
        answer = owner.get(f"/v1/rooms/{room}/explain", params={"action": action}).json()
        assert answer == {"allowed": False, "reason": "the room is closed"}
    assert owner.get(f"/v1/rooms/{room}").json()["you"]["can"] == ["read", "fork", "hold", "export"]
    attempts: list[Callable[[], httpx.Response]] = [
        lambda: owner.post(f"/v1/rooms/{room}/messages", json={"text": "too late"}),
        lambda: owner.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"}),
        lambda: owner.delete(f"/v1/rooms/{room}/members/human:bob"),
        lambda: owner.post(f"/v1/rooms/{room}/close"),
    ]
    for attempt in attempts:
        answer = attempt()
        assert (answer.status_code, answer.json()["code"]) == (410, "sealed")
    for stranger in (server.client("human:sam"), server.member("olga", tenant="elsewhere")):
        answer = stranger.post(f"/v1/rooms/{room}/messages", json={"text": "anybody?"})
        assert answer.status_code == 404


def test_anybody_may_leave(server: LiveServer) -> None:
    owner = server.member("olga")
    room = open_room(owner, members=[{"principal": "human:lea", "role": "watcher"}])
    lea = server.client("human:lea")
    assert lea.delete(f"/v1/rooms/{room}/members/human:lea").status_code == 200
    assert lea.get(f"/v1/rooms/{room}").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "//a//b/", "a|b", "ü ñ", "a?b#c%d", "..", "a:b", "😀"])
def test_any_canonical_principal_can_be_a_member(server: LiveServer, name: str) -> None:
    owner = server.member("olga")
    room = open_room(owner)
    url = f"/v1/rooms/{room}/members/{_quoted(f'human:{name}')}"
    assert owner.put(url, json={"role": "watcher"}).status_code == 200
    members = [member["principal"] for member in owner.get(f"/v1/rooms/{room}").json()["members"]]
    assert members == sorted(["human:olga", f"human:{name}"])
    assert server.client(f"human:{name}").get(f"/v1/rooms/{room}").status_code == 200
    assert owner.delete(url).status_code == 200
    assert len(owner.get(f"/v1/rooms/{room}").json()["members"]) == 1


def test_a_token_that_acts_for_somebody_is_for_conversations_alone(server: LiveServer, scene: Scene) -> None:
    """Whoever it acts for, and whatever they might do themselves."""
    tokens = {
        "owner": server.client("human:olga", "agents-admin", act="system:desk"),
        "run": server.client(f"agent:{scene.run}", room=scene.room, act="human:olga"),
    }
    before = scene.seq()
    for method, path in TABLE:
        for caller, client in tokens.items():
            answer = msgspec.structs.replace(scene, clients={caller: client}).send(method, path, caller)
            if "{conversation_id}" in path or path == CONTINUATION:
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (method, path)
            elif path == "/v1/conversations":
                assert answer.status_code == (200 if method == "GET" else 403), (method, path)
            elif path.startswith(CHANNEL):
                assert answer.status_code == 401, (method, path)
            elif path.startswith(SIGN_IN):
                assert answer.status_code == 400, (method, path)
            elif path in OPEN_TO_DELEGATES:
                assert answer.is_success, (method, path, answer.text)
            else:
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), (method, path)
                assert answer.json()["detail"] == "A token that acts for somebody is for conversations only."
    assert scene.seq() == before


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())
