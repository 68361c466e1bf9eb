"""Recording what a viewer is cleared for, so that the past can be answered (conversations.md, Shared mode)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from ..decisions import Decision, NewEvent
from ..errors import NotVisible, Sealed
from ..principals import Principal
from .events import ClearanceRecorded
from .identity import Identity, identity_key
from .state import Conversation, clearance_digest


class RecordClearance(Struct, frozen=True):
    """What a viewer is about to see by. policy: digest of the clearance settings that the labels come from."""

    viewer: Identity
    labels: frozenset[str]
    policy: str


def is_recorded(conversation: Conversation, viewer: Identity, labels: Collection[str], policy: str) -> bool:
    """Whether the newest record of that viewer says just that."""
    return conversation.clearances.get(identity_key(viewer)) == clearance_digest(labels, policy)


def record_clearance(conversation: Conversation, command: RecordClearance) -> Decision:
    """One record where the newest says something else, by the viewer; nothing in an owner-only conversation.

    Raises NotVisible for who takes no part, Sealed.
    """
    viewer = command.viewer
    if not conversation.may_speak(viewer):
        raise NotVisible
    if conversation.mode == "owner" or is_recorded(conversation, viewer, command.labels, command.policy):
        return Decision()
    if conversation.state == "closed":
        raise Sealed("The conversation is closed; nothing can be recorded in it any more.")
    recorded = ClearanceRecorded(viewer, tuple(sorted(command.labels)), command.policy, kid="", mac="")
    return Decision((NewEvent(recorded, Principal.own(viewer.actor)),))
