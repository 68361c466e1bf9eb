"""Bearer tokens: from the bytes of a JWT to a verified Caller, or one refusal for all (rules 18, 19)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jwt
import msgspec
import structlog

from ..domain.errors import Invalid, Unauthenticated
from ..domain.principals import Caller
from .dev_issuer import ALGORITHM, AUDIENCE, MAX_TTL_S, DevelopmentIssuer
from .jwks import FileKeys, HttpKeys, KeyFetcher, KeySource, KeyTiming, PublicKey
from .settings import IssuerSettings, Settings
from .token_claims import ActError, delegate_of, groups_of, viewer_claims
from .token_reading import RefusedError, checked_expiry, named, run_claims, string, strings, tenant_of

MAX_TOKEN_BYTES = 16 * 1024
MAX_HEADER_CHARS = 2 * 1024
"""Longest first segment: names of an algorithm and a key, and nothing deep enough to trouble a parser."""

MAX_CACHED_TOKENS = 10_000
MIN_RSA_BITS = 2048
MAX_KEYS_TRIED = 4
"""Signatures checked for one token, where several keys of a set share a kid."""

REFUSAL = "Send a valid bearer token: this one is missing, malformed, expired or not meant for this server."

_LOADERS = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA"}
"""How the library calls the three key types; the algorithm itself is bound when a token is checked."""

_SEGMENTS = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_jws = jwt.PyJWS()
_log = structlog.get_logger(__name__)


class _Keys(Protocol):
    """What a verifier needs from the keys of an issuer; KeySource is the fetched kind."""

    def current(self) -> tuple[PublicKey, ...]: ...
    def holds(self, digest: str) -> bool: ...
    async def poll(self) -> None: ...
    async def learn(self) -> bool: ...
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class _OwnKey:
    """The one key of the development issuer."""

    def __init__(self, key: bytes) -> None:
        self._key = PublicKey(None, frozenset({ALGORITHM}), "development", key)

    def current(self) -> tuple[PublicKey, ...]:
        return (self._key,)

    def holds(self, digest: str) -> bool:
        return digest == self._key.digest

    async def poll(self) -> None: ...
    async def learn(self) -> bool:
        return False

    async def start(self) -> None: ...
    async def close(self) -> None: ...


class _Issuer(NamedTuple):
    """A configured issuer with its keys. `settings` is None for the development issuer."""

    name: str
    issuer: str
    audience: str
    algorithms: frozenset[str]
    max_lifetime_s: int
    keys: _Keys
    settings: IssuerSettings | None


class _Header(msgspec.Struct):
    alg: str
    kid: str | msgspec.UnsetType = msgspec.UNSET
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    b64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Peek(msgspec.Struct):
    """The unverified claims that choose the issuer; nothing else is taken from an unverified payload."""

    iss: str
    aud: str | list[str]


class _Cached(NamedTuple):
    caller: Caller
    keys: _Keys
    key_digest: str


class IdToken(NamedTuple):
    """A sign-in at an issuer. claims: those that were asked for, as a caller has them; `groups` among them."""

    caller: Caller
    issuer: str
    sub: str
    claims: Mapping[str, tuple[str, ...]]


class TokenVerifier:
    """Verifies bearer tokens offline against the keys of the configured issuers.

    `clock` gives Unix seconds. On a development server the issuer of the data directory counts too; its key
    is made on construction (SettingsError where that fails). `start` before use, `close` at the end.
    """

    def __init__(
        self, settings: Settings, clock: Callable[[], float] = time.time, timing: KeyTiming | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()
        self._sources: dict[str, KeySource] = {}
        issuers = [self._configured(name, one, timing or KeyTiming()) for name, one in settings.issuers.items()]
        if settings.is_development:
            issuers.append(_development(DevelopmentIssuer.open(settings.data_dir)))
        self._issuers: dict[str, list[_Issuer]] = {}
        for issuer in issuers:
            self._issuers.setdefault(issuer.issuer, []).append(issuer)

    def _configured(self, name: str, settings: IssuerSettings, timing: KeyTiming) -> _Issuer:
        fetcher: KeyFetcher
        if settings.jwks_url is not None:
            fetcher = HttpKeys(settings.jwks_url, timing.timeout_s)
        else:
            fetcher = FileKeys(Path(settings.jwks_file or ""))
        source = self._sources[name] = KeySource(name, fetcher, _load_key, self._clock, timing)
        return _Issuer(
            name,
            settings.issuer,
            settings.audience,
            frozenset(settings.algorithms),
            settings.max_lifetime_s,
            source,
            settings,
        )

    async def start(self) -> None:
        """Fetches every key set once, all at the same time, and keeps them fresh; no failed fetch raises."""
        await asyncio.gather(*(source.start() for source in self._sources.values()))

    async def close(self) -> None:
        """Ends the refreshing and forgets the tokens."""
        await asyncio.gather(*(source.close() for source in self._sources.values()))
        self.clear()

    def clear(self) -> None:
        """Forgets every verified token."""
        self._cache.clear()

    def key_failures(self) -> dict[str, str]:
        """Issuer name to the reason why its last key fetch failed, for doctor; empty when all is well."""
        return {name: source.last_failure for name, source in self._sources.items() if source.last_failure is not None}

    def key_ages(self) -> dict[str, float]:
        """Issuer name to the seconds since its keys were last fetched well."""
        return {name: source.age_s for name, source in self._sources.items()}

    async def verify(self, token: str) -> Caller:
        """The caller that the token stands for.

        Raises Unauthenticated, with one detail for every bad token, and Unavailable while the keys of the
        token's issuer have never been fetched or are stale.
        """
        if len(token) > MAX_TOKEN_BYTES or _SEGMENTS.fullmatch(token) is None:
            raise Unauthenticated(REFUSAL)
        digest = hashlib.sha256(token.encode()).digest()
        if (cached := await self._cached(digest)) is not None:
            return cached
        try:
            fresh = await self._verify(token)
        except (Invalid, msgspec.MsgspecError, jwt.PyJWTError, ValueError, RecursionError) as error:
            # Whatever made a forged token fail stays here: the answer must not help to forge a better one.
            _log.debug(
                "token_refused",
                reason=str(error) if isinstance(error, RefusedError | ActError) else type(error).__name__,
            )
            raise Unauthenticated(REFUSAL) from None
        self._cache[digest] = fresh
        while len(self._cache) > MAX_CACHED_TOKENS:
            self._cache.popitem(last=False)
        return fresh.caller

    async def verify_id_token(
        self, name: str, token: str, client_id: str, nonce: str, names: Callable[[str], Iterable[str]]
    ) -> IdToken:
        """What an ID token of the issuer `name` says, which it has made for that client and that sign-in.

        names: the claims that are wanted, by tenant. The person is the one that a bearer token with the same claims
        would speak for. Raises Unauthenticated and Unavailable as verify.
        """
        if len(token) > MAX_TOKEN_BYTES or _SEGMENTS.fullmatch(token) is None:
            raise Unauthenticated(REFUSAL)
        try:
            return await self._verify_id_token(name, token, client_id, nonce, names)
        except (Invalid, msgspec.MsgspecError, jwt.PyJWTError, ValueError, RecursionError) as error:
            _log.debug("id_token_refused", reason=str(error) if isinstance(error, RefusedError) else "malformed")
            raise Unauthenticated(REFUSAL) from None

    async def _verify_id_token(
        self, name: str, token: str, client_id: str, nonce: str, names: Callable[[str], Iterable[str]]
    ) -> IdToken:
        header = _header(token)
        known = [each for same in self._issuers.values() for each in same if each.name == name]
        if len(known) != 1 or known[0].settings is None or header.alg not in known[0].algorithms:
            raise RefusedError("no such issuer, or not its algorithm")
        issuer = known[0]._replace(audience=client_id)
        payload, _ = await self._checked_payload(token, header, issuer)
        claims = msgspec.json.decode(payload, type=dict[str, Any])
        if not hmac.compare_digest(string(claims, "nonce").encode(), nonce.encode()):
            raise RefusedError("nonce")
        is_shared = len(strings(claims.get("aud"), "aud")) > 1
        if (is_shared or "azp" in claims) and string(claims, "azp") != client_id:
            raise RefusedError("azp")
        if "act" in claims:
            raise RefusedError("act")
        caller = _caller(claims, issuer, self._settings, self._clock())
        said = viewer_claims(claims, caller.groups, names(caller.tenant))
        return IdToken(caller, issuer.issuer, string(claims, "sub"), said)

    async def _cached(self, digest: bytes) -> Caller | None:
        if (entry := self._cache.get(digest)) is None:
            return None
        await entry.keys.poll()
        if self._clock() < entry.caller.expires_at and entry.keys.holds(entry.key_digest):
            if digest in self._cache:
                self._cache.move_to_end(digest)
            return entry.caller
        self._cache.pop(digest, None)
        return None

    async def _verify(self, token: str) -> _Cached:
        header = _header(token)
        peek = msgspec.json.decode(_decode(token.split(".")[1]), type=_Peek)
        issuer = self._select(peek)
        if header.alg not in issuer.algorithms:
            raise RefusedError(f"alg is not one of issuer {issuer.name}")
        payload, key = await self._checked_payload(token, header, issuer)
        claims = msgspec.json.decode(payload, type=dict[str, Any])
        caller = _caller(claims, issuer, self._settings, self._clock())
        return _Cached(caller, issuer.keys, key.digest)

    def _select(self, peek: _Peek) -> _Issuer:
        audiences = [peek.aud] if isinstance(peek.aud, str) else peek.aud
        matching = [one for one in self._issuers.get(peek.iss, ()) if one.audience in audiences]
        if len(matching) != 1:
            raise RefusedError("iss and aud name no issuer, or several")
        return matching[0]

    async def _checked_payload(self, token: str, header: _Header, issuer: _Issuer) -> tuple[bytes, PublicKey]:
        await issuer.keys.poll()
        payload = _try_keys(token, header, issuer.keys.current())
        if payload is None and not _knows(issuer.keys.current(), header) and await issuer.keys.learn():
            payload = _try_keys(token, header, issuer.keys.current())
        if payload is None:
            raise RefusedError(f"no key of issuer {issuer.name} made the signature")
        return payload


def _development(own: DevelopmentIssuer) -> _Issuer:
    return _Issuer("development", own.issuer, AUDIENCE, frozenset({ALGORITHM}), MAX_TTL_S, _OwnKey(own.key), None)


def _load_key(members: Mapping[str, str]) -> Any:
    """The key object of a JWK's public members; raises ValueError where they are no key or a weak one."""
    try:
        key: Any = jwt.PyJWK(dict(members), _LOADERS[members["kty"]]).key
    except jwt.PyJWTError:
        # The library's message has the whole JWK in it.
        raise ValueError("not a key") from None
    if members["kty"] == "RSA" and key.key_size < MIN_RSA_BITS:
        raise ValueError("an RSA key that is too short")
    return key


