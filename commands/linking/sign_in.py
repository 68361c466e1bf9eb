"""A link whose other end is proven by a sign-in at an identity provider: authorization code, PKCE, state and nonce.

Whoever signs in says in so many words that they want the link before anything is presented: a page that somebody else
made them open presents nothing (rules.md, law 30).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ...domain.errors import MinutebookError
from ...domain.ids import is_conversation_id
from ...domain.principals import Caller
from ..channels.ends import Ends
from .callers import LinkEnd, noted
from .handling import Linking
from .ports import LinkTable
from .sign_in_ports import Person, Provider, SignIn, SignInFailed, SignInHashes, SignInRows, Snapshots

MAX_CARRIED_CHARS = 128
MAX_CODE_CHARS = 2048


class Sent(Struct, frozen=True):
    """Where the browser goes next, and the cookie that proves it is the same one when it comes back."""

    url: str
    cookie: str


class Asked(Struct, frozen=True):
    """What somebody who has signed in is asked: whether the end that began the link is theirs."""

    principal: str
    other: LinkEnd


class SignInMeans(Struct, frozen=True):
    """What signing in works with. entropy: draws that many random bytes, as text without padding."""

    linking: Linking
    table: LinkTable
    ends: Ends
    rows: SignInRows
    snapshots: Snapshots
    hashes: SignInHashes
    providers: Mapping[str, Provider]
    entropy: Callable[[int], str]


class SigningIn:
    """One per process. Every method raises SignInFailed, whatever it was."""

    def __init__(self, means: SignInMeans) -> None:
        self._means = means

    async def start(self, issuer: str, link_id: str) -> Sent:
        """Send a browser to the provider, for a link that waits."""
        means = self._means
        provider = means.providers.get(issuer)
        if provider is None or not is_conversation_id(link_id):
            raise SignInFailed
        with _nothing_said():
            tenant = await means.table.tenant_of(link_id)
            if tenant is None or not provider.speaks_for(tenant):
                raise SignInFailed
            state = means.entropy(32)
            if not await means.rows.put(self._hash("state", state), SignIn(tenant, link_id, issuer)):
                raise SignInFailed
        challenge = _base64(hashlib.sha256(self._derived("verifier", state).encode()).digest())
        url = provider.url(state, self._derived("nonce", state), challenge)
        return Sent(url, self._derived("cookie", state))

    async def back(self, issuer: str, code: str | None, state: str | None, cookie: str | None) -> Sent:
        """Take a browser that the provider has sent back. The answer's url is a ticket for what it is asked next."""
        means = self._means
        if not code or len(code) > MAX_CODE_CHARS or not self._is_same_browser(state, cookie):
            raise SignInFailed
        with _nothing_said():
            begun = await means.rows.take(self._hash("state", state or ""))
            provider = means.providers.get(issuer)
            if begun is None or provider is None or begun.issuer != issuer or begun.person is not None:
                raise SignInFailed
            nonce = self._derived("nonce", state or "")
            person = await provider.person(code, self._derived("verifier", state or ""), nonce)
            if person.tenant != begun.tenant:
                raise SignInFailed
            ticket = means.entropy(32)
            if not await means.rows.put(self._hash("ticket", ticket), replace(begun, person=person)):
                raise SignInFailed
        return Sent(ticket, self._derived("cookie", ticket))

    async def asked(self, issuer: str, ticket: str | None, cookie: str | None) -> Asked:
        """What the person is to be shown; nothing changes."""
        means = self._means
        if not self._is_same_browser(ticket, cookie):
            raise SignInFailed
        with _nothing_said():
            waiting, person = _signed_in(await means.rows.look(self._hash("ticket", ticket or "")), issuer)
            challenge = await means.linking.challenge(waiting.tenant, waiting.link_id)
            if challenge is None or challenge.presented is not None:
                raise SignInFailed
            known = await means.ends.one(waiting.tenant, challenge.end)
        display = "" if known is None else known.display
        return Asked(person.principal, LinkEnd(challenge.end.channel, display))

    async def present(self, issuer: str, ticket: str | None, cookie: str | None) -> None:
        """The person wants the link: it is presented by their end, and waits for the end that began it."""
        means = self._means
        if not self._is_same_browser(ticket, cookie):
            raise SignInFailed
        with _nothing_said():
            waiting, person = _signed_in(await means.rows.take(self._hash("ticket", ticket or "")), issuer)
            end = await noted(means.linking, means.ends, Caller(person.who, person.tenant))
            code = means.linking.code_of(person.tenant, waiting.link_id)
            # First, since whoever is shown the code makes a link at once: without claims it would stay so.
            await means.snapshots.keep(end.account, person)
            await means.linking.present(end, code, person.who)

    def _is_same_browser(self, carried: str | None, cookie: str | None) -> bool:
        if not carried or not cookie or len(carried) > MAX_CARRIED_CHARS or not carried.isascii():
            return False
        return hmac.compare_digest(self._derived("cookie", carried).encode(), cookie.encode())

    def _hash(self, use: str, carried: str) -> str:
        return self._means.hashes.of(use, carried).hex()

    def _derived(self, use: str, carried: str) -> str:
        return _base64(self._means.hashes.of(use, carried))


class _nothing_said:  # noqa: N801 - reads as a statement
    """Makes one failure of all of the product's, so that nobody learns which it was."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, MinutebookError):
            raise SignInFailed from None


def _signed_in(found: SignIn | None, issuer: str) -> tuple[SignIn, Person]:
    if found is None or found.person is None or found.issuer != issuer:
        raise SignInFailed
    return found, found.person


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
