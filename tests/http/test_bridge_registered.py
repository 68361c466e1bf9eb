"""Run tokens of a configured issuer: the run is registered first, and its room is the registry's (rooms.md)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from bridges import code, item, new_run_id
from cryptography.hazmat.primitives.asymmetric import ec
from live_server import LiveServer, open_room

ISSUERS = """
[issuers.people]
issuer = "https://people.example"
audience = "minutebook"
jwksFile = "jwks.json"
kind = "human"
tenants = ["acme"]
[issuers.runs]
issuer = "https://runs.example"
audience = "minutebook"
jwksFile = "jwks.json"
kind = "agent"
subPattern = "sandbox:([a-z2-7]{8})"
tenants = ["acme"]
[issuers.others]
issuer = "https://others.example"
audience = "minutebook"
jwksFile = "jwks.json"
kind = "agent"
subPattern = "sandbox:([a-z2-7]{8})"
tenants = ["elsewhere"]
"""


class House:
    """A server that trusts three issuers."""

    def __init__(self, server: LiveServer, key: ec.EllipticCurvePrivateKey) -> None:
        self._server = server
        self._key = key
        self.ann = self.client("people", "ann", groups=["agents-member"])

    def client(self, issuer: str, sub: str, **claims: Any) -> httpx.Client:
        """A client with a token of that issuer."""
        now = int(time.time())
        plain = {"iss": f"https://{issuer}.example", "aud": "minutebook", "sub": sub, "iat": now, "exp": now + 600}
        token = jwt.encode({**plain, **claims}, self._key, "ES256", {"kid": "one"})
        self._server.tokens.add(token)
        client = self._server.client()
        client.headers["authorization"] = f"Bearer {token}"
        return client

    def register(self, room: str, run_id: str) -> None:
        """Ann registers a run in her room."""
        answer = self.ann.put(f"/v1/runs/{run_id}", json={"roomId": room, "role": "tester"})
        assert answer.status_code == 201, answer.text


@pytest.fixture(scope="module")
def house(new_data_dir: Callable[[], Path]) -> Iterator[House]:
    """See House."""
    key = ec.generate_private_key(ec.SECP256R1())
    folder = new_data_dir()
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "one", "alg": "ES256", "use": "sig"}]}))
    with LiveServer(folder, config=ISSUERS) as server:
        yield House(server, key)
        server.assert_no_token_in_logs()


def test_an_unregistered_run_is_not_live_whatever_its_token_says(house: House) -> None:
    room = open_room(house.ann)
    run_id = new_run_id()
    for claims in ({}, {"room": room}, {"room": room, "role": "implementer"}):
        run = house.client("runs", f"sandbox:{run_id}", **claims)
        for path in ("hello", "events", "approvals", "bye"):
            assert code(run.post(f"/v1/bridge/{path}", json={})) == (403, "run_not_live")
        assert code(run.get("/v1/bridge/stream")) == (403, "run_not_live")
        assert run.get(f"/v1/rooms/{room}").status_code == 404
    assert house.ann.get(f"/v1/rooms/{room}").json()["throughSeq"] == 1


def test_hello_works_right_after_the_registration_in_the_registered_room_and_role(house: House) -> None:
    room, other = open_room(house.ann), open_room(house.ann)
    run_id = new_run_id()
    run = house.client("runs", f"sandbox:{run_id}", room=other, role="implementer")
    assert code(run.post("/v1/bridge/hello")) == (403, "run_not_live")
    house.register(room, run_id)
    hello = run.post("/v1/bridge/hello")
    assert hello.status_code == 200, hello.text
    assert hello.json()["roomId"] == room
    assert run.post("/v1/bridge/events", json={"items": [item(1)]}).status_code == 200
    last = house.ann.get(f"/v1/rooms/{room}/events", params={"limit": 500}).json()["events"][-1]
    assert last["actor"] == {"kind": "agent", "id": run_id, "role": "tester"}
    assert run.get(f"/v1/rooms/{room}").status_code == 200
    assert run.get(f"/v1/rooms/{other}").status_code == 404
    assert run.post("/v1/bridge/bye").status_code == 200
    assert code(run.post("/v1/bridge/hello")) == (403, "run_not_live")


def test_a_registered_contender_is_turned_away(house: House) -> None:
    room = open_room(house.ann)
    runs = [new_run_id(), new_run_id()]
    for run_id in runs:
        house.register(room, run_id)
    first, second = (house.client("runs", f"sandbox:{run_id}") for run_id in runs)
    assert first.post("/v1/bridge/hello").status_code == 200
    assert code(second.post("/v1/bridge/hello")) == (409, "room_busy")
    assert first.post("/v1/bridge/bye").status_code == 200
    assert second.post("/v1/bridge/hello").status_code == 200


def test_another_tenants_issuer_speaks_for_no_run_of_this_one(house: House) -> None:
    room = open_room(house.ann)
    run_id = new_run_id()
    house.register(room, run_id)
    assert code(house.client("others", f"sandbox:{run_id}").post("/v1/bridge/hello")) == (404, "not_found")
    assert house.client("runs", f"sandbox:{run_id}").post("/v1/bridge/hello").status_code == 200
