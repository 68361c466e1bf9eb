"""How runs hand work on: the event of a handoff, and which roles may use which room tool (rooms.md, Room tools)."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from ..events import Event

RunRole = Literal["implementer", "reviewer", "tester", "triager"]
"""What a run is for. A role decides which room tools it has."""

RoomTool = Literal["room_read", "room_post", "room_handoff", "room_verdict"]

TOOL_ROLES: dict[RoomTool, frozenset[str] | None] = {
    "room_read": None,
    "room_post": None,
    "room_handoff": frozenset({"implementer", "tester", "triager"}),
    "room_verdict": frozenset({"reviewer", "tester"}),
}
"""Which roles have a tool; None where every run has it, whatever its role."""


class HandoffRecorded(Event, frozen=True):
    """A run passes its work on to the next role. `branch` is the run's, as it was registered."""

    type: ClassVar[str] = "handoff"
    from_role: str
    to_role: RunRole
    summary: str
    commit: str
    branch: str | UnsetType = UNSET


def tools_of(role: str) -> list[RoomTool]:
    """The room tools that a run of this role has, in the table's order."""
    return [tool for tool, roles in TOOL_ROLES.items() if roles is None or role in roles]
