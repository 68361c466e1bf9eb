"""Verification keys of the configured issuers: fetched, bounded, refreshed, and dropped when too old."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx
import msgspec
import structlog

from ..domain.errors import Unavailable
from .bounded_body import BodyTooLarge, CompressedBody, read_bounded
from .settings import is_loopback

MAX_JWKS_BYTES = 256 * 1024
MAX_KEYS = 100

_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_EDWARDS = ("Ed25519", "Ed448")
_RSA_ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_PUBLIC_MEMBERS = ("kty", "crv", "x", "y", "n", "e")
_PRIVATE_MEMBERS = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})

_log = structlog.get_logger(__name__)

LoadKey = Callable[[Mapping[str, str]], Any]
"""Makes the key object from the public members of a JWK; raises where they are no key."""


class KeyTiming(NamedTuple):
    """When keys are fetched and forgotten, in seconds (rooms.md, Principals)."""

    refresh_s: float = 3600
    jitter: float = 0.1
    retry_min_s: float = 1
    retry_max_s: float = 30
    unknown_kid_s: float = 60
    stale_s: float = 86_400
    timeout_s: float = 5
    file_check_s: float = 1


class PublicKey(NamedTuple):
    """One usable key. `algorithms` are those that its type and curve allow; `digest` stands for it all."""

    kid: str | None
    algorithms: frozenset[str]
    digest: str
    key: Any


class KeyFetchError(Exception):
    """A fetch gave no key set. The message is a short reason without any byte of the answer."""


class KeyFetcher(Protocol):
    """Where the bytes of a key set come from."""

    async def fetch(self) -> bytes:
        """The document; raises KeyFetchError."""
        ...

    async def changed(self) -> bool:
        """Whether the document is known to differ from the last one that was fetched."""
        ...

    async def close(self) -> None:
        """Releases what it holds."""
        ...


class HttpKeys:
    """The key set behind the one configured URL: no redirects, no compression, bounded in time and size."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._client: httpx.AsyncClient | None = None

    async def fetch(self) -> bytes:
        """The body of a 200 answer; raises KeyFetchError for anything else."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._get()
        except TimeoutError:
            raise KeyFetchError("timed out") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise KeyFetchError(type(error).__name__) from None

    async def _get(self) -> bytes:
        if self._client is None:
            # A proxy of the environment must not see, or answer, what is meant for this machine.
            trust_env = not is_loopback(urlsplit(self._url).hostname or "")
            self._client = httpx.AsyncClient(
                timeout=self._timeout_s,
                follow_redirects=False,
                trust_env=trust_env,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            )
        async with self._client.stream("GET", self._url) as answer:
            if answer.status_code != 200:
                raise KeyFetchError(f"status {answer.status_code}")
            try:
                return await read_bounded(answer, MAX_JWKS_BYTES)
            except (CompressedBody, BodyTooLarge) as error:
                raise KeyFetchError(str(error)) from None

    async def changed(self) -> bool:
        """Never known without asking."""
        return False

    async def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None


class FileKeys:
    """The key set in a local file, read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    async def fetch(self) -> bytes:
        """The file's bytes; raises KeyFetchError."""
        try:
            body, self._seen = await asyncio.to_thread(self._read)
        except OSError as error:
            raise KeyFetchError(f"cannot read the file ({error.strerror})") from None
        return body

    def _read(self) -> tuple[bytes, tuple[int, int, int]]:
        with open(self._path, "rb", opener=_open_unblocked) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise KeyFetchError("not a regular file")
            body = file.read(MAX_JWKS_BYTES + 1)
        if len(body) > MAX_JWKS_BYTES:
            raise KeyFetchError(f"more than {MAX_JWKS_BYTES} bytes")
        return body, _identity(status)

    async def changed(self) -> bool:
        """Whether the file's time, size or inode moved; a file that is gone counts as unchanged."""
        try:
            return _identity(await asyncio.to_thread(os.stat, self._path)) != self._seen
        except OSError:
            return False

    async def close(self) -> None:
        """Nothing is held open."""


def _open_unblocked(path: str, flags: int) -> int:
    # A pipe in place of the file must not hold the thread.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


