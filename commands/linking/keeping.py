"""How long what linking knows is kept (delivery.md, Storage)."""

from __future__ import annotations

from ..channels.ends import Ends, EndsForgotten

BATCH = 500


async def forget_ends(ends: Ends) -> EndsForgotten:
    """Part of the retention job: all that is due. Raises Unavailable."""
    total = EndsForgotten()
    while True:
        gone = await ends.forget(BATCH)
        total = EndsForgotten(
            total.ends + gone.ends,
            total.tombstones + gone.tombstones,
            total.wrongs + gone.wrongs,
            total.challenges + gone.challenges,
        )
        if max(gone.ends, gone.tombstones, gone.wrongs, gone.challenges) < BATCH:
            return total
