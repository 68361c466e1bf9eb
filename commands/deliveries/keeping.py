"""How long what belongs to a delivery is kept: payloads, receipts, streams (delivery.md, Storage)."""

from __future__ import annotations

from msgspec import Struct

from ..ports import Append, EventStore
from .bulk_ports import BulkTable
from .kind import stream_of
from .ports import Board, Payloads

BATCH = 500


class Keep(Struct, frozen=True):
    """Times in seconds. payload_s: after the end; dead_s: after a death, to be replayed; orphan_s: of a payload that no
    plan followed. bulk_s: of the ids of a bulk plan."""

    payload_s: float = 86_400.0
    dead_s: float = 14 * 86_400.0
    orphan_s: float = 86_400.0
    bulk_s: float = 30 * 86_400.0


class Kept(Struct, frozen=True):
    """What went: payloads forgotten, streams sealed, whose days begin with that, and ids of bulk plans."""

    payloads: int
    sealed: int
    bulk: int = 0


class Keeping:
    """Part of the retention job."""

    def __init__(
        self, board: Board, payloads: Payloads, store: EventStore, bulk: BulkTable, keep: Keep | None = None
    ) -> None:
        self._board = board
        self._payloads = payloads
        self._store = store
        self._bulk = bulk
        self._keep = keep or Keep()

    async def run(self) -> Kept:
        """All that is due. What was appended to a stream meanwhile lets it be sealed the next time."""
        return Kept(await self._forget(), await self._seal(), await self._forget_plans())

    async def _forget(self) -> int:
        keep, gone = self._keep, 0
        while ids := await self._board.stale_payloads(keep.payload_s, keep.dead_s, keep.orphan_s, BATCH):
            await self._payloads.forget(ids)
            gone += len(ids)
        return gone

    async def _forget_plans(self) -> int:
        gone = 0
        while found := await self._bulk.forget(self._keep.bulk_s, BATCH):
            gone += found
        return gone

    async def _seal(self) -> int:
        sealed = 0
        while due := await self._board.to_seal(BATCH):
            items = [Append(stream_of(id_), version, (), seal=True) for _, id_, version in due]
            outcomes = await self._store.append(items)
            done = [
                stream_id
                for (stream_id, _, _), outcome in zip(due, outcomes, strict=True)
                if outcome.kind in ("appended", "sealed")
            ]
            await self._board.sealed(done)
            sealed += len(done)
            if not done:
                break
        return sealed
