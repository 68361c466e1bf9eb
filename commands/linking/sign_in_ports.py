"""What a sign-in at an identity provider needs of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from ...domain.principals import Principal

SIGN_IN_S = 600.0
"""From the start of a sign-in to its end; and from there to the word of who has signed in."""

MAX_SIGN_INS = 10
"""Under way for one link."""


class Person(Struct, frozen=True, rename="camel"):
    """Who has signed in. principal: as text. claims: those that the settings name, `groups` among them."""

    tenant: str
    principal: str
    issuer: str
    sub: str
    claims: Mapping[str, tuple[str, ...]]
    claims_ttl_s: int

    @property
    def who(self) -> Principal:
        """The person, as a token of theirs would name them."""
        return Principal.parse(self.principal)


class SignIn(Struct, frozen=True):
    """One under way. issuer: its name in the settings. person: once somebody has signed in."""

    tenant: str
    link_id: str
    issuer: str
    person: Person | None = None


class Provider(Protocol):
    """An identity provider of the settings."""

    def url(self, state: str, nonce: str, challenge: str) -> str:
        """Where a browser is sent to sign in. challenge: of PKCE, S256."""
        ...

    async def person(self, code: str, verifier: str, nonce: str) -> Person:
        """Who has signed in: their ID token, had for the code and verified. Raises SignInFailed for everything."""
        ...

    def speaks_for(self, tenant: str) -> bool:
        """Whether its people may be of that tenant."""
        ...


class SignInFailed(Exception):
    """A sign-in came to nothing. Nobody is told why."""


class SignInRows(Protocol):
    """Sign-ins under way. Every method raises Unavailable."""

    async def put(self, hashed: str, sign_in: SignIn) -> bool:
        """Keep one for SIGN_IN_S; False where MAX_SIGN_INS are under way for its link."""
        ...

    async def look(self, hashed: str) -> SignIn | None:
        """One that is not over, which stays."""
        ...

    async def take(self, hashed: str) -> SignIn | None:
        """One that is not over, once: nobody gets it again."""
        ...

    async def forget(self) -> int:
        """Take those that are over; how many."""
        ...


class Snapshots(Protocol):
    """Claims of people who have signed in. Every method raises Unavailable."""

    async def keep(self, account: str, person: Person) -> None:
        """Instead of the account's earlier ones, for as long as they count."""
        ...

    async def of(self, tenant: str, account: str) -> Mapping[str, tuple[str, ...]]:
        """The account's claims within their time, `groups` among them; nothing afterwards."""
        ...

    async def forget(self) -> int:
        """Take those that count no longer; how many."""
        ...


class SignInHashes(Protocol):
    """Keyed hashes of what a browser carries."""

    def of(self, use: str, carried: str) -> bytes:
        """32 bytes."""
        ...
