"""What became of a verdict outside, as the log says it (rooms.md, Runs)."""

from __future__ import annotations

from msgspec import UNSET

from .acting import allow
from .commands import Command
from .context import Context, Decision, by_server
from .events import VerdictNotPosted, VerdictPosted
from .state import Room


class SettleVerdict(Command, frozen=True):
    """The server's: the verdict of event `ref` stands on its pull request, or never will, for that reason.

    url: the comment's address.
    """

    ref: int
    reason: str | None = None
    url: str | None = None


def settle_verdict(room: Room, command: SettleVerdict, context: Context) -> Decision:
    """Record the outcome of a verdict under its fixed key. Nothing in a room that was closed meanwhile."""
    allow(room, context, "sweep")
    if room.is_closed:
        return Decision()
    if command.reason is None:
        event = VerdictPosted(command.ref, UNSET if command.url is None else command.url)
    else:
        event = VerdictNotPosted(command.ref, command.reason)
    return Decision((by_server(event, f"verdict:{command.ref}", caused_by=command.ref),))
