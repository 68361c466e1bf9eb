"""Tokens: what verifies, as whom, and that everything else is one and the same refusal (rules 18 and 19)."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
import structlog
import structlog.testing
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.utils import der_to_raw_signature
from minutebook.domain.errors import Invalid, Unauthenticated
from minutebook.domain.principals import Caller, Principal
from minutebook.infra import tokens
from minutebook.infra.dev_issuer import KEY_NAME, MAX_TTL_S, DevelopmentIssuer
from minutebook.infra.settings import (
    IssuerSettings,
    ServerSettings,
    Settings,
    SettingsError,
)
from minutebook.infra.settings_clearance import ClearanceRules, ClearanceSettings
from minutebook.infra.settings_conversations import ConversationSettings
from minutebook.infra.token_reading import LEEWAY_S
from minutebook.infra.tokens import MAX_TOKEN_BYTES, REFUSAL, TokenVerifier

NOW = 1_800_000_000
ISS = "https://id.example"
AUD = "minutebook"
HUMAN = Principal("human", "ada")

EC = ec.generate_private_key(ec.SECP256R1())
EC_OTHER = ec.generate_private_key(ec.SECP256R1())
EC_384 = ec.generate_private_key(ec.SECP384R1())
RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()


class Clock:
    """Unix seconds that stand still until a test moves them."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def jwk_of(key: Any, **members: Any) -> dict[str, Any]:
    algorithm = {"RSAPrivateKey": "RS256", "Ed25519PrivateKey": "EdDSA"}.get(type(key).__name__, "ES256")
    return {**jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True), **members}


JWKS: list[dict[str, Any]] = [
    jwk_of(EC, kid="ec", use="sig"),
    jwk_of(EC_384, kid="ec384"),
    jwk_of(RSA, kid="rsa", use="sig", alg="RS256"),
    jwk_of(ED, kid="ed"),
]


def settings_for(folder: Path, keys: list[dict[str, Any]] | None = None, **changes: Any) -> Settings:
    """One issuer `corp` with a key file; `changes` are IssuerSettings fields, `clearance` is the section."""
    (folder / "keys.json").write_text(json.dumps({"keys": JWKS if keys is None else keys}), encoding="utf-8")
    clearance = changes.pop("clearance", ClearanceSettings())
    fields: dict[str, Any] = {
        "issuer": ISS,
        "audience": AUD,
        "kind": "human",
        "jwks_file": str(folder / "keys.json"),
        "tenants": ("acme",),
        "algorithms": ("ES256",),
    }
    issuer = IssuerSettings(**{**fields, **changes})
    return Settings(data_dir=folder, issuers={"corp": issuer}, clearance=clearance)


def claims(**changes: Any) -> dict[str, Any]:
    """Good claims; a change to `...` removes the claim."""
    base: dict[str, Any] = {"iss": ISS, "aud": AUD, "sub": "ada", "iat": NOW, "exp": NOW + 600}
    return {name: value for name, value in {**base, **changes}.items() if value is not ...}


