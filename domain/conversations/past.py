"""What somebody could see at a moment of the past, from what the log says of them (conversations.md, Time travel)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from .events import ClearanceRecorded, Mode, ParticipantAdded, ParticipantRemoved, ReplyRecorded, UserRecorded
from .identity import Identity
from .visibility import Cleared, Sight, sight

Change = ParticipantAdded | ParticipantRemoved | ClearanceRecorded
"""What a conversation's log says of one person; all of it verified, and written by who may."""

Rule = Literal[
    "owner_only",
    "asker",
    "no_classes",
    "cleared",
    "not_cleared",
    "clearance_unknown",
    "rejected",
    "not_a_participant",
]
"""Why somebody may see a record or not. owner_only: the conversation has one viewer. asker: it is their own.
no_classes: nothing in it is classified. cleared, not_cleared: all of its classes, or not all, are among their labels.
clearance_unknown: none was recorded, so nothing classified is shown. rejected: it is shown to its sender alone."""


class Standing(Struct, frozen=True):
    """Whether somebody took part at a moment, and what they were cleared for; None where nothing was recorded.

    policy: digest of the clearance settings that the labels come from.
    """

    is_member: bool
    labels: frozenset[str] | None = None
    policy: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether they took part and it is known what they were cleared for."""
        return self.is_member and self.labels is not None


def standing(is_owner: bool, changes: Iterable[Change]) -> Standing:
    """Where somebody stands after the changes, in the order of the log: all, or the newest of each kind."""
    at = Standing(is_owner)
    for change in changes:
        at = _after(at, change, is_owner=is_owner)
    return at


def first_seen(is_owner: bool, at_record: Standing, later: Sequence[Change]) -> Standing:
    """How somebody first saw a record that is the newest, for as long as it was.

    at_record: where they stood when it came. later: what changed until the next record came. Who took part when it
    came, with a known clearance, was shown it at once; who came later, or was looked at for the first time later, saw
    it by what they were then.
    """
    at, was_member = at_record, at_record.is_member
    for change in later:
        if at.is_settled:
            break
        at = _after(at, change, is_owner=is_owner)
        was_member = was_member or at.is_member
    return at if at.is_settled else Standing(was_member)


def _after(at: Standing, change: Change, *, is_owner: bool) -> Standing:
    match change:
        case ParticipantAdded():
            return at if at.is_member else Standing(is_member=True)
        case ParticipantRemoved():
            return at if is_owner else Standing(is_member=False)
        case ClearanceRecorded():
            return replace(at, labels=frozenset(change.labels), policy=change.policy) if at.is_member else at
        case _:
            assert_never(change)


def cleared_by(labels: frozenset[str] | None, classes: Iterable[str]) -> Cleared:
    """The answer for one class set by labels; unknown labels clear nothing."""
    asked = frozenset(classes)
    return {asked: labels is not None and asked <= labels}


def sight_then(mode: Mode, record: UserRecorded | ReplyRecorded, viewer: Identity, then: Standing) -> Sight | None:
    """What a viewer could see of a record at a moment; None where they took no part."""
    if not then.is_member:
        return None
    return sight(mode, record, viewer, cleared_by(then.labels, record.classes))


_WIDTHS: tuple[Sight, ...] = ("restricted", "cleared", "own")


def narrower(one: Sight, other: Sight) -> Sight:
    """The one of the two that shows less."""
    return _WIDTHS[min(_WIDTHS.index(one), _WIDTHS.index(other))]


def rule_of(mode: Mode, record: UserRecorded | ReplyRecorded, viewer: Identity, then: Standing) -> Rule:
    """Why `sight_then` says what it says."""
    seen = sight_then(mode, record, viewer, then)
    if seen is None:
        return "not_a_participant"
    if seen == "own":
        return "owner_only" if mode == "owner" else "asker"
    if seen == "cleared":
        return "cleared" if record.classes else "no_classes"
    if record.asker is None or record.status == "rejected":
        return "rejected"
    return "clearance_unknown" if then.labels is None else "not_cleared"
