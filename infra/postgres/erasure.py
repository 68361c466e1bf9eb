"""Erasure of one event's words, in its room and in every copy of it that forks have (rules.md, law 10)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

import msgspec
import psycopg

from .pool import CONNECT_TIMEOUT_S, check_role

Outcome = Literal["named", "gone", "not_found", "not_words", "held"]

_NAME = "SELECT outcome, stream_id, named_by, copies FROM minutebook.name_erasure_v1(%s, %s, %s, %s, %s, %s)"
TAKE = "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE stream_id = %s AND seq = %s"
"""Takes the words of an event that an erasure has named, in the same transaction."""


class ErasureRefused(Exception):
    """Nothing was erased, or not all; the message says why and what to do."""


class Erased(msgspec.Struct, frozen=True, rename="camel"):
    """A stream that has, or had, the event. named_by: seq of the event that says that it is erased; None where none has
    been written yet. was_there: whether its words were still there."""

    stream: str
    named_by: int | None
    was_there: bool


class Erasure(msgspec.Struct, frozen=True):
    """What is to be erased, and why. reason: without secrets; redactions: the rules that took some out of it."""

    stream: str
    seq: int
    reason: str
    redactions: list[str]


@contextlib.asynccontextmanager
async def eraser_session(url: str) -> AsyncGenerator[psycopg.AsyncConnection[tuple[Any, ...]]]:
    """A connection that may erase, and nothing else. Raises RoleRefused where `url` is of another role."""
    async with await psycopg.AsyncConnection.connect(
        url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
    ) as session:
        await check_role(session, "eraser")
        await session.execute("SET ROLE minutebook_eraser")
        await session.execute("SET search_path = pg_catalog, pg_temp")
        yield session


async def erase(url: str, erasure: Erasure, new_id: Callable[[], str], *, dry_run: bool = False) -> list[Erased]:
    """Erase in the room first, then in its forks and theirs, each in a transaction of its own: whoever repeats it after
    any failure goes on where it ended. `url` is the eraser's.

    Everything is looked at before anything is erased. Raises ErasureRefused where the event is not there, is none whose
    words can go, or is under legal hold in one of the rooms; RoleRefused for another role.
    """
    async with eraser_session(url) as session:
        found = await _everywhere(session, erasure, new_id, dry_run=True)
        return found if dry_run else await _everywhere(session, erasure, new_id, dry_run=False)


async def _everywhere(
    session: psycopg.AsyncConnection[tuple[Any, ...]], erasure: Erasure, new_id: Callable[[], str], *, dry_run: bool
) -> list[Erased]:
    found: list[Erased] = []
    waiting = [erasure.stream]
    while waiting:
        stream = waiting.pop(0)
        async with session.transaction():
            arguments = (stream, erasure.seq, new_id(), erasure.reason, erasure.redactions, dry_run)
            row = await (await session.execute(_NAME, arguments)).fetchone()
            assert row is not None  # noqa: S101 - the function answers one row
            outcome, stream_id, named_by, copies = row
            _check(outcome, stream, erasure)
            if outcome == "named" and not dry_run:
                await session.execute(TAKE, (stream_id, erasure.seq))
        found.append(Erased(stream, named_by, outcome == "named"))
        waiting += copies
    return found


def held(stream: str) -> ErasureRefused:
    """The refusal of what is under legal hold."""
    return ErasureRefused(f"{stream} is under legal hold; release it first, then erase again.")


def _check(outcome: Outcome, stream: str, erasure: Erasure) -> None:
    if outcome == "not_found" and stream != erasure.stream:
        return  # retention took the fork meanwhile, and the copy with it
    match outcome:
        case "not_found":
            raise ErasureRefused(f"{stream} has no event {erasure.seq}.")
        case "not_words":
            raise ErasureRefused(
                f"Event {erasure.seq} of {stream} says what the room is; only messages, handoffs, tool calls and"
                " results, and reports of a harness can be erased."
            )
        case "held":
            raise held(stream)
        case "named" | "gone":
            return