def mint(key: Any = EC, alg: str = "ES256", kid: Any = "ec", header: Any = None, **changes: Any) -> str:
    headers: dict[str, Any] = header or {}
    if kid is not None:
        headers = {"kid": kid, **headers}
    return jwt.encode(claims(**changes), key, algorithm=alg, headers=headers)


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def forge(header: Any, payload: Any = None, sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    """A token with any header (an object or raw bytes) and any way to sign."""
    parts = [header, claims() if payload is None else payload]
    encoded = [b64(part if isinstance(part, bytes) else json.dumps(part).encode()) for part in parts]
    signed = ".".join(encoded)
    return f"{signed}.{b64(sign(signed.encode()))}"


def es256(signed: bytes) -> bytes:
    """The genuine signature, so that a refusal can only come from the rest of the token."""
    return jwt.get_algorithm_by_name("ES256").sign(signed, EC)


def on_curve(key: ec.EllipticCurvePrivateKey, digest: hashes.HashAlgorithm) -> Callable[[bytes], bytes]:
    """A signature that the library would not make: a curve with the hash of another algorithm."""
    return lambda signed: der_to_raw_signature(key.sign(signed, ec.ECDSA(digest)), key.curve)


def hs256(secret: bytes) -> Callable[[bytes], bytes]:
    return lambda signed: hmac.digest(secret, signed, hashlib.sha256)


async def callers(settings: Settings, *sent: str, clock: Clock | None = None) -> list[Caller | Exception]:
    verifier = TokenVerifier(settings, clock or Clock())
    await verifier.start()
    try:
        return [await outcome(verifier, token) for token in sent]
    finally:
        await verifier.close()


async def outcome(verifier: TokenVerifier, token: str) -> Caller | Exception:
    try:
        return await verifier.verify(token)
    except Exception as error:
        return error


def accepted(settings: Settings, token: str) -> Caller:
    (result,) = asyncio.run(callers(settings, token))
    assert isinstance(result, Caller), result
    return result


def assert_refused(settings: Settings, *sent: str) -> None:
    """Every token is refused with one and the same detail and nothing else in the error."""
    for token, result in zip(sent, asyncio.run(callers(settings, *sent)), strict=True):
        assert type(result) is Unauthenticated, (token, result)
        assert (result.detail, result.attributes) == (REFUSAL, {}), token
        assert result.__cause__ is None


# --- what verifies


@pytest.mark.parametrize(
    ("key", "alg", "kid"),
    [
        (EC, "ES256", "ec"),
        (EC_384, "ES384", "ec384"),
        (RSA, "RS256", "rsa"),
        (ED, "EdDSA", "ed"),
    ],
)
def test_each_allowed_algorithm_verifies_with_its_own_key_only(tmp_path: Path, key: Any, alg: str, kid: str) -> None:
    settings = settings_for(tmp_path, algorithms=("ES256", "ES384", "RS256", "RS512", "PS256", "EdDSA"))
    assert accepted(settings, mint(key, alg, kid)).principal == HUMAN
    others = [name for name in ("ec", "ec384", "rsa", "ed") if name != kid]
    assert_refused(settings, *(mint(key, alg, other) for other in others))


def test_a_token_becomes_a_caller(tmp_path: Path) -> None:
    caller = accepted(settings_for(tmp_path), mint(groups=["agents-member", "x"], azp="web"))
    assert caller == Caller(
        principal=HUMAN,
        tenant="acme",
        groups=frozenset({"agents-member", "x"}),
        is_member=True,
        expires_at=NOW + 600 + LEEWAY_S,
        claims={"groups": ("agents-member", "x")},
    )


def test_the_audience_may_be_one_of_a_list(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert accepted(settings, mint(aud=["other", AUD]))
    assert_refused(settings, mint(aud=["other"]), mint(aud=[]), mint(aud=[AUD, 1]), mint(aud={"a": AUD}), mint(aud=...))


def test_a_token_without_kid_needs_a_set_with_one_fitting_key(tmp_path: Path) -> None:
    assert accepted(settings_for(tmp_path), mint(kid=None))
    assert_refused(settings_for(tmp_path), mint(EC_OTHER, kid=None))
    two = [jwk_of(EC, kid="a"), jwk_of(EC_OTHER, kid="b")]
    assert_refused(settings_for(tmp_path, two), mint(kid=None))


def test_keys_that_share_a_kid_are_both_tried(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, [jwk_of(EC_OTHER, kid="k"), jwk_of(EC, kid="k"), jwk_of(RSA, kid="k")])
    assert accepted(settings, mint(kid="k"))
    assert accepted(settings, mint(EC_OTHER, kid="k"))


# --- B33: the algorithm is never taken from the token


def public_forms(key: Any) -> list[bytes]:
    public = key.public_key()
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = public.public_bytes(serialization.Encoding.PEM, spki)
    jwk = jwk_of(key)
    return [
        pem,
        pem.rstrip(b"\n"),
        pem.replace(b"\n", b"\r\n"),
        public.public_bytes(serialization.Encoding.DER, spki),
        json.dumps(jwk).encode(),
        json.dumps(jwk, separators=(",", ":")).encode(),
        json.dumps({"keys": JWKS}).encode(),
        b"",
    ]


@pytest.mark.parametrize(
    ("key", "kid", "alg"),
    [(EC, "ec", "ES256"), (RSA, "rsa", "RS256"), (ED, "ed", "EdDSA")],
    ids=["ec", "rsa", "ed"],
)
def test_b33_hmac_keyed_by_the_public_key_is_refused(tmp_path: Path, key: Any, kid: str, alg: str) -> None:
    settings = settings_for(tmp_path, algorithms=(alg,))
    assert accepted(settings, mint(key, alg, kid))
    headers = [{"alg": "HS256", "kid": kid}, {"alg": "HS256"}, {"alg": alg, "kid": kid}]
    assert_refused(settings, *(forge(h, None, hs256(form)) for h in headers for form in public_forms(key)))


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", None, ..., 0, True, ["ES256"], {"a": 1}, "es256"])
def test_b33_alg_none_and_its_kin_are_refused(tmp_path: Path, alg: Any) -> None:
    header = {"kid": "ec"} if alg is ... else {"alg": alg, "kid": "ec"}
    signed = forge(header).rpartition(".")[0]
    signature = mint().rpartition(".")[2]
    assert_refused(
        settings_for(tmp_path),
        forge(header),
        forge(header, None, es256),
        signed,
        f"{signed}.{signature}",
        forge({**header, "kid": ""}),
    )


def test_b33_an_empty_or_cut_signature_is_refused(tmp_path: Path) -> None:
    good = mint()
    head, _, signature = good.rpartition(".")
    assert_refused(
        settings_for(tmp_path),
        f"{head}.",
        head,
        f"{head}..",
        f"{good}.",
        f".{good}",
        f"{head}.{signature[:-4]}",
        f"{head}.{b64(bytes(64))}",
        f"{good}=",
        good + "\n",
        " " + good,
        "",
        "..",
        "a.b.c",
        "é.é.é",
        "\udcff.a.b",
    )


def test_b33_an_algorithm_of_another_key_type_or_outside_the_list_is_refused(tmp_path: Path) -> None:
    every = ("ES256", "ES384", "RS256", "RS512", "PS256", "EdDSA")
    assert_refused(
        settings_for(tmp_path, algorithms=every),
        mint(RSA, "RS256", "ec"),
        mint(RSA, "RS256", "ed"),
        mint(RSA, "RS512", "rsa"),
        mint(RSA, "PS256", "rsa"),
        forge({"alg": "ES256", "kid": "ec384"}, None, on_curve(EC_384, hashes.SHA256())),
        forge({"alg": "ES384", "kid": "ec"}, None, on_curve(EC, hashes.SHA384())),
        mint(ED, "EdDSA", "ec"),
    )
    assert_refused(
        settings_for(tmp_path, algorithms=("ES256",)),
        mint(RSA, "RS256", "rsa"),
        mint(EC_384, "ES384", "ec384"),
        mint(ED, "EdDSA", "ed"),
    )


def test_b33_the_algorithm_that_a_key_names_is_the_only_one(tmp_path: Path) -> None:
    every = ("RS256", "PS256")
    assert accepted(settings_for(tmp_path, [jwk_of(RSA, kid="k")], algorithms=every), mint(RSA, "PS256", "k"))
    named = [jwk_of(RSA, kid="k", alg="RS256")]
    assert_refused(settings_for(tmp_path, named, algorithms=every), mint(RSA, "PS256", "k"))


# --- law 18: no header adds a key, causes a fetch or crashes


@pytest.mark.parametrize("kid", [1, None, True, [], {}, ["ec"], 1.5, "", "unknown", "ec ", "EC", "../../ec", "\u0000"])
def test_a_kid_of_an_odd_type_or_unknown_is_refused(tmp_path: Path, kid: Any) -> None:
    assert_refused(settings_for(tmp_path), forge({"alg": "ES256", "kid": kid}, None, es256))


def test_keys_in_the_header_are_not_believed(tmp_path: Path) -> None:
    mine = jwk_of(EC_OTHER, kid="mine")
    for header in (
        {"jwk": mine},
        {"jku": "https://evil.example/k"},
        {"x5u": "https://evil.example/c"},
        {"x5c": ["MII"]},
    ):
        assert_refused(
            settings_for(tmp_path),
            mint(EC_OTHER, kid="ec", header=header),
            mint(EC_OTHER, kid="mine", header=header),
            mint(EC_OTHER, kid=None, header=header),
        )
        assert accepted(settings_for(tmp_path), mint(header=header))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "ES256", "kid": "ec", "crit": ["exp"]},
        {"alg": "ES256", "kid": "ec", "crit": []},
        {"alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": False},
        {"alg": "ES256", "kid": "ec", "b64": False},
        {"alg": "ES256", "kid": "ec", "b64": True},
        b"[]",
        b"null",
        b'"ES256"',
        b"\xff\xfe",
        b"{",
        b"[" * 5000,
        b'{"alg":"ES256","kid":"ec","x":' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"alg":"ES256","kid":"ec","x":' + b"9" * 5000 + b"}",
        b'{"alg":"ES256","alg":"none","kid":"ec"}',
    ],
)
def test_a_header_that_is_not_plain_is_refused(tmp_path: Path, header: Any) -> None:
    assert_refused(settings_for(tmp_path), forge(header, None, es256))


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b"null",
        b"\xff",
        b'{"iss":"https://id.example","aud":"minutebook","x":' + b"[" * 3000 + b"]" * 3000 + b"}",
        json.dumps(claims()).encode()[:-1] + b',"exp":NaN}',
        json.dumps(claims()).encode()[:-1] + b',"exp":Infinity}',
        json.dumps(claims()).encode()[:-1] + b',"exp":1e400}',
        json.dumps(claims()).encode()[:-1] + b',"x":' + b"9" * 5000 + b"}",
        json.dumps(claims()).encode()[:-1] + b',"iss":"https://evil.example"}',
    ],
)
def test_a_payload_that_is_not_plain_is_refused_though_signed(tmp_path: Path, payload: bytes) -> None:
    assert accepted(settings_for(tmp_path), forge({"alg": "ES256", "kid": "ec"}, claims(), es256))
    assert_refused(settings_for(tmp_path), forge({"alg": "ES256", "kid": "ec"}, payload, es256))


