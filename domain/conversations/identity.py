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


def identity_key(identity: Identity) -> str:
    """An identity as a short key, the same for equal ones alone: 32 hex digits of a SHA-256 over length-prefixed
    tenant, actor and on_behalf_of. For look-ups inside the database, where the identity stands anyway."""
    parts = (identity.tenant, identity.actor, identity.on_behalf_of)
    raw = b"".join(b"-" if part is UNSET else b"%d:%s" % (len(part.encode()), part.encode()) for part in parts)
    return hashlib.sha256(raw).hexdigest()[:32]
