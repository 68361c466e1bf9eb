"""`minutebook erase ROOM SEQ`: the words of one event go, here and in every fork; with --conversation, of one turn."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import typer
from ulid_transform import ulid_now

from ...commands.conversations.erasing import NoWords, pieces_of
from ...domain.rooms.commands import MAX_REASON_BYTES
from ..conversation_keys import conversation_keys
from ..database import Database
from ..postgres.appender import Appender
from ..postgres.conversation_erasure import Why, erase_pieces
from ..postgres.conversation_log import PostgresConversationLog
from ..postgres.erasure import Erased, Erasure, ErasureRefused
from ..postgres.erasure import erase as erase_everywhere
from ..postgres.pool import make_pool
from ..postgres.store import PostgresStore
from ..redaction.setup import redactor_of
from ..settings import Settings
from .access import room_of
from .common import FINDING, USAGE, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .render import printable, say


def erase(
    room: Annotated[str, typer.Argument(metavar="ROOM", help="The room's id, or the conversation's.")],
    seq: Annotated[int, typer.Argument(metavar="SEQ", help="The event whose words go; in a conversation its ord.")],
    reason: Annotated[str, typer.Option(help="Why, for the log of each room that has it.")],
    conversation: Annotated[
        bool, typer.Option("--conversation", help="ROOM is a conversation: the whole turn of the record goes.")
    ] = False,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say where it is.")] = False,
    json: Json = False,
) -> None:
    """Erase the words of one event, in its room and in all forks that copied it, closed ones too; the chain stays.

    Of a conversation question and answer go together, with the turn's steps and the summaries that cover it.
    """
    with guarded():
        stream = room if conversation else f"room:{room_of(room)}"
        if seq < 1:
            fail("SEQ is the place of an event, 1 or more.", USAGE)
        if not 0 < len(reason.encode()) <= MAX_REASON_BYTES:
            fail(f"--reason must have 1 to {MAX_REASON_BYTES} bytes.", USAGE)
        settings = settings_of(data_dir)
        shown, redactions = redactor_of(settings).text(reason)
        with database_of(settings) as database:
            if conversation:
                erasing = _in_conversation(settings, database, stream, seq, Why(shown, redactions), dry_run=dry_run)
            else:
                erasing = erase_everywhere(
                    database.url("eraser"), Erasure(stream, seq, shown, redactions), ulid_now, dry_run=dry_run
                )
            try:
                found = asyncio.run(erasing)
            except (ErasureRefused, NoWords) as error:
                fail(printable(str(error)), FINDING)
        if json:
            print_json({"isDryRun": dry_run, "streams": msgspec.to_builtins(found)})
        else:
            _print(found, dry_run=dry_run)


async def _in_conversation(
    settings: Settings, database: Database, conversation_id: str, ord_: int, why: Why, *, dry_run: bool
) -> list[Erased]:
    timeout_ms = settings.database.statement_timeout_ms
    pool = make_pool(database.url("app"), "app", max_size=1, statement_timeout_ms=timeout_ms)
    await pool.open(wait=True)
    try:
        store = PostgresStore(pool, Appender(pool))
        log = PostgresConversationLog(pool)
        pieces = await pieces_of(store, log, conversation_keys(settings), conversation_id, ord_)
    finally:
        await pool.close()
    return await erase_pieces(database.url("eraser"), pieces, why, ulid_now, dry_run=dry_run)


def _print(found: list[Erased], *, dry_run: bool) -> None:
    for each in found:
        done: Any = "was erased before"
        if each.was_there:
            done = "would be erased" if dry_run else f"erased, as entry {each.named_by} says"
        say(f"{each.stream}: {done}")
