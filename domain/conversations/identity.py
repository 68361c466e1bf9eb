"""Who speaks in a conversation: an actor, perhaps on behalf of somebody, of a tenant (conversations.md, Trust)."""

from __future__ import annotations

import hashlib

from msgspec import UNSET, Struct, UnsetType

from ..principals import Caller


class Identity(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Equal only if all three are equal; an absent field equals only an absent one. Credentials are no part of it.

    actor, on_behalf_of: principals as text, `human:alice`.
    """

    actor: str
    tenant: str | UnsetType = UNSET
    on_behalf_of: str | UnsetType = UNSET


def identity_of(caller: Caller) -> Identity:
    """The identity behind a request: with a delegation, its actor on behalf of the token's subject."""
    if caller.delegate is None:
        return Identity(str(caller.principal), caller.tenant)
    return Identity(str(caller.delegate), caller.tenant, str(caller.principal))


def prefixed_digest(*parts: str | UnsetType) -> str:
    """sha256 over length-prefixed texts, as 64 hex digits; what is absent differs from what is empty."""
    digest = hashlib.sha256()
    for part in parts:
        data = b"" if part is UNSET else part.encode()
        digest.update(b"-" if part is UNSET else b"%d:%s" % (len(data), data))
    return digest.hexdigest()


def identity_key(identity: Identity) -> str:
    """An identity as a short key, the same for equal ones alone: 32 hex digits of the digest of tenant, actor and
    on_behalf_of. For look-ups inside the database, where the identity stands anyway."""
    return prefixed_digest(identity.tenant, identity.actor, identity.on_behalf_of)[:32]