class KeySource:
    """The keys of one issuer, kept fresh by a task of its own.

    `clock` gives Unix seconds. Known keys survive failed fetches until `stale_s` after the last good one.
    """

    def __init__(
        self, name: str, fetcher: KeyFetcher, load_key: LoadKey, clock: Callable[[], float], timing: KeyTiming
    ) -> None:
        self._name = name
        self._fetcher = fetcher
        self._load_key = load_key
        self._clock = clock
        self._timing = timing
        self._keys: tuple[PublicKey, ...] = ()
        self._digests: frozenset[str] = frozenset()
        self._fetched_at: float | None = None
        self._learned_at: float | None = None
        self._checked_at: float | None = None
        self._failures = 0
        self._fetching: asyncio.Task[None] | None = None
        self._loop: asyncio.Task[None] | None = None
        self.last_failure: str | None = None
        """Why the last fetch failed; None after a good one."""

    async def start(self) -> None:
        """Tries one fetch, bounded by its timeout, and keeps refreshing afterwards whatever came of it."""
        await self.refresh()
        self._loop = asyncio.create_task(self._refresh_for_ever(), name=f"keys of {self._name}")

    async def close(self) -> None:
        """Ends the refreshing. Keys stay usable until they are stale."""
        tasks = [task for task in (self._loop, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = self._fetching = None
        await self._fetcher.close()

    def current(self) -> tuple[PublicKey, ...]:
        """The keys that may verify now. Raises Unavailable before the first good fetch and once stale."""
        if not self._is_fresh():
            raise Unavailable(
                "The keys of the token's issuer cannot be fetched now: try again in a moment.",
                retryAfterMs=int(self._timing.retry_max_s * 1000),
            )
        return self._keys

    def holds(self, digest: str) -> bool:
        """Whether the key of that digest may still verify."""
        return digest in self._digests and self._is_fresh()

    @property
    def age_s(self) -> float:
        """Seconds since the last good fetch; infinite before the first."""
        return float("inf") if self._fetched_at is None else max(0.0, self._clock() - self._fetched_at)

    def _is_fresh(self) -> bool:
        if self._fetched_at is None:
            return False
        now = self._clock()
        # A wall clock that was set back must not lengthen the life of held keys.
        self._fetched_at = min(self._fetched_at, now)
        return now - self._fetched_at <= self._timing.stale_s

    async def poll(self) -> None:
        """Fetches where the document is known to have changed; looks at most once in `file_check_s`."""
        if _is_due(self._checked_at, self._clock(), self._timing.file_check_s):
            self._checked_at = self._clock()
            if await self._fetcher.changed():
                await self.refresh()

    async def learn(self) -> bool:
        """A token names a key that is not held: fetches at most once in `unknown_kid_s`.

        A fetch under way is joined instead. Returns whether the keys may be others now.
        """
        joined = self._fetching is not None
        if joined:
            await self.refresh()
        elif _is_due(self._learned_at, self._clock(), self._timing.unknown_kid_s):
            self._learned_at = self._clock()
            await self.refresh()
            return True
        return joined

    async def refresh(self) -> None:
        """One fetch; callers at the same time share it, and none of them going away cancels it."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch())
        await asyncio.shield(self._fetching)

    async def _fetch(self) -> None:
        try:
            body = await self._fetcher.fetch()
            keys = parse_key_set(body, self._load_key)
        except Exception as error:  # noqa: BLE001 - the refreshing must outlive every failure, or keys go stale
            self._failures += 1
            self.last_failure = str(error) if isinstance(error, KeyFetchError) else type(error).__name__
            _log.warning("keys_not_fetched", issuer=self._name, reason=self.last_failure)
        else:
            self._failures = 0
            self.last_failure = None
            self._keys = keys
            self._digests = frozenset(key.digest for key in keys)
            self._fetched_at = self._clock()
            if not keys:
                _log.warning("no_usable_keys", issuer=self._name)
        finally:
            self._fetching = None

    async def _refresh_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.next_delay_s())
            await self.refresh()

    def next_delay_s(self) -> float:
        """Seconds to the next fetch: the interval, after a failure a doubling retry; both jittered."""
        timing = self._timing
        delay = timing.refresh_s
        if self._failures:
            delay = min(timing.retry_min_s * 2.0 ** min(self._failures - 1, 16), timing.retry_max_s)
        return delay * random.uniform(1 - timing.jitter, 1 + timing.jitter)  # noqa: S311 - spreads load only


def _is_due(last: float | None, now: float, every_s: float) -> bool:
    return last is None or now < last or now - last >= every_s


def parse_key_set(body: bytes, load_key: LoadKey) -> tuple[PublicKey, ...]:
    """The usable public signature keys of a JWKS document.

    Private, symmetric, encryption and unknown keys are left out. Raises KeyFetchError where the document is
    not a key set or has more than MAX_KEYS keys.
    """
    try:
        keys = msgspec.json.decode(body, type=_KeySetDocument).keys
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise KeyFetchError("not a key set") from None
    if len(keys) > MAX_KEYS:
        raise KeyFetchError(f"more than {MAX_KEYS} keys")
    parsed = (_public_key(jwk, load_key) for jwk in keys)
    return tuple(key for key in parsed if key is not None)


class _KeySetDocument(msgspec.Struct):
    keys: list[Any]


def _public_key(jwk: Any, load_key: LoadKey) -> PublicKey | None:
    if not isinstance(jwk, dict) or not _PRIVATE_MEMBERS.isdisjoint(jwk):  # pyright: ignore[reportUnknownArgumentType]
        return None
    try:
        fields = msgspec.convert(jwk, _Jwk)
    except msgspec.ValidationError:
        return None
    if fields.use not in (None, "sig") or (fields.key_ops is not None and "verify" not in fields.key_ops):
        return None
    algorithms = _algorithms(fields.kty, fields.crv)
    if fields.alg is not None:
        algorithms &= {fields.alg}
    if not algorithms:
        return None
    members = {name: value for name in _PUBLIC_MEMBERS if (value := getattr(fields, name)) is not None}
    try:
        key = load_key(members)
    except Exception:  # noqa: BLE001 - whatever a library makes of one odd key, the others stay usable
        return None
    identity = msgspec.json.encode([fields.kid, sorted(algorithms), members], order="sorted")
    return PublicKey(fields.kid, algorithms, hashlib.sha256(identity).hexdigest(), key)


class _Jwk(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    key_ops: list[str] | None = None
    crv: str | None = None
    x: str | None = None
    y: str | None = None
    n: str | None = None
    e: str | None = None


def _algorithms(kty: str, crv: str | None) -> frozenset[str]:
    if kty == "RSA":
        return _RSA_ALGORITHMS
    if kty == "EC" and crv in _CURVES:
        return frozenset({_CURVES[crv]})
    if kty == "OKP" and crv in _EDWARDS:
        return frozenset({"EdDSA"})
    return frozenset()
