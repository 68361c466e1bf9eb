"""Deltas of running replies, for the viewers of other processes: one batch of a process is one call and one wake-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import psycopg
from psycopg_pool import AsyncConnectionPool

from ...commands.conversations.ports import Delta, Position
from .reads import fetch

CHANNEL = "minutebook_deltas"
"""Where a batch is announced: stream ids with commas between, or `*`."""

_PUT = "SELECT minutebook.deltas_put_v1(%s::json)"
_BEHIND = """
SELECT d.stream_id, d.turn, d.attempt, d.start, d.text
FROM unnest(%s::bigint[], %s::bigint[], %s::integer[], %s::bigint[]) AS p (stream_id, turn, attempt, place)
CROSS JOIN LATERAL (
    SELECT * FROM minutebook.deltas n
    WHERE n.stream_id = p.stream_id AND (n.turn, n.attempt) >= (p.turn, p.attempt)
      AND ((n.turn, n.attempt) > (p.turn, p.attempt) OR n.start + char_length(n.text) > p.place)) d
ORDER BY d.stream_id, d.turn, d.attempt, d.start
"""
_CLEAR = "SELECT minutebook.deltas_drop_v1(%s, %s)"
_EXPIRE = "SELECT minutebook.deltas_expire_v1()"

CHECKED = 0
"""Epoch of a delta that was read: the writer's was looked at when it was stored."""


class PostgresDeltaTable:
    """DeltaTable of commands/conversations/ports.py over a pool of the app role."""

    def __init__(self, pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]]) -> None:
        self._pool = pool

    async def put(self, deltas: Sequence[Delta]) -> None:
        """See DeltaTable.put. A NUL, which a text of the database cannot hold, becomes U+FFFD."""
        if deltas:
            rows = [
                {
                    "s": each.stream_id,
                    "t": each.turn,
                    "a": each.attempt,
                    "o": each.offset,
                    "x": each.text.replace("\0", "\N{REPLACEMENT CHARACTER}"),
                    "e": each.epoch,
                }
                for each in deltas
            ]
            await fetch(self._pool, _PUT, (msgspec.json.encode(rows).decode(),))

    async def behind(self, positions: Mapping[int, Position]) -> list[Delta]:
        """See DeltaTable.behind. Their epoch is CHECKED."""
        if not positions:
            return []
        lists = (
            list(positions),
            [each.turn for each in positions.values()],
            [each.attempt for each in positions.values()],
            [each.offset for each in positions.values()],
        )
        rows = await fetch(self._pool, _BEHIND, lists)
        return [Delta(stream_id, turn, attempt, start, text, CHECKED) for stream_id, turn, attempt, start, text in rows]

    async def clear(self, stream_id: int, turn: int) -> None:
        """See DeltaTable.clear."""
        await fetch(self._pool, _CLEAR, (stream_id, turn))

    async def expire(self) -> None:
        """What is older than 15 minutes goes, whatever became of its turn. Raises Unavailable."""
        await fetch(self._pool, _EXPIRE, ())
