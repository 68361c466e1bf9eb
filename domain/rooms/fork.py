"""The event that begins a fork behind the events that it was copied from (rooms.md, Fork)."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from ..events import Event


class ForkedFrom(Event, frozen=True):
    """What stands before this was copied from another room; from here on the room goes its own way.

    room, seq: up to where the source was copied. chain: the source's chain hash there, in hex. owner: the forker, who
    alone owns and drives the fork.
    """

    type: ClassVar[str] = "state_changed"
    room: str
    seq: int
    chain: str
    owner: str
    note: str | UnsetType = UNSET
    kind: Literal["forked_from"] = "forked_from"
