"""Keys of issuers: rotation, floods, outages and hostile key sets, against a real key endpoint."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import json
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from minutebook.domain.errors import Unauthenticated, Unavailable
from minutebook.infra.jwks import (
    MAX_JWKS_BYTES,
    MAX_KEYS,
    FileKeys,
    HttpKeys,
    KeyFetchError,
    KeySource,
    KeyTiming,
    parse_key_set,
)
from minutebook.infra.settings import IssuerSettings, Settings
from minutebook.infra.tokens import REFUSAL, TokenVerifier

NOW = 1_800_000_000
WAIT_S = 10
"""Longest wait for something that must happen; a test that gets there fails."""

KEYS = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("one", "two")}


class Clock:
    """Unix seconds that stand still until a test moves them."""

    def __init__(self) -> None:
        self.now: float = NOW

    def __call__(self) -> float:
        return self.now


class Endpoint:
    """A key endpoint on a real socket. A test sets what it answers and waits for the number of requests."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []
        self.seen_headers: list[dict[str, str]] = []
        self.release = threading.Event()
        self.release.set()
        self._arrived = threading.Condition()
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint.note(self.path, dict(self.headers.items()))
                endpoint.release.wait(WAIT_S)
                try:
                    self.send_response(endpoint.status)
                    for name, value in endpoint.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(endpoint.body)))
                    self.end_headers()
                    self.wfile.write(endpoint.body)
                except OSError:
                    return

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Says nothing."""

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/jwks"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def note(self, path: str, headers: dict[str, str]) -> None:
        with self._arrived:
            self.paths.append(path)
            self.seen_headers.append(headers)
            self._arrived.notify_all()

    async def requests(self, count: int) -> None:
        """Returns when `count` requests have arrived since the start."""

        def wait() -> bool:
            with self._arrived:
                return self._arrived.wait_for(lambda: len(self.paths) >= count, WAIT_S)

        assert await asyncio.to_thread(wait), f"{len(self.paths)} requests instead of {count}"

    def publish(self, *kids: str) -> None:
        self.status = 200
        self.headers = {}
        self.body = key_set(*kids)

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    server.publish("one")
    yield server
    server.close()


def jwk(name: str, **members: Any) -> dict[str, Any]:
    public = KEYS[name].public_key()
    return {**jwt.get_algorithm_by_name("ES256").to_jwk(public, as_dict=True), "kid": name, **members}


def key_set(*kids: str) -> bytes:
    return json.dumps({"keys": [jwk(kid) for kid in kids]}).encode()


def token(kid: str, header_kid: str | None = None, sub: str = "ada") -> str:
    claims = {"iss": "https://id.example", "aud": "minutebook", "sub": sub, "iat": NOW, "exp": NOW + 80_000}
    return jwt.encode(claims, KEYS[kid], "ES256", {"kid": header_kid or kid})


def settings(folder: Path, *, url: str | None = None, file: Path | None = None) -> Settings:
    issuer = IssuerSettings(
        issuer="https://id.example",
        audience="minutebook",
        kind="human",
        tenants=("acme",),
        jwks_url=url,
        jwks_file=str(file) if file else None,
    )
    return Settings(data_dir=folder, issuers={"corp": issuer})


QUIET = KeyTiming(retry_min_s=3600, retry_max_s=3600)
"""No refresh by itself within a test."""

EAGER = KeyTiming(refresh_s=0.01, retry_min_s=0.01, retry_max_s=0.02)
"""Refreshes all the time."""

Scenario = Callable[[TokenVerifier, Clock], Coroutine[Any, Any, None]]


def play(config: Settings, scenario: Scenario, timing: KeyTiming = QUIET) -> None:
    async def run() -> None:
        clock = Clock()
        verifier = TokenVerifier(config, clock, timing)
        async with asyncio.timeout(WAIT_S * 3):
            await verifier.start()
            try:
                await scenario(verifier, clock)
            finally:
                await verifier.close()

    asyncio.run(run())


async def verdict(verifier: TokenVerifier, sent: str) -> str:
    """`ok`, `401` (with the one detail), `503`, or something else that no test expects."""
    try:
        await verifier.verify(sent)
    except Unauthenticated as error:
        return "401" if error.detail == REFUSAL else error.detail
    except Unavailable as error:
        return "503" if error.attributes["retryAfterMs"] > 0 else error.detail
    return "ok"


async def becomes(endpoint: Endpoint, verifier: TokenVerifier, sent: str, expected: str) -> None:
    """Returns once the token has that verdict, tried again after each fetch."""
    async with asyncio.timeout(WAIT_S):
        while await verdict(verifier, sent) != expected:
            await endpoint.requests(len(endpoint.paths) + 1)


# --- B37: rotation


def test_b37_a_newly_published_key_works_at_once_and_the_old_one_until_it_is_gone(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        old, new = token("one"), token("two")
        assert await verdict(verifier, old) == "ok"
        endpoint.publish("one", "two")
        assert await verdict(verifier, new) == "ok"
        assert await verdict(verifier, old) == "ok"
        assert len(endpoint.paths) == 2
        endpoint.publish("two")
        clock.now += 61
        assert await verdict(verifier, token("one", "unheard of")) == "401"
        assert len(endpoint.paths) == 3
        assert await verdict(verifier, old) == "401"
        assert await verdict(verifier, new) == "ok"

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_b37_a_key_that_is_removed_stops_with_the_next_refresh(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        endpoint.publish("two")
        await becomes(endpoint, verifier, token("one"), "401")
        endpoint.body = b'{"keys": []}'
        await becomes(endpoint, verifier, token("two"), "401")

    play(settings(tmp_path, url=endpoint.url), scenario, EAGER)


def test_b37_a_cached_token_ends_with_its_key_also_under_the_same_kid(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        sent = token("one")
        assert await verdict(verifier, sent) == "ok"
        endpoint.body = json.dumps({"keys": [jwk("two", kid="one")]}).encode()
        assert await verdict(verifier, token("two", "trigger")) == "401"
        assert await verdict(verifier, sent) == "401"
        assert await verdict(verifier, token("two", "one")) == "ok"

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_keys_are_refreshed_hourly_with_jitter_and_sooner_after_a_failure() -> None:
    def nothing(_: object) -> object:
        raise AssertionError

    source = KeySource("corp", HttpKeys("http://127.0.0.1:1/", 1), nothing, Clock(), KeyTiming())
    delays = [source.next_delay_s() for _ in range(200)]
    assert 3240 <= min(delays) < max(delays) <= 3960
    assert max(delays) - min(delays) > 300

    async def fail() -> list[float]:
        waits: list[float] = []
        for _ in range(12):
            await source.refresh()
            waits.append(source.next_delay_s())
        await source.close()
        return waits

    waits = asyncio.run(fail())
    assert waits[0] <= 1.1
    assert waits[3] > waits[0]
    assert max(waits) <= 33


# --- B37: unknown key ids


def test_b37_a_flood_of_made_up_kids_causes_one_fetch_a_minute(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        good = token("one")
        assert await verdict(verifier, good) == "ok"
        forged = [token("two", f"made-up-{number}") for number in range(1000)]
        together = await asyncio.gather(*(verdict(verifier, sent) for sent in forged[:500]))
        later = [await verdict(verifier, sent) for sent in forged[500:]]
        assert set(together) | set(later) == {"401"}
        assert len(endpoint.paths) == 2
        assert await verdict(verifier, token("one", sub="eve")) == "ok"
        clock.now += 59
        assert await verdict(verifier, forged[0]) == "401"
        assert len(endpoint.paths) == 2
        clock.now += 2
        assert [await verdict(verifier, sent) for sent in forged[:3]] == ["401"] * 3
        assert len(endpoint.paths) == 3

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_b37_users_pass_while_a_fetch_for_a_made_up_kid_hangs(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        endpoint.release.clear()
        waiting = [asyncio.create_task(verdict(verifier, token("two", f"x{number}"))) for number in range(5)]
        await endpoint.requests(2)
        waiting[0].cancel()
        assert await verdict(verifier, token("one")) == "ok"
        endpoint.publish("one", "two")
        endpoint.release.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == ["401"] * 4
        assert await verdict(verifier, token("two")) == "ok"
        assert len(endpoint.paths) == 2

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_tokens_of_other_issuers_algorithms_or_shapes_cause_no_fetch(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        claims = {"iss": "https://evil.example", "aud": "minutebook", "sub": "a", "exp": NOW + 60}
        headers = {"kid": "x", "jku": endpoint.url, "x5u": endpoint.url}
        assert await verdict(verifier, jwt.encode(claims, KEYS["one"], "ES256", headers)) == "401"
        claims["iss"] = "https://id.example"
        assert await verdict(verifier, jwt.encode(claims, "k" * 64, "HS256", headers)) == "401"
        assert await verdict(verifier, jwt.encode({"iss": claims["iss"]}, KEYS["one"], "ES256", headers)) == "401"
        assert await verdict(verifier, "a.b.c") == "401"
        assert endpoint.paths == ["/jwks"]

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_a_bad_signature_under_a_known_kid_causes_no_fetch(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("two", "one")) == "401"
        assert len(endpoint.paths) == 1

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_a_key_set_without_kids_is_fetched_again_when_its_one_key_was_replaced(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        claims = {"iss": "https://id.example", "aud": "minutebook", "sub": "ada", "exp": NOW + 60}
        old, new = (jwt.encode(claims, KEYS[name], "ES256") for name in ("one", "two"))
        assert await verdict(verifier, old) == "ok"
        endpoint.publish("two")
        assert await verdict(verifier, new) == "ok"
        assert await verdict(verifier, old) == "401"
        assert len(endpoint.paths) == 2

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_law_18_a_header_never_chooses_where_keys_come_from(tmp_path: Path, endpoint: Endpoint) -> None:
    evil = Endpoint()
    evil.publish("two")

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        claims = {"iss": "https://id.example", "aud": "minutebook", "sub": "ada", "iat": NOW, "exp": NOW + 60}
        headers = {"kid": "two", "jku": evil.url, "x5u": evil.url, "jwk": jwk("two")}
        assert await verdict(verifier, jwt.encode(claims, KEYS["two"], "ES256", headers)) == "401"
        assert endpoint.paths == ["/jwks", "/jwks"]
        assert evil.paths == []

    try:
        play(settings(tmp_path, url=endpoint.url), scenario)
    finally:
        evil.close()


# --- B37: outages


def hostile(endpoint: Endpoint, kind: str) -> None:
    """Makes the endpoint answer something that is no key set."""
    if kind == "refused connection":
        endpoint.close()
        return
    endpoint.status, endpoint.body = {
        "500": (500, key_set("two")),
        "404": (404, b""),
        "204": (204, b""),
        "html": (200, b"<html>busy</html>"),
        "redirect": (302, b""),
        "list": (200, b"[]"),
        "keys is no list": (200, b'{"keys": {}}'),
        "no keys": (200, b'{"error": "busy"}'),
        "deep": (200, b'{"keys":' + b"[" * 20_000),
        "not utf-8": (200, b"\xff\xfe"),
        "compressed": (200, gzip.compress(key_set("two"))),
        "too big": (200, key_set("two") + b" " * MAX_JWKS_BYTES),
        "too many": (200, json.dumps({"keys": [jwk("two")] * (MAX_KEYS + 1)}).encode()),
        "empty": (200, b""),
    }[kind]
    endpoint.headers = {
        "redirect": {"Location": endpoint.url.replace("/jwks", "/elsewhere")},
        "compressed": {"Content-Encoding": "gzip"},
    }.get(kind, {})


OUTAGES = [
    *("500", "404", "204", "html", "redirect", "list", "keys is no list", "no keys", "deep", "not utf-8"),
    *("compressed", "too big", "too many", "empty", "refused connection"),
]


REASONS = {
    "500": "status 500",
    "redirect": "status 302",
    "compressed": "compressed answer",
    "deep": "not a key set",
    "html": "not a key set",
    "too big": f"more than {MAX_JWKS_BYTES} bytes",
    "too many": f"more than {MAX_KEYS} keys",
}
"""What doctor shows: never a byte of the answer."""


@pytest.mark.parametrize("kind", OUTAGES)
def test_b37_an_answer_that_is_no_key_set_keeps_the_known_keys(tmp_path: Path, endpoint: Endpoint, kind: str) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        hostile(endpoint, kind)
        assert await verdict(verifier, token("two")) == "401"
        assert list(verifier.key_failures()) == ["corp"]
        assert verifier.key_failures()["corp"] == REASONS.get(kind, verifier.key_failures()["corp"])
        assert await verdict(verifier, token("one", sub="eve")) == "ok"
        assert await verdict(verifier, token("one")) == "ok"
        assert set(endpoint.paths) == {"/jwks"}

    play(settings(tmp_path, url=endpoint.url), scenario)


@pytest.mark.parametrize("kind", ["500", "html", "too big"])
def test_b37_a_server_that_starts_meanwhile_answers_503_and_recovers_alone(
    tmp_path: Path, endpoint: Endpoint, kind: str
) -> None:
    hostile(endpoint, kind)

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "503"
        assert await verdict(verifier, "a.b.c") == "401"
        await endpoint.requests(len(endpoint.paths) + 2)
        assert await verdict(verifier, token("one")) == "503"
        endpoint.publish("one")
        await becomes(endpoint, verifier, token("one"), "ok")
        assert verifier.key_failures() == {}
        assert await verdict(verifier, token("two")) == "401"

    play(settings(tmp_path, url=endpoint.url), scenario, EAGER)


def test_b37_an_endpoint_that_hangs_is_given_up_and_keeps_the_known_keys(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        endpoint.release.clear()
        assert await verdict(verifier, token("two")) == "401"
        assert verifier.key_failures() == {"corp": "timed out"}
        assert await verdict(verifier, token("one", sub="eve")) == "ok"

    play(settings(tmp_path, url=endpoint.url), scenario, QUIET._replace(timeout_s=0.2))


def test_b37_a_start_does_not_wait_for_an_endpoint_that_hangs(tmp_path: Path, endpoint: Endpoint) -> None:
    endpoint.release.clear()

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "503"
        endpoint.release.set()
        await becomes(endpoint, verifier, token("one"), "ok")

    play(settings(tmp_path, url=endpoint.url), scenario, EAGER._replace(timeout_s=0.2))


def test_the_default_timeout_is_five_seconds() -> None:
    assert KeyTiming() == (3600, 0.1, 1, 30, 60, 86_400, 5, 1)


def test_b37_held_keys_stop_24_hours_after_the_last_good_fetch(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        claims = {"iss": "https://id.example", "aud": "minutebook", "sub": "ada"}

        def sent() -> str:
            times = {"iat": int(clock.now), "exp": int(clock.now) + 3600}
            return jwt.encode({**claims, **times}, KEYS["one"], "ES256", {"kid": "one"})

        endpoint.status = 500
        clock.now = NOW + 86_400
        last = sent()
        assert await verdict(verifier, last) == "ok"
        clock.now += 1
        assert await verdict(verifier, last) == "503"
        assert await verdict(verifier, sent()) == "503"

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_a_clock_that_is_set_back_does_not_lengthen_the_life_of_keys(tmp_path: Path, endpoint: Endpoint) -> None:
    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        claims = {"iss": "https://id.example", "aud": "minutebook", "sub": "ada"}
        clock.now = NOW - 50_000
        early = {**claims, "exp": int(clock.now) + 80_000}
        assert await verdict(verifier, jwt.encode(early, KEYS["one"], "ES256", {"kid": "one"})) == "ok"
        clock.now += 86_401
        late = {**claims, "exp": int(clock.now) + 600}
        assert await verdict(verifier, jwt.encode(late, KEYS["one"], "ES256", {"kid": "one"})) == "503"

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_a_redirect_is_not_followed(tmp_path: Path, endpoint: Endpoint) -> None:
    other = Endpoint()
    other.publish("one")
    endpoint.status, endpoint.headers = 302, {"Location": other.url}

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "503"
        assert verifier.key_failures() == {"corp": "status 302"}
        assert other.paths == []

    try:
        play(settings(tmp_path, url=endpoint.url), scenario)
    finally:
        other.close()


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        assert "authorization" not in {name.lower() for name in endpoint.seen_headers[0]}

    play(settings(tmp_path, url=endpoint.url), scenario)


# --- what is in a key set


def public_only(members: Any) -> Any:
    assert set(members) <= {"kty", "crv", "x", "y", "n", "e"}
    if members.get("x") == "explode":
        raise KeyError("y")
    return dict(members)


ODD_KEYS: list[Any] = [
    jwk("two", use="enc"),
    jwk("two", key_ops=["sign"]),
    jwk("two", alg="HS256"),
    jwk("two", alg="RS256"),
    jwk("two", alg=["ES256"]),
    jwk("two", kid=5),
    jwk("two", d="AAAA"),
    jwk("two", crv="secp256k1"),
    jwk("two", crv=["P-256"]),
    jwk("two", x="explode"),
    {"kty": "oct", "k": "c2VjcmV0", "kid": "two"},
    {"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "AQAB"},
    {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
    {"kid": "two"},
    {},
    [],
    None,
    "key",
    7,
]


@pytest.mark.parametrize("odd", ODD_KEYS)
def test_an_unusable_key_is_left_out_and_the_others_stay(odd: Any) -> None:
    body = json.dumps({"keys": [odd, jwk("one", use="sig", key_ops=["verify"], x5c=["MII"], extra={"a": 1})]}).encode()
    (key,) = parse_key_set(body, public_only)
    assert key.kid == "one"
    assert key.algorithms == {"ES256"}


def test_private_symmetric_and_weak_keys_do_not_verify(tmp_path: Path, endpoint: Endpoint) -> None:
    weak = rsa.generate_private_key(65537, 1024)  # noqa: S505 - the point of the test
    to_jwk = jwt.get_algorithm_by_name("RS256").to_jwk
    endpoint.body = json.dumps(
        {
            "keys": [
                {**to_jwk(weak.public_key(), as_dict=True), "kid": "weak"},
                {**jwt.get_algorithm_by_name("ES256").to_jwk(KEYS["two"], as_dict=True), "kid": "private"},
                {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "nonsense"},
                {"kty": "RSA", "kid": "nonsense"},
                jwk("one"),
            ]
        }
    ).encode()

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        assert await verdict(verifier, token("two", "private")) == "401"
        assert await verdict(verifier, token("two", "nonsense")) == "401"
        source = verifier._sources["corp"]  # pyright: ignore[reportPrivateUsage]
        assert [key.kid for key in source.current()] == ["one"]

    play(settings(tmp_path, url=endpoint.url), scenario)


def test_a_hundred_keys_are_taken_and_one_more_is_not() -> None:
    def body(count: int) -> bytes:
        return json.dumps({"keys": [jwk("one", kid=str(number)) for number in range(count)]}).encode()

    assert len(parse_key_set(body(MAX_KEYS), public_only)) == MAX_KEYS
    with pytest.raises(KeyFetchError, match="more than 100 keys"):
        parse_key_set(body(MAX_KEYS + 1), public_only)


# --- key files


def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set("one"))

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        sent = token("one")
        assert await verdict(verifier, sent) == "ok"
        path.write_bytes(key_set("two"))
        os.utime(path, ns=(1, 1))
        clock.now += 1
        assert await verdict(verifier, sent) == "401"
        assert await verdict(verifier, token("two")) == "ok"
        path.write_bytes(b"half a fi")
        clock.now += 1
        assert await verdict(verifier, token("two")) == "ok"
        path.unlink()
        clock.now += 1
        assert await verdict(verifier, token("two")) == "ok"

    play(settings(tmp_path, file=path), scenario)


def test_an_unknown_kid_reads_the_key_file_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set("one"))

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "ok"
        path.write_bytes(key_set("one", "two"))
        assert await verdict(verifier, token("two")) == "ok"

    play(settings(tmp_path, file=path), scenario, QUIET._replace(file_check_s=1e9))


def test_a_key_file_that_comes_later_is_found(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    async def scenario(verifier: TokenVerifier, clock: Clock) -> None:
        assert await verdict(verifier, token("one")) == "503"
        path.write_bytes(key_set("one"))
        clock.now += 1
        assert await verdict(verifier, token("one")) == "ok"

    play(settings(tmp_path, file=path), scenario)


@pytest.mark.parametrize("kind", ["pipe", "folder", "big", "absent"])
def test_a_key_file_that_is_none_fails_the_fetch(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "keys.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "big":
        path.write_bytes(b" " * (MAX_JWKS_BYTES + 1))

    async def fetch() -> None:
        async with asyncio.timeout(WAIT_S):
            await FileKeys(path).fetch()

    with pytest.raises(KeyFetchError):
        asyncio.run(fetch())
