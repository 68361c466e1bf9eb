"""Who looked into the past of a conversation, or asked why somebody sees a record: a stream beside the conversation's.

It goes on behind the conversation's seal, and goes away with the conversation.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, Struct, UnsetType

from ..decisions import Decision, NewEvent
from ..events import Event, Recorded, Registry
from ..principals import Principal
from .identity import Identity


class HistoryInspected(Event, frozen=True, omit_defaults=True):
    """by looked, the event's actor, at what viewer could see. as_of: a cursor or a moment (RFC 3339), absent for now.

    ord: the one record that was asked about. policy: digest of the clearance settings of the server that answered.
    """

    type: ClassVar[str] = "history_inspected"
    by: Identity
    viewer: Identity
    policy: str
    kid: str
    mac: str
    as_of: str | UnsetType = UNSET
    ord: int | UnsetType = UNSET


AUDIT_EVENTS: Registry[HistoryInspected] = Registry((HistoryInspected,))
"""The closed registry."""


class Trail(Struct, frozen=True):
    """What is folded of it: how often somebody looked."""

    looks: int = 0


def evolve(trail: Trail, recorded: Recorded[object]) -> Trail:  # noqa: ARG001 - the shape of Kind
    """One look further."""
    return Trail(trail.looks + 1)


def inspect(inspected: HistoryInspected, by: Principal) -> Decision:
    """The record of one look."""
    return Decision((NewEvent(inspected, by),))
