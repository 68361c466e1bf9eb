"""Tokens as the server takes them: one 401 for every bad one, never in a URL or a log (laws 18, 19; B36, B38)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from live_server import LiveServer, follow, open_room, post
from talks import ask, frame, listen, start

ISSUER = "https://id.example"

CONFIG = f"""
[issuers.corp]
issuer = "{ISSUER}"
audience = "minutebook"
jwksFile = "jwks.json"
kind = "human"
tenants = ["acme"]
cliClients = ["cli"]
[agents.echo]
provider = "scripted"
[conversations]
key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
authorizeSeconds = 1
"""

MISSING: Any = object()


class Corp:
    """An identity provider of a company, and a server that trusts it."""

    def __init__(self, server: LiveServer, key: ec.EllipticCurvePrivateKey) -> None:
        self.server = server
        self.key = key

    def token(self, *, key: Any = None, algorithm: str = "ES256", header: Any = None, **claims: Any) -> str:
        """A good token for human:ann, but for what is given; MISSING takes a claim away."""
        now = time.time()
        plain = {
            "iss": ISSUER,
            "aud": "minutebook",
            "sub": "ann",
            "groups": ["agents-member"],
            "iat": int(now),
            "exp": int(now) + 600,
            **claims,
        }
        kept = {name: value for name, value in plain.items() if value is not MISSING}
        signed = jwt.encode(kept, key or self.key, algorithm, {"kid": "one", **(header or {})})
        self.server.tokens.add(signed)
        return signed

    def get(self, token: str, path: str = "/v1/rooms") -> httpx.Response:
        """The answer to that token."""
        return self.server.client().get(path, headers={"authorization": f"Bearer {token}"})

    def client(self, **claims: Any) -> httpx.Client:
        """A client with such a token."""
        client = self.server.client()
        client.headers["authorization"] = f"Bearer {self.token(**claims)}"
        return client


def public_key(key: ec.EllipticCurvePrivateKey, kid: str) -> dict[str, Any]:
    """The key as a JWKS has it."""
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    return {**public, "kid": kid, "alg": "ES256", "use": "sig"}


@pytest.fixture(scope="module")
def corp(new_data_dir: Callable[[], Path]) -> Iterator[Corp]:
    """A server with one configured issuer."""
    key = ec.generate_private_key(ec.SECP256R1())
    folder = new_data_dir()
    (folder / "jwks.json").write_text(json.dumps({"keys": [public_key(key, "one")]}))
    with LiveServer(folder, config=CONFIG) as server:
        yield Corp(server, key)
        server.assert_no_token_in_logs()


def unsigned(corp: Corp, algorithm: str) -> str:
    header, payload, _ = corp.token().split(".")
    changed = json.loads(base64.urlsafe_b64decode(header + "==")) | {"alg": algorithm}
    return f"{base64.urlsafe_b64encode(msgspec.json.encode(changed)).rstrip(b'=').decode()}.{payload}."


BAD: dict[str, Callable[[Corp], str]] = {
    "expired": lambda corp: corp.token(exp=int(time.time()) - 300),
    "of the future by nbf": lambda corp: corp.token(nbf=int(time.time()) + 600),
    "of the future by iat": lambda corp: corp.token(iat=int(time.time()) + 600),
    "without an expiry": lambda corp: corp.token(exp=MISSING),
    "an expiry in words": lambda corp: corp.token(exp="tomorrow"),
    "a lifetime over a day": lambda corp: corp.token(exp=int(time.time()) + 90_000),
    "without a subject": lambda corp: corp.token(sub=MISSING),
    "an invisible subject": lambda corp: corp.token(sub="a\u200b"),
    "another audience": lambda corp: corp.token(aud="elsewhere"),
    "another issuer": lambda corp: corp.token(iss="https://evil.example"),
    "an unknown kid": lambda corp: corp.token(header={"kid": "two"}),
    "another key": lambda corp: corp.token(key=ec.generate_private_key(ec.SECP256R1())),
    "a key of its own": lambda corp: corp.token(
        key=ec.generate_private_key(ec.SECP256R1()), header={"jku": "http://127.0.0.1:1/", "jwk": {"kty": "EC"}}
    ),
    "HS256": lambda corp: corp.token(key="k" * 32, algorithm="HS256"),
    "alg none": lambda corp: unsigned(corp, "none"),
    "alg None": lambda corp: unsigned(corp, "None"),
    "alg empty": lambda corp: unsigned(corp, ""),
    "no signature": lambda corp: corp.token().rpartition(".")[0] + ".",
    "a changed signature": lambda corp: corp.token()[:-6] + "AAAAAA",
    "two parts": lambda corp: corp.token().rpartition(".")[0],
    "no token": lambda _: "x",
    "not base64": lambda _: "a.b.c",
    "too long": lambda _: f"a.{'b' * 20_000}.c",
    "of the development issuer": lambda corp: corp.server.token("human:ann", "agents-admin"),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_every_bad_token_gets_one_answer(corp: Corp, make: Callable[[Corp], str]) -> None:
    answer = corp.get(make(corp))
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.content == corp.get("never.a.token").content


def test_a_good_token_is_taken(corp: Corp) -> None:
    assert corp.get(corp.token()).status_code == 200


def _moved(claims: dict[str, int]) -> dict[str, Any]:
    return {name: int(time.time()) + by for name, by in claims.items()}


SKEWED = [{"iat": 2}, {"nbf": 2}, {"exp": -2, "iat": -60}, {"iat": 25}, {"exp": -25, "iat": -60}]


@pytest.mark.parametrize("claims", SKEWED)
def test_b36_a_clock_that_is_a_little_off_locks_nobody_out(corp: Corp, claims: dict[str, int]) -> None:
    assert corp.get(corp.token(**_moved(claims))).status_code == 200


def test_b36_a_stream_ends_with_its_token_not_earlier(corp: Corp) -> None:
    alice = corp.client()
    room = open_room(alice)
    expiry = int(time.time()) - 27
    short = corp.client(exp=expiry, iat=expiry - 60)
    with follow(short, room) as stream:
        last = stream.rest()[-1]
    assert 29.5 <= time.time() - expiry < 33
    assert (last.event, last.json) == ("reconnect", {"cursor": "1", "reason": "token_expired"})
    assert short.get(f"/v1/rooms/{room}").status_code == 401


@pytest.mark.parametrize("scheme", ["", "Basic ", "Bearer", "bearer: ", "Token "])
def test_other_ways_to_send_it_are_refused(corp: Corp, scheme: str) -> None:
    answer = corp.server.client().get("/v1/rooms", headers={"authorization": f"{scheme}{corp.token()}"})
    assert answer.status_code == 401


def test_the_scheme_is_not_case_sensitive(corp: Corp) -> None:
    answer = corp.server.client().get("/v1/rooms", headers={"authorization": f"bEARER {corp.token()}"})
    assert answer.status_code == 200


@pytest.mark.parametrize("name", ["token", "access_token", "id_token", "jwt", "Access_Token", "auth", "bearer"])
def test_b38_a_token_in_the_url_is_refused(corp: Corp, name: str) -> None:
    token = corp.token()
    room = open_room(corp.client())
    for path in ("/v1/rooms", f"/v1/rooms/{room}/stream", "/v1/nothing"):
        alone = corp.server.client().get(path, params={name: token})
        assert (alone.status_code, alone.json()["code"]) == (401, "unauthenticated")
        beside = corp.client().get(path, params={name: token})
        assert (beside.status_code, beside.json()["code"]) == (400, "malformed")
        for answer in (alone, beside):
            assert token not in answer.text
    corp.server.assert_no_token_in_logs()


def test_a_command_line_client_reads_and_posts_only(corp: Corp) -> None:
    alice, cli = corp.client(), corp.client(azp="cli")
    room = open_room(alice)
    assert cli.get("/v1/rooms").status_code == 200
    assert cli.get(f"/v1/rooms/{room}").json()["you"]["can"] == ["read", "chat", "queue", "fork"]
    assert cli.get(f"/v1/rooms/{room}/events").status_code == 200
    post(cli, room, "from a terminal")
    with follow(cli, room) as stream:
        stream.until("event")
    refused = [
        cli.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"}),
        cli.delete(f"/v1/rooms/{room}/members/human:bob"),
        cli.post(f"/v1/rooms/{room}/close"),
        cli.get(f"/v1/rooms/{room}/export"),
        cli.post("/v1/rooms", json={"dataClass": "public"}),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in refused] == [(403, "client_not_allowed")] * 5
    other = corp.client(azp="console")
    assert other.put(f"/v1/rooms/{room}/members/human:bob", json={"role": "watcher"}).status_code == 200


def test_the_actor_is_the_token_s(corp: Corp) -> None:
    ann = corp.client(sub="Ann Ähm")
    room = open_room(ann)
    event = ann.get(f"/v1/rooms/{room}/events").json()["events"][0]
    assert event["actor"] == {"kind": "human", "id": "Ann Ähm", "role": "owner"}
    forged = ann.get("/v1/rooms", headers={"x-forwarded-user": "human:root", "x-user": "human:root"})
    assert [line["owner"] for line in forged.json()["rooms"] if line["id"] == room] in ([], ["human:Ann Ähm"])


def test_a_key_that_is_withdrawn_ends_the_open_streams_of_conversations(corp: Corp) -> None:
    """Law 17: what only another look at the token can tell takes effect, too."""
    ann, path = corp.client(), corp.server.data_dir / "jwks.json"
    talk = start(ann)
    ask(ann, talk, "still known")
    listed = path.read_text()
    with listen(ann, talk) as stream:
        frame(stream, "message")
        path.write_text(json.dumps({"keys": [public_key(ec.generate_private_key(ec.SECP256R1()), "two")]}))
        try:
            last = stream.rest()
        finally:
            path.write_text(listed)
    assert [(each.event, each.json) for each in last[-2:]] == [
        ("error", {"code": "unauthenticated"}),
        ("closed", {"reason": "not_found"}),
    ]
