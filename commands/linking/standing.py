"""Whose an end is now."""

from __future__ import annotations

from ...domain.ids import long_id
from ...domain.linking.decide import End
from ...domain.linking.events import LinkedEnd
from .ports import LinkHashes, LinkTable


class Standings:
    """Looks ends up. One per process."""

    def __init__(self, table: LinkTable, hashes: LinkHashes) -> None:
        self._table = table
        self._hashes = hashes

    async def end_of(self, tenant: str, channel: str, native_id: str, *, is_person: bool = False) -> End:
        """A proven end with the key that it has now. is_person: by a token, whose key it keeps. Raises Unavailable."""
        native = self._hashes.native(tenant, channel, native_id)
        own = self.own_key(tenant, channel, native_id)
        standing = await self._table.standing(tenant, LinkedEnd(channel, native), own)
        return End(tenant, channel, native, standing.holder or own, is_person)

    def own_key(self, tenant: str, channel: str, native_id: str) -> str:
        """The isolation key that the end has while it is linked to nobody; Ends.note asks for it."""
        return long_id(self._hashes.own_key(tenant, channel, native_id))
