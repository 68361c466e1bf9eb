"""What the handlers of rooms need beside the log, as ports: where runs are, holds of closed rooms, presence, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from ..domain.principals import Caller, Principal
from .ports import Forks, Key


class Runs(Protocol):
    """Every run of the server by its id, as of the last append of any process."""

    async def room_of_run(self, run_id: str) -> str | None:
        """The id of the room that a run is registered in; None for an id that no run has. Raises Unavailable."""
        ...


class Held(Struct, frozen=True):
    """What became of a hold of a sealed stream. seq, chain: the stream's head. body: a keyed call's stored answer.

    open: there is no such sealed stream; the hold is an event of it.
    """

    kind: Literal["done", "duplicate", "key_reused", "open"]
    seq: int
    chain: str | None
    status: int | None
    body: str | None


class Holds(Protocol):
    """Holds of streams that take no event any more."""

    async def hold_closed(
        self, stream: str, *, is_set: bool, hold_id: str, actor: Principal, reason: str, key: Key | None
    ) -> Held:
        """Set or release it, and keep who did it and why; releasing what nobody holds changes nothing."""
        ...


class Mark(Struct, frozen=True):
    """A person was seen in a room, and last did something in it. The times never move back."""

    room_id: str
    principal: str
    seen_at: datetime
    acted_at: datetime | None


class LastSeen(Struct, frozen=True):
    """When a person was last seen in a room, and last did something in it."""

    seen_at: datetime
    acted_at: datetime | None


class Presence(Protocol):
    """When people were last in a room: beside the log, and up to half a minute late (rooms.md, Driver token)."""

    async def write(self, marks: Sequence[Mark]) -> None:
        """Keep the later times of each; rooms that are gone are passed over. Raises Unavailable."""
        ...

    async def read(self, room_id: str) -> Mapping[str, LastSeen]:
        """Everybody of whom something is known, by principal. Raises Unavailable."""
        ...


Admit = Callable[[Caller], Callable[[], None]]
"""The limit on a principal's commands. What it gives is called once the caller is authorized, any number of times for
one command, and raises RateLimited."""


class Beside(Struct, frozen=True):
    """Everything of this module. acted: told of each command that a caller got through, with the room."""

    runs: Runs
    forks: Forks
    holds: Holds
    admit: Admit
    acted: Callable[[str, Caller], None]
