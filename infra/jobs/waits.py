"""Of which waits for a human the outside was told: one row a room, in the transaction that asks for the job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import LiteralString

import procrastinate

from ...commands.jobs import JobRequest
from ...commands.processes.ports import PAUSE_S, DueWait
from ...domain.errors import MinutebookError
from ..postgres.errors import translate
from ..postgres.reads import fetch
from .connector import SEARCH_PATH, Pool
from .engine import defer

_SILENCE: LiteralString = """
INSERT INTO minutebook.waits_told AS t (stream_id, run_id, seq, told_at) VALUES (%(stream)s, %(run)s, %(seq)s, %(now)s)
ON CONFLICT (stream_id) DO UPDATE SET run_id = EXCLUDED.run_id, seq = EXCLUDED.seq, told_at = EXCLUDED.told_at
    WHERE t.seq < EXCLUDED.seq
RETURNING t.seq
"""

# A report ends no pause: what a harness does, and what people say to it, is of other types.
_PAUSE: LiteralString = """
INSERT INTO minutebook.waits_told AS t (stream_id, run_id, seq, told_at)
SELECT s.id, %(run)s, %(seq)s, %(now)s FROM minutebook.streams s WHERE s.name = %(name)s
ON CONFLICT (stream_id) DO UPDATE SET run_id = EXCLUDED.run_id, seq = EXCLUDED.seq, told_at = EXCLUDED.told_at
    WHERE t.seq = EXCLUDED.seq OR t.run_id <> EXCLUDED.run_id OR (t.told_at <= %(before)s
        AND EXISTS (SELECT FROM minutebook.events e WHERE e.stream_id = t.stream_id AND e.seq > t.seq
                    AND e.seq < EXCLUDED.seq AND e.type <> 'state_changed'))
RETURNING t.seq
"""


class PostgresWaits:
    """Waits of commands/processes/ports.py over a pool of the app role."""

    def __init__(self, pool: Pool, app: procrastinate.App) -> None:
        self._pool = pool
        self._app = app

    async def tell_silence(self, wait: DueWait, request: JobRequest, now: datetime) -> None:
        """See Waits.tell_silence."""
        noted = {"stream": wait.stream_id, "run": wait.run_id, "seq": wait.seq, "now": now}
        try:
            async with self._pool.connection() as connection, connection.transaction():
                if await (await connection.execute(_SILENCE, noted, prepare=True)).fetchone() is not None:
                    await connection.execute(f"SET LOCAL search_path = {SEARCH_PATH}")  # pyright: ignore[reportArgumentType]
                    await defer(self._app, connection, request)
        except MinutebookError:
            raise
        except Exception as error:
            raise translate(error) from error

    async def tell_pause(self, room_id: str, run_id: str, seq: int, now: datetime) -> bool:
        """See Waits.tell_pause."""
        before = now - timedelta(seconds=PAUSE_S)
        noted = {"name": f"room:{room_id}", "run": run_id, "seq": seq, "now": now, "before": before}
        return bool(await fetch(self._pool, _PAUSE, noted))
