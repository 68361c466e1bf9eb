"""What a viewer may see of a record: the one such function of conversations, used by every path that shows one.

History, streams, resume, live replies, the context of turns, summaries, exports, deliveries and what operators see all
ask here (conversations.md, Shared mode). Nothing else reads a record's text for somebody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from .events import Mode, ReplyRecorded, UserRecorded
from .identity import Identity

Sight = Literal["own", "cleared", "restricted"]
"""own: all of it. cleared: all but what is the asker's alone (ids, usage, seen, truncated, error id). restricted: the
placeholder, and nothing else."""

Cleared = Mapping[frozenset[str], object]
"""Answers of the clearance policy for one viewer, by class set, asked for beforehand. What is not there, and what is
not exactly True, is a no."""


def sight(mode: Mode, record: UserRecorded | ReplyRecorded, viewer: Identity, cleared: Cleared) -> Sight:
    """What `viewer`, who may read the conversation at all, may see of a record.

    An owner-only conversation is its owner's throughout. In a shared one everybody sees what they asked and were
    answered; a rejected record is nobody else's; and the classes of any other must all be cleared.
    """
    if mode == "owner" or (record.asker is not None and record.asker == viewer):
        return "own"
    if record.asker is None or record.status == "rejected":
        return "restricted"
    return "cleared" if may_see(record.classes, cleared) else "restricted"


def may_see(classes: Collection[str], cleared: Cleared) -> bool:
    """Whether classes are cleared for somebody who asked none of it: those of a turn, a summary or a record."""
    return not classes or cleared.get(frozenset(classes)) is True
