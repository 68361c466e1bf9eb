"""What each class of action needs in a room: leave at once, a refusal at once, or a person (rooms.md, Approvals)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from ..errors import Invalid
from .approval_events import ActionClass

Profile = Literal["attended", "unattended"]
"""Whether somebody is expected to watch the room's runs."""

Effect = Literal["allow", "deny", "human"]
"""What a class of action comes to; `human` waits for a person with the right to decide."""

EFFECTS: dict[Profile, dict[ActionClass, Effect]] = {
    "attended": {
        "forge.push": "allow",
        "forge.pr": "human",
        "forge.other": "human",
        "mcp.write": "human",
        "shell.high": "allow",
    },
    "unattended": {
        "forge.push": "allow",
        "forge.pr": "allow",
        "forge.other": "deny",
        "mcp.write": "deny",
        "shell.high": "allow",
    },
}
"""The table of rooms.md. Whatever is asked for is recorded, so `allow` is logged, too."""

ACTION_CLASSES: tuple[ActionClass, ...] = get_args(ActionClass)

ATTENDED_TTL = timedelta(minutes=30)
MAX_TTL = timedelta(days=30)

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Ttl = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,6}[smhd](?![\s\S])",
        description="How long an unattended request waits: a number and s, m, h or d; at most 30 days",
    ),
]


class ApprovalPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The `approvals` of a room, set when it opens and never changed.

    ttl counts for unattended rooms alone; a request in an attended one waits for ATTENDED_TTL. four_eyes: nobody who
    prompted a run decides what it asks for.
    """

    profile: Profile = "attended"
    overrides: dict[ActionClass, Effect] = {}
    ttl: Ttl = "4h"
    four_eyes: bool = False

    def effect(self, action_class: ActionClass) -> Effect:
        """What a class of action comes to in this room."""
        return self.overrides.get(action_class, EFFECTS[self.profile][action_class])

    def effects(self) -> dict[ActionClass, Effect]:
        """What every class comes to, as a hello answers it."""
        return {action_class: self.effect(action_class) for action_class in ACTION_CLASSES}

    def expiry(self, asked_at: datetime) -> datetime:
        """When a request of `asked_at` expires."""
        return asked_at + (ATTENDED_TTL if self.profile == "attended" else _span(self.ttl))


STRICTEST = ApprovalPolicy(overrides=dict.fromkeys(ACTION_CLASSES, "human"), four_eyes=True)
"""What stands in for a stored policy that this version cannot read: nothing goes ahead without a person."""


def checked_policy(policy: ApprovalPolicy, path: str = "$.approvals") -> dict[str, Any]:
    """The policy as RoomOpened stores it. Raises Invalid, with the path, for a `ttl` beyond MAX_TTL."""
    if _span(policy.ttl) > MAX_TTL:
        raise Invalid.at(f"{path}.ttl", f"must be at most {MAX_TTL.days}d")
    return msgspec.to_builtins(policy)


def policy_of(stored: dict[str, Any] | dict[str, object]) -> ApprovalPolicy:
    """The policy of a room from what its RoomOpened holds; never raises."""
    try:
        policy = msgspec.convert(stored, ApprovalPolicy)
    except msgspec.ValidationError:
        return STRICTEST
    return policy if _span(policy.ttl) <= MAX_TTL else STRICTEST


def _span(ttl: str) -> timedelta:
    return timedelta(**{_UNITS[ttl[-1]]: int(ttl[:-1])})
