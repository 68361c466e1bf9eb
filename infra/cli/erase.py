"""`minutebook erase ROOM SEQ`: the words of one event go, here and in every fork; with --conversation, of one turn.

With --deleted: of every turn whose message was deleted on its platform."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from ulid_transform import ulid_now

from ...commands.conversations.erasing import NoWords, pieces_of
from ...domain.rooms.commands import MAX_REASON_BYTES
from ..conversation_keys import conversation_keys
from ..database import Database
from ..postgres.conversation_erasure import Why, erase_pieces
from ..postgres.erasure import Erased, Erasure, ErasureRefused
from ..postgres.erasure import erase as erase_everywhere
from ..redaction.setup import redactor_of
from ..settings import Settings
from .access import room_of
from .common import FINDING, USAGE, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .erase_deleted import BY_SENDER, erase_deleted, logs_of
from .render import printable, say


def erase(
    room: Annotated[
        str | None,
        typer.Argument(metavar="ROOM", help="The room's id, or the conversation's.", show_default=False),
    ] = None,
    seq: Annotated[
        int | None,
        typer.Argument(metavar="SEQ", help="The event whose words go; in a conversation its ord.", show_default=False),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why, for the log of each room that has it.", show_default=False)
    ] = None,
    conversation: Annotated[
        bool, typer.Option("--conversation", help="ROOM is a conversation: the whole turn of the record goes.")
    ] = False,
    deleted: Annotated[
        bool,
        typer.Option(
            "--deleted", help="Without ROOM and SEQ: the turns whose messages were deleted on their platforms."
        ),
    ] = False,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say where it is.")] = False,
    json: Json = False,
) -> None:
    """Erase the words of one event, in its room and in all forks that copied it, closed ones too; the chain stays.

    Of a conversation question and answer go together, with the turn's steps and the summaries that cover it.
    """
    with guarded():
        if deleted:
            if room is not None or conversation:
                fail("--deleted goes without ROOM, SEQ and --conversation.", USAGE)
            _deleted(data_dir, BY_SENDER if reason is None else reason, dry_run=dry_run, json=json)
            return
        if room is None or seq is None or reason is None:
            fail("ROOM, SEQ and --reason are needed, or --deleted.", USAGE)
        stream = room if conversation else f"room:{room_of(room)}"
        if seq < 1:
            fail("SEQ is the place of an event, 1 or more.", USAGE)
        settings = settings_of(data_dir)
        why = _why(settings, reason)
        with database_of(settings) as database:
            if conversation:
                erasing = _in_conversation(settings, database, stream, seq, why, dry_run=dry_run)
            else:
                erasing = erase_everywhere(
                    database.url("eraser"), Erasure(stream, seq, why.reason, why.redactions), ulid_now, dry_run=dry_run
                )
            try:
                found = asyncio.run(erasing)
            except (ErasureRefused, NoWords) as error:
                fail(printable(str(error)), FINDING)
        if json:
            print_json({"isDryRun": dry_run, "streams": msgspec.to_builtins(found)})
        else:
            _print(found, dry_run=dry_run)


def _why(settings: Settings, reason: str) -> Why:
    if not 0 < len(reason.encode()) <= MAX_REASON_BYTES:
        fail(f"--reason must have 1 to {MAX_REASON_BYTES} bytes.", USAGE)
    shown, redactions = redactor_of(settings).text(reason)
    return Why(shown, redactions)


def _deleted(data_dir: Path | None, reason: str, *, dry_run: bool, json: bool) -> None:
    settings = settings_of(data_dir)
    why = _why(settings, reason)
    with database_of(settings) as database:
        done = asyncio.run(erase_deleted(settings, database, why, dry_run=dry_run))
    if json:
        print_json({"isDryRun": dry_run, **msgspec.to_builtins(done)})
        return
    _print(done.streams, dry_run=dry_run)
    for each in done.kept:
        say(f"conversation:{each.conversation}: kept for later: {printable(each.why)}")
    if not done.streams and not done.kept:
        say("nothing is to be erased")


async def _in_conversation(
    settings: Settings, database: Database, conversation_id: str, ord_: int, why: Why, *, dry_run: bool
) -> list[Erased]:
    async with logs_of(settings, database) as (_, store, log):
        pieces = await pieces_of(store, log, conversation_keys(settings), conversation_id, ord_)
    return await erase_pieces(database.url("eraser"), pieces, why, ulid_now, dry_run=dry_run)


def _print(found: list[Erased], *, dry_run: bool) -> None:
    for each in found:
        done: Any = "was erased before"
        if each.was_there:
            done = "would be erased" if dry_run else f"erased, as entry {each.named_by} says"
        say(f"{each.stream}: {done}")