def _try_keys(token: str, header: _Header, keys: tuple[PublicKey, ...]) -> tuple[bytes, PublicKey] | None:
    fitting = [key for key in keys if header.alg in key.algorithms]
    if header.kid is not msgspec.UNSET:
        fitting = [key for key in fitting if key.kid == header.kid][:MAX_KEYS_TRIED]
    elif len(fitting) != 1:
        # Without a kid a forged token would cost one signature check for every key of the set.
        return None
    for key in fitting:
        try:
            checked: dict[str, Any] = _jws.decode_complete(token, key.key, algorithms=[header.alg])
        except jwt.InvalidSignatureError:
            continue
        return checked["payload"], key
    return None


def _knows(keys: tuple[PublicKey, ...], header: _Header) -> bool:
    return header.kid is not msgspec.UNSET and any(key.kid == header.kid for key in keys)


def _header(token: str) -> _Header:
    text = token.partition(".")[0]
    if len(text) > MAX_HEADER_CHARS:
        raise RefusedError("the header is too long")
    header = msgspec.json.decode(_decode(text), type=_Header)
    if header.crit is not msgspec.UNSET or header.b64 is not msgspec.UNSET:
        raise RefusedError("crit or b64")
    return header


def _decode(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _caller(claims: dict[str, Any], issuer: _Issuer, settings: Settings, now: float) -> Caller:
    """The caller of verified claims; raises RefusedError or Invalid for one that is missing or malformed."""
    if claims.get("iss") != issuer.issuer or issuer.audience not in strings(claims.get("aud"), "aud"):
        raise RefusedError("iss or aud")
    expires_at = checked_expiry(claims, issuer.max_lifetime_s, now)
    own = issuer.settings
    principal = named(string(claims, "sub"), own)
    room, role = run_claims(claims) if principal.kind == "agent" else (None, None)
    if own is None and principal.kind == "agent" and room is None:
        raise RefusedError("room")
    groups = groups_of(claims.get("groups" if own is None else own.groups_claim))
    tenant = tenant_of(claims, own)
    clearance = settings.clearance.of(tenant)
    known = viewer_claims(claims, groups, (*settings.conversations.claims, *clearance.claims))
    is_human = principal.kind == "human"
    return Caller(
        principal=principal,
        tenant=tenant,
        groups=groups,
        labels=clearance.granted(known),
        room_id=room,
        run_role=role,
        is_admin=is_human and settings.groups.admin in groups,
        is_member=is_human and settings.groups.member in groups,
        is_auditor=is_human and settings.groups.auditor in groups,
        is_cli_client="azp" in claims and (own is None or string(claims, "azp") in own.cli_clients),
        is_development=own is None,
        expires_at=expires_at,
        delegate=delegate_of(claims, issuer.issuer, lambda sub: named(sub, own)),
        claims=known,
    )
