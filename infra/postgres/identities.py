"""An identity as the columns of a table, where an empty text stands for what it lacks."""

from __future__ import annotations

from msgspec import UNSET

from ...domain.conversations.identity import Identity


def columns(identity: Identity) -> tuple[str, str, str]:
    """actor, tenant, on_behalf_of: the order of the indexes."""
    tenant = "" if identity.tenant is UNSET else identity.tenant
    return identity.actor, tenant, "" if identity.on_behalf_of is UNSET else identity.on_behalf_of
