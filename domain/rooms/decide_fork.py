"""The decision on a fork: who may, up to where, and what the event behind the copies says (rooms.md, Fork)."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta

from ..errors import Invalid, ReviewerNeedsPr, TooLong
from .acting import allow
from .commands import Command, Ref, Url
from .context import Context
from .fork import ForkedFrom
from .handoff import RunRole
from .runs import NEEDS_PULL_REQUEST
from .state import Room

MAX_NOTE_CHARS = 1024
"""Longest note on why a fork was made."""


class ForkRoom(Command, frozen=True):
    """POST /v1/rooms/{id}/fork. seq: the last event to copy. role: of a first run in the fork, if one is wanted."""

    seq: Ref
    note: Annotated[str, Meta(min_length=1, max_length=MAX_NOTE_CHARS)] | None = None
    role: RunRole | None = None
    pull_request: Url | None = None


def fork_room(room: Room, command: ForkRoom, context: Context) -> ForkedFrom:
    """What the fork's own log begins with, behind the copies; its `chain` is filled in where the copies are made.

    The source may be sealed. Raises Invalid for a seq beyond the head or a pull request without a run; ReviewerNeedsPr;
    TooLong where the fork would have no room below the limit of events (that of bytes is held where it is known, in the
    log).
    """
    allow(room, context, "fork")
    if command.seq > context.version:
        raise Invalid.at("$.seq", f"must be the seq of an event of this room; the last is {context.version}")
    if command.seq + 1 >= context.limits.events:
        raise TooLong(f"A fork of so many events has no room left; fork before event {context.limits.events - 1}.")
    if command.role in NEEDS_PULL_REQUEST and command.pull_request is None:
        raise ReviewerNeedsPr("A reviewer's run needs a pull request to look at; name it.")
    if command.pull_request is not None and command.role is None:
        raise Invalid.at("$.pullRequest", "is for a first run, whose role is missing")
    return ForkedFrom(
        room=context.room_id,
        seq=command.seq,
        chain="",
        owner=str(context.caller.principal),
        note=UNSET if command.note is None else command.note,
    )


def latest_commit(room: Room) -> str | None:
    """The latest commit that a run named in a handoff or verdict: where a fork's first run starts."""
    quotes = (quote for quote in (room.last_handoff, room.last_verdict) if quote is not None)
    by_agents = [quote for quote in quotes if quote.author.startswith("agent:") and quote.commit is not UNSET]
    if not by_agents:
        return None
    commit = max(by_agents, key=lambda quote: quote.seq).commit
    return None if commit is UNSET else commit
