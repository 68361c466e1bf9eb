"""`minutebook erase --deleted`: the turns go whose messages were deleted on their platforms."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from msgspec import Struct
from ulid_transform import ulid_now

from ...commands.conversations.erasing import NoWords, message_of, pieces_of
from ..conversation_keys import conversation_keys
from ..database import Database
from ..postgres.appender import Appender
from ..postgres.conversation_erasure import Why, erase_pieces
from ..postgres.conversation_log import PostgresConversationLog
from ..postgres.erasure import Erased, ErasureRefused
from ..postgres.inbound_deletions import PostgresDeletions, Wish, take_wish
from ..postgres.pool import Pool, make_pool
from ..postgres.store import PostgresStore
from ..settings import Settings
from ..settings_check_kept import DAY_S
from ..settings_section import parse_duration

BY_SENDER = "deleted by its sender"
"""Why, unless somebody says something else."""

WAITS = "it is not recorded yet; the next run takes it"
"""Of a message that was received, and of one that may still come."""


class Kept(Struct, frozen=True):
    """A wish that stays. message: id of the turn's message."""

    conversation: str
    message: str
    why: str


class Done(Struct, frozen=True):
    """streams: what was erased, or would be. kept: what was not, and why. fulfilled: wishes that went."""

    streams: list[Erased]
    kept: list[Kept]
    fulfilled: int


@contextlib.asynccontextmanager
async def logs_of(
    settings: Settings, database: Database
) -> AsyncGenerator[tuple[Pool, PostgresStore, PostgresConversationLog]]:
    """What is looked at before an erasure, as the app role on one connection. Raises Unavailable."""
    timeout_ms = settings.database.statement_timeout_ms
    pool = make_pool(database.url("app"), "app", max_size=1, statement_timeout_ms=timeout_ms)
    await pool.open(wait=True)
    try:
        yield pool, PostgresStore(pool, Appender(pool)), PostgresConversationLog(pool)
    finally:
        await pool.close()


async def erase_deleted(settings: Settings, database: Database, why: Why, *, dry_run: bool) -> Done:
    """Every wish on its own: what is erased already costs a look, so that whoever repeats it after any failure goes on
    where it ended, and a wish goes only behind its erasure. Raises Unavailable."""
    async with logs_of(settings, database) as (pool, store, log):
        eraser = _Eraser(settings, store, log, database.url("eraser"), why, is_dry=dry_run)
        deletions, last = PostgresDeletions(pool), None
        days = parse_duration(settings.delivery.inbound_ttl) // DAY_S
        while page := await deletions.page(last, days):
            for wish in page:
                await eraser.one(wish)
            last = page[-1]
    return eraser.done


class _Eraser:
    def __init__(
        self,
        settings: Settings,
        store: PostgresStore,
        log: PostgresConversationLog,
        url: str,
        why: Why,
        *,
        is_dry: bool,
    ) -> None:
        self._keyring = conversation_keys(settings)
        self._store = store
        self._log = log
        self._url = url
        self._why = why
        self._is_dry = is_dry
        self.done = Done([], [], 0)

    async def one(self, wish: Wish) -> None:
        """Erase the turn of a wish, and take the wish behind it."""
        done = self.done
        found = await message_of(self._store, self._keyring, wish.conversation_id, wish.message_id)
        try:
            for ord_ in () if found is None else found.ords:
                pieces = await pieces_of(self._store, self._log, self._keyring, wish.conversation_id, ord_)
                done.streams.extend(await erase_pieces(self._url, pieces, self._why, ulid_now, dry_run=self._is_dry))
        except (NoWords, ErasureRefused) as error:
            done.kept.append(Kept(wish.conversation_id, wish.message_id, str(error)))
            return
        may_come = found is not None and (found.waits or not (found.ords or wish.is_old))
        if may_come:
            done.kept.append(Kept(wish.conversation_id, wish.message_id, WAITS))
        elif not self._is_dry:
            await take_wish(self._url, wish)
            self.done = Done(done.streams, done.kept, done.fulfilled + 1)