def test_a_token_over_the_size_limit_is_not_looked_at(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    spare = (MAX_TOKEN_BYTES - len(mint(pad=""))) * 3 // 4 - 8
    assert accepted(settings, mint(pad="x" * spare))
    assert_refused(settings, mint(pad="x" * (spare + 16)))


# --- law 19: issuer, audience, subject, expiry


@pytest.mark.parametrize("name", ["iss", "aud", "sub", "exp"])
@pytest.mark.parametrize("value", [..., None, "", 0, True, [], {}, "other", -1, 1.5])
def test_a_missing_or_malformed_claim_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    if (name, value) == ("sub", "other"):
        return
    payload = claims(**{name: value})
    assert_refused(settings_for(tmp_path), forge({"alg": "ES256", "kid": "ec"}, payload, es256))


@pytest.mark.parametrize(
    "sub", [" ada", "ada ", "a\u0000", "a\nb", "a\u200b", "e\u0301", "x" * 256, "\u202eada", "\ud800"]
)
def test_a_subject_has_one_canonical_form(tmp_path: Path, sub: str) -> None:
    assert_refused(settings_for(tmp_path), forge({"alg": "ES256", "kid": "ec"}, claims(sub=sub), es256))


@pytest.mark.parametrize(
    "value", [str(NOW + 60), True, None, [NOW + 60], 1e300, 10**30, 10**400, -1, NOW + 600 * 10**9]
)
@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
def test_times_are_numbers_in_range(tmp_path: Path, name: str, value: Any) -> None:
    payload = claims(**{name: value})
    assert_refused(settings_for(tmp_path), forge({"alg": "ES256", "kid": "ec"}, payload, es256))


def test_times_may_be_fractions_and_only_exp_is_needed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert accepted(settings, mint(exp=NOW + 1.5, iat=NOW - 0.5, nbf=NOW - 0.5)).expires_at == NOW + 1.5 + LEEWAY_S
    assert accepted(settings, mint(iat=...))


def test_the_lifetime_is_bounded_from_iat_or_from_now(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, max_lifetime="1h")
    assert accepted(settings, mint(exp=NOW + 3600))
    assert accepted(settings, mint(exp=NOW + 3600, iat=...))
    assert_refused(
        settings,
        mint(exp=NOW + 3601),
        mint(exp=NOW + 3601, iat=...),
        mint(exp=NOW + 600, iat=NOW - 3001),
    )


def test_b36_a_clock_difference_of_seconds_locks_nobody_out(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    for late in (2, LEEWAY_S):
        assert accepted(settings, mint(iat=NOW + late))
        assert accepted(settings, mint(nbf=NOW + late))
    assert accepted(settings, mint(exp=NOW - 2)).expires_at == NOW - 2 + LEEWAY_S
    assert accepted(settings, mint(iat=NOW + 2, nbf=NOW + 2, exp=NOW - 2))
    assert accepted(settings, mint(exp=NOW - LEEWAY_S + 1))
    assert_refused(
        settings,
        mint(iat=NOW + 600, exp=NOW + 900),
        mint(nbf=NOW + 600, exp=NOW + 900),
        mint(exp=NOW - 300, iat=NOW - 600),
        mint(exp=NOW - LEEWAY_S),
        mint(iat=NOW + LEEWAY_S + 1),
        mint(nbf=NOW + LEEWAY_S + 1),
    )


# --- principals, tenants, groups, labels


def test_an_agent_is_the_run_that_its_whole_subject_names(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, kind="agent", sub_pattern="repo:acme/(x|y):run:(?P<run>[a-z2-7]+)")
    caller = accepted(
        settings,
        mint(sub="repo:acme/x:run:abcdefgh", room="aaaabbbb", role="tester", groups=["agents-admin"]),
    )
    assert str(caller.principal) == "agent:abcdefgh"
    assert (caller.room_id, caller.run_role) == ("aaaabbbb", "tester")
    assert not caller.is_admin
    assert accepted(settings, mint(sub="repo:acme/x:run:abcdefgh")).room_id is None
    good = "repo:acme/x:run:abcdefgh"
    assert_refused(
        settings,
        mint(sub="repo:acme/x:run:abcdefg"),
        mint(sub="repo:acme/x:run:abcdefghi"),
        mint(sub=f"x{good}"),
        mint(sub=f"{good}/x"),
        mint(sub=f"{good}\n"),
        mint(sub="ada"),
        mint(sub=good, room="AAAABBBB"),
        mint(sub=good, room=["aaaabbbb"]),
        mint(sub=good, role=["tester"]),
        mint(sub=good, role=" tester"),
    )


def test_without_a_named_group_the_first_is_the_run(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, kind="agent", sub_pattern="run/([a-z2-7]{8})(/x)?")
    assert str(accepted(settings, mint(sub="run/abcdefgh/x")).principal) == "agent:abcdefgh"
    optional = settings_for(tmp_path, kind="agent", sub_pattern="run/([a-z2-7]{8})?")
    assert_refused(optional, mint(sub="run/"))


def test_a_system_caller_is_listed(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, kind="system", subjects={"svc-1": "launcher"})
    assert str(accepted(settings, mint(sub="svc-1")).principal) == "system:launcher"
    assert_refused(settings, mint(sub="launcher"), mint(sub="svc-2"), mint(sub="system:launcher"))
    assert_refused(settings_for(tmp_path, kind="system"), mint(sub="svc-1"))
    assert_refused(settings_for(tmp_path, kind="system", subjects={"svc-1": "minutebook"}), mint(sub="svc-1"))


def test_room_and_role_count_for_agents_only(tmp_path: Path) -> None:
    caller = accepted(settings_for(tmp_path), mint(room="aaaabbbb", role="tester"))
    assert (caller.room_id, caller.run_role) == (None, None)


def test_the_tenant_is_one_that_the_issuer_speaks_for(tmp_path: Path) -> None:
    assert accepted(settings_for(tmp_path), mint(tenant="evil")).tenant == "acme"
    two = settings_for(tmp_path, tenants=("acme", "beta"))
    assert accepted(two, mint(tenant="beta")).tenant == "beta"
    assert_refused(two, mint(), mint(tenant="gamma"), mint(tenant=["acme"]), mint(tenant=""), mint(tenant=None))
    claimed = settings_for(tmp_path, tenants=(), tenant_claim="org")
    assert accepted(claimed, mint(org="gamma")).tenant == "gamma"
    assert_refused(claimed, mint(), mint(tenant="acme"), mint(org=" gamma"), mint(org=1), mint(org=["gamma"]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["a", "b c"], {"a", "b c"}),
        ("a b  c", {"a", "b", "c"}),
        ([], set[str]()),
        (..., set[str]()),
        (None, set[str]()),
        (7, set[str]()),
        ({"a": True}, set[str]()),
        (["a", 1], set[str]()),
        ([["a"]], set[str]()),
    ],
)
def test_groups_are_a_list_or_a_string_and_else_nothing(tmp_path: Path, value: Any, expected: set[str]) -> None:
    assert accepted(settings_for(tmp_path, groups_claim="roles"), mint(roles=value, groups=["x"])).groups == expected


def test_group_names_give_rights_to_people(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    caller = accepted(settings, mint(groups="agents-admin agents-auditor"))
    assert (caller.is_admin, caller.is_member, caller.is_auditor) == (True, False, True)
    system = settings_for(tmp_path, kind="system", subjects={"ada": "launcher"})
    caller = accepted(system, mint(groups="agents-admin agents-member agents-auditor"))
    assert (caller.is_admin, caller.is_member, caller.is_auditor) == (False, False, False)


def test_labels_come_from_groups_and_claims(tmp_path: Path) -> None:
    clearance = ClearanceSettings(
        groups={"sec": ("secret", "internal")}, claims={"dept": {"law": ("privileged",), "hr": ("personal",)}}
    )
    settings = settings_for(tmp_path, clearance=clearance)
    assert accepted(settings, mint(groups=["sec"], dept="law")).labels == {"secret", "internal", "privileged"}
    assert accepted(settings, mint(dept=["law", "hr", "x"])).labels == {"privileged", "personal"}
    assert accepted(settings, mint(dept=["law", "hr", 3])).labels == frozenset()
    assert accepted(settings, mint(dept={"law": 1}, groups=["secret"])).labels == frozenset()


def test_labels_are_those_of_the_tenants_own_section(tmp_path: Path) -> None:
    acme = ClearanceRules(groups={"sec": ("acme-secret",)})
    asked = ClearanceRules(python="my_module:cleared")
    clearance = ClearanceSettings(groups={"sec": ("secret",)}, tenants={"acme": acme, "beta": asked})
    settings = settings_for(tmp_path, clearance=clearance, tenants=(), tenant_claim="org")
    for tenant, labels in (("acme", {"acme-secret"}), ("beta", set[str]()), ("other", {"secret"})):
        assert accepted(settings, mint(org=tenant, groups=["sec"])).labels == labels


def test_what_the_clearance_asks_for_is_among_the_claims(tmp_path: Path) -> None:
    clearance = ClearanceSettings(claims={"dept": {"law": ("privileged",)}})
    settings = settings_for(tmp_path, clearance=clearance, groups_claim="roles")
    caller = accepted(settings, mint(dept="law", level="x", roles=["b", "a"], groups=["chosen"]))
    assert caller.claims == {"dept": ("law",), "groups": ("a", "b")}
    named = msgspec.structs.replace(settings, conversations=ConversationSettings(claims=("groups",)))
    assert accepted(named, mint(groups=["chosen"])).claims == {}, "a claim that is only called groups"


def test_who_acts_for_the_subject_is_its_delegate(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert accepted(settings, mint()).delegate is None
    caller = accepted(settings, mint(act={"sub": "desk", "azp": "x"}, groups=["agents-member"]))
    assert (caller.principal, caller.delegate, caller.is_member) == (HUMAN, Principal("human", "desk"), True)
    chain = {
        "sub": "desk",
        "iss": ISS,
        "act": {"sub": "any\x07thing", "iss": "https://else.example", "act": {"sub": "z"}},
    }
    assert accepted(settings, mint(act=chain)).delegate == Principal("human", "desk")
    system = settings_for(tmp_path, kind="system", subjects={"ada": "reports", "desk": "desk"})
    assert accepted(system, mint(act={"sub": "desk"})).delegate == Principal("system", "desk")
    assert_refused(system, mint(act={"sub": "unlisted"}))
    runs = settings_for(tmp_path, kind="agent", sub_pattern="run/(?P<run>[a-z2-7]{8})")
    acting = accepted(runs, mint(sub="run/aaaaaaaa", act={"sub": "run/bbbbbbbb"}))
    assert (str(acting.principal), str(acting.delegate)) == ("agent:aaaaaaaa", "agent:bbbbbbbb")
    assert_refused(runs, mint(sub="run/aaaaaaaa", act={"sub": "bbbbbbbb"}))


def nested(levels: int) -> dict[str, Any]:
    return {"sub": "desk"} if levels == 1 else {"sub": "desk", "act": nested(levels - 1)}


@pytest.mark.parametrize(
    "act",
    [
        *(None, "desk", 1, True, [], {}, [{"sub": "desk"}], {"sub": None}, {"sub": 1}, {"sub": ""}, {"sub": ["desk"]}),
        *({"sub": " desk"}, {"sub": "de\x00sk"}, {"SUB": "desk"}, {"act": {"sub": "desk"}}, {"iss": ISS}),
        *({"sub": "desk", "iss": "https://else.example"}, {"sub": "desk", "iss": None}),
        *({"sub": "desk", "act": None}, {"sub": "desk", "act": {}}, {"sub": "desk", "act": "x"}),
        *({"sub": "desk", "act": {"sub": "x", "act": {"sub": 7}}}, nested(9), nested(200)),
    ],
)
def test_an_act_that_cannot_be_read_is_refused(tmp_path: Path, act: Any) -> None:
    assert_refused(settings_for(tmp_path), mint(act=act))


def test_so_many_actors_may_stand_behind_each_other(tmp_path: Path) -> None:
    assert accepted(settings_for(tmp_path), mint(act=nested(8))).delegate == Principal("human", "desk")


def test_the_claims_that_the_settings_name_are_kept(tmp_path: Path) -> None:
    named = ConversationSettings(claims=("dept", "roles", "level", "mixed", "none", "absent", "sub"))
    settings = msgspec.structs.replace(settings_for(tmp_path), conversations=named)
    caller = accepted(settings, mint(dept="ops", roles=["a", "b"], level=3, mixed=["a", 1], none=[], other="x"))
    assert caller.claims == {"dept": ("ops",), "roles": ("a", "b"), "sub": ("ada",)}
    assert accepted(settings_for(tmp_path), mint(dept="ops")).claims == {}


@pytest.mark.parametrize("name", ["minutebook", "policy", "conversations"])
def test_no_token_speaks_as_the_server_itself(tmp_path: Path, name: str) -> None:
    own = Principal("system", name)
    for subject, fields in ((own, {}), (HUMAN, {"act": own})):
        with pytest.raises(Invalid):
            DevelopmentIssuer.open(tmp_path).issue(subject, now=NOW, **fields)
    listed = settings_for(tmp_path, kind="system", subjects={"ada": name, "desk": "desk"})
    assert_refused(listed, mint(), mint(sub="desk", act={"sub": "ada"}))
    issuer = DevelopmentIssuer.open(tmp_path)

    def forged(**changes: Any) -> str:
        return jwt.encode(claims(iss=issuer.issuer, tenant="acme", **changes), issuer.key, algorithm="HS256")

    assert_refused(development(tmp_path), forged(sub=str(own)), forged(sub="human:ada", act={"sub": str(own)}))


def test_a_development_token_may_be_a_delegation(tmp_path: Path) -> None:
    token = DevelopmentIssuer.open(tmp_path).issue(HUMAN, now=NOW, act=Principal("system", "desk"))
    caller = accepted(development(tmp_path), token)
    assert (caller.principal, caller.delegate) == (HUMAN, Principal("system", "desk"))
    with pytest.raises(Invalid):
        DevelopmentIssuer.open(tmp_path).issue(HUMAN, now=NOW, act=Principal("human", " desk"))


def test_a_command_line_client_is_known_by_azp(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, cli_clients=("mb-cli",))
    assert accepted(settings, mint(azp="mb-cli")).is_cli_client
    assert not accepted(settings, mint(azp="web")).is_cli_client
    assert not accepted(settings, mint()).is_cli_client
    assert_refused(settings, mint(azp=["mb-cli"]), mint(azp=None))


def test_one_issuer_may_serve_two_audiences_but_a_token_only_one(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    system = msgspec.structs.replace(settings.issuers["corp"], audience="hooks", kind="system", subjects={"ada": "x"})
    both = msgspec.structs.replace(settings, issuers={"corp": settings.issuers["corp"], "hooks": system})
    assert str(accepted(both, mint()).principal) == "human:ada"
    assert str(accepted(both, mint(aud="hooks")).principal) == "system:x"
    assert_refused(both, mint(aud=[AUD, "hooks"]), mint(iss="https://other.example"))


# --- the cache


def test_a_cached_token_ends_at_its_expiry(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = Clock()
        verifier = TokenVerifier(settings_for(tmp_path), clock)
        await verifier.start()
        token = mint(exp=NOW + 10)
        assert await verifier.verify(token) is await verifier.verify(token)
        clock.now = NOW + 10 + LEEWAY_S - 1
        assert await verifier.verify(token)
        clock.now += 1
        assert isinstance(await outcome(verifier, token), Unauthenticated)
        await verifier.close()

    asyncio.run(scenario())


def test_the_cache_is_bounded_and_can_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_CACHED_TOKENS", 2)

    async def scenario() -> None:
        verifier = TokenVerifier(settings_for(tmp_path), Clock())
        await verifier.start()
        a, b, c = (mint(sub=sub) for sub in "abc")
        first = await verifier.verify(a)
        second = await verifier.verify(b)
        assert await verifier.verify(a) is first
        await verifier.verify(c)
        assert await verifier.verify(a) is first
        assert await verifier.verify(b) is not second
        assert len(verifier._cache) == 2
        again = await verifier.verify(b)
        verifier.clear()
        assert await verifier.verify(b) is not again
        assert await verifier.verify(b) == again
        assert not any(token.encode() in repr(verifier._cache).encode() for token in (a, b, c))
        await verifier.close()

    asyncio.run(scenario())


def test_a_refused_token_is_not_cached(tmp_path: Path) -> None:
    async def scenario() -> None:
        verifier = TokenVerifier(settings_for(tmp_path), Clock())
        await verifier.start()
        for token in (mint(kid="x"), mint(exp=NOW - 90), "a.b.c"):
            assert isinstance(await outcome(verifier, token), Unauthenticated)
        assert len(verifier._cache) == 0
        await verifier.close()

    asyncio.run(scenario())


def test_b38_no_log_line_has_a_byte_of_a_token(tmp_path: Path) -> None:
    canary = "canary-in-a-claim"
    sent = [
        mint(sub=canary),
        mint(EC_OTHER, sub=canary),
        mint(kid=canary),
        mint(exp=NOW - 90, sub=canary),
        mint(tenant=canary, iss=canary),
        forge({"alg": canary, "kid": "ec"}, None, es256),
        forge({"alg": "ES256", "kid": "ec", "crit": [canary]}, None, es256),
        forge(canary.encode(), None, es256),
    ]
    with structlog.testing.capture_logs() as lines:
        results = asyncio.run(callers(settings_for(tmp_path), *sent))
    assert [type(result) for result in results[1:]] == [Unauthenticated] * (len(sent) - 1)
    assert len(lines) >= len(sent) - 1
    shown = f"{lines} {results[1:]}"
    assert canary not in shown
    assert not any(part in shown for token in sent for part in token.split(".") if part)


# --- the development issuer


def development(folder: Path) -> Settings:
    return Settings(data_dir=folder)


def test_a_development_token_verifies_on_its_own_data_directory_only(tmp_path: Path) -> None:
    here, there = tmp_path / "a", tmp_path / "b"
    token = DevelopmentIssuer.open(here).issue(HUMAN, "acme", ["agents-admin"], 60, now=NOW)
    caller = accepted(development(here), token)
    assert (caller.principal, caller.tenant, caller.is_admin) == (HUMAN, "acme", True)
    assert caller.expires_at == NOW + 60 + LEEWAY_S
    assert_refused(development(there), token)
    renamed = DevelopmentIssuer(bytes(32))
    renamed.issuer = DevelopmentIssuer.open(here).issuer
    assert_refused(development(here), renamed.issue(HUMAN, now=NOW))


def test_a_development_token_is_nothing_where_the_issuer_is_off(tmp_path: Path) -> None:
    token = DevelopmentIssuer.open(tmp_path).issue(HUMAN, now=NOW)
    assert accepted(development(tmp_path), token)
    off = msgspec.structs.replace(development(tmp_path), development=False)
    elsewhere = msgspec.structs.replace(development(tmp_path), server=ServerSettings(host="0.0.0.0"))  # noqa: S104
    for settings in (off, elsewhere, settings_for(tmp_path)):
        assert_refused(settings, token)


def test_hs256_is_for_the_development_issuer_only_and_it_for_nothing_else(tmp_path: Path) -> None:
    issuer = DevelopmentIssuer.open(tmp_path)
    payload = {**claims(), "iss": issuer.issuer, "sub": "human:ada", "tenant": "t"}
    agents = settings_for(tmp_path, kind="agent", sub_pattern="([a-z]+)")
    assert agents.is_development
    assert accepted(agents, jwt.encode(payload, issuer.key, "HS256"))
    assert_refused(
        agents,
        jwt.encode(claims(sub="abcdefgh"), issuer.key, "HS256"),
        jwt.encode(payload, EC, "ES256", {"kid": "ec"}),
        forge({"alg": "HS512"}, payload, lambda signed: hmac.digest(issuer.key, signed, hashlib.sha512)),
        jwt.encode(payload, issuer.key, "HS256", {"kid": "x"}),
        forge({"alg": "none"}, payload),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": "ada"},
        {"sub": "robot:ada"},
        {"sub": "human:"},
        {"sub": "human: ada"},
        {"sub": "system:minutebook"},
        {"sub": "system:policy"},
        {"sub": "agent:abcdefgh"},
        {"sub": "agent:ABC", "room": "aaaabbbb"},
        {"tenant": ...},
        {"tenant": ""},
        {"exp": NOW + MAX_TTL_S + 1},
        {"aud": "other"},
    ],
)
def test_development_claims_are_checked_like_others(tmp_path: Path, changes: dict[str, Any]) -> None:
    issuer = DevelopmentIssuer.open(tmp_path)
    payload = claims(**{"iss": issuer.issuer, "sub": "human:ada", "tenant": "t", **changes})
    assert_refused(development(tmp_path), jwt.encode(payload, issuer.key, "HS256"))


def test_a_development_agent_carries_its_room(tmp_path: Path) -> None:
    issuer = DevelopmentIssuer.open(tmp_path)
    agent = Principal("agent", "abcdefgh")
    caller = accepted(development(tmp_path), issuer.issue(agent, room="aaaabbbb", role="tester", now=NOW))
    assert (caller.principal, caller.room_id, caller.run_role) == (agent, "aaaabbbb", "tester")
    assert accepted(development(tmp_path), issuer.issue(Principal("system", "launcher"), now=NOW))


@pytest.mark.parametrize(
    ("principal", "kwargs"),
    [
        (Principal("agent", "abcdefgh"), {}),
        (Principal("agent", "abcdefgh"), {"room": "x"}),
        (Principal("agent", "abcdefgh"), {"room": "aaaabbbb", "role": " "}),
        (Principal("agent", "abc"), {"room": "aaaabbbb"}),
        (HUMAN, {"room": "aaaabbbb"}),
        (HUMAN, {"role": "tester"}),
        (HUMAN, {"ttl_s": 0}),
        (HUMAN, {"ttl_s": MAX_TTL_S + 1}),
        (HUMAN, {"tenant": " "}),
        (HUMAN, {"groups": [""]}),
        (Principal("human", ""), {}),
        (Principal("system", "minutebook"), {}),
        (Principal("system", "policy"), {}),
    ],
)
def test_what_could_not_verify_is_not_issued(tmp_path: Path, principal: Principal, kwargs: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        DevelopmentIssuer.open(tmp_path).issue(principal, now=NOW, **kwargs)


def test_the_key_is_private_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    first = DevelopmentIssuer.open(folder)
    path = folder / KEY_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DevelopmentIssuer.open(folder).key == first.key
    assert first.issuer.startswith("minutebook:development:")
    assert [entry.name for entry in folder.iterdir()] == [KEY_NAME]
    assert base64.b64encode(first.key).decode() not in repr(first)
    assert repr(first.key) not in repr(first)


def test_openers_that_race_agree_on_one_key(tmp_path: Path) -> None:
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        with ThreadPoolExecutor(8) as pool:
            keys = {issuer.key for issuer in pool.map(DevelopmentIssuer.open, [folder] * 8)}
        assert len(keys) == 1
        assert [entry.name for entry in folder.iterdir()] == [KEY_NAME]


@pytest.mark.parametrize(
    "content", [b"", b"short", b"!" * 44, base64.b64encode(bytes(31)), base64.b64encode(bytes(33))]
)
def test_a_broken_key_file_stops_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / KEY_NAME
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="delete it"):
        DevelopmentIssuer.open(tmp_path)


def test_a_key_that_others_can_read_stops(tmp_path: Path) -> None:
    DevelopmentIssuer.open(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        TokenVerifier(development(tmp_path))


def test_a_key_that_is_a_link_a_pipe_or_a_folder_stops(tmp_path: Path) -> None:
    real = tmp_path / "real"
    DevelopmentIssuer.open(real)
    for name, message in {"link": "cannot be used", "pipe": "only you", "folder": "cannot be used"}.items():
        folder = tmp_path / name
        folder.mkdir()
        path = folder / KEY_NAME
        if name == "link":
            path.symlink_to(real / KEY_NAME)
        elif name == "pipe":
            os.mkfifo(path, 0o600)
        else:
            path.mkdir()
        with pytest.raises(SettingsError, match=f"development: .*{message}"):
            DevelopmentIssuer.open(folder)
