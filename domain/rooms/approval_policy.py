"""What each class of action needs in a room: leave at once, a refusal at once, or a person (rooms.md, Approvals)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from ..errors import Invalid
from .approval_events import ActionClass
from .context import Timeouts

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

MAX_TTL = timedelta(days=30)
DEFAULT_TTL = "4h"
"""Of a stored policy that says nothing; that is an attended one, or of a version that did not ask the settings."""

_UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}

Ttl = Annotated[
    str,
    Meta(
        pattern=r"^[1-9][0-9]{0,6}[smhd](?![\s\S])",
        description="How long an unattended request waits: a number and s, m, h or d; at most 30 days",
    ),
]


class ApprovalPolicy(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The `approvals` of a room, set when it opens and never changed.

    ttl counts for unattended rooms alone; whoever opens a room and leaves it out gets that of the settings, and a
    request in an attended room waits for as long as those say. four_eyes: nobody who prompted a run decides what it
    asks for.
    """

    profile: Profile = "attended"
    overrides: dict[ActionClass, Effect] = {}
    ttl: Ttl | None = None
    four_eyes: bool = False

    def effect(self, action_class: ActionClass) -> Effect:
        """What a class of action comes to in this room."""
        return self.overrides.get(action_class, EFFECTS[self.profile][action_class])

    def effects(self) -> dict[ActionClass, Effect]:
        """What every class comes to, as a hello answers it."""
        return {action_class: self.effect(action_class) for action_class in ACTION_CLASSES}

    def expiry(self, asked_at: datetime, timeouts: Timeouts) -> datetime:
        """When a request of `asked_at` expires."""
        if self.profile == "attended":
            return asked_at + timedelta(seconds=timeouts.attended_s)
        return asked_at + _span(self.ttl or DEFAULT_TTL)


STRICTEST = ApprovalPolicy(overrides=dict.fromkeys(ACTION_CLASSES, "human"), ttl=DEFAULT_TTL, four_eyes=True)
"""What stands in for a stored policy that this version cannot read: nothing goes ahead without a person."""


def checked_policy(policy: ApprovalPolicy, timeouts: Timeouts, path: str = "$.approvals") -> dict[str, Any]:
    """The policy as RoomOpened stores it: with the `ttl` of now, so that later settings do not change a room.

    Raises Invalid, with the path, for one beyond MAX_TTL.
    """
    if policy.ttl is None:
        policy = replace(policy, ttl=ttl_of(timeouts.unattended_s))
    elif _span(policy.ttl) > MAX_TTL:
        raise Invalid.at(f"{path}.ttl", f"must be at most {MAX_TTL.days}d")
    return msgspec.to_builtins(policy)


def policy_of(stored: dict[str, Any] | dict[str, object]) -> ApprovalPolicy:
    """The policy of a room from what its RoomOpened holds; never raises."""
    try:
        policy = msgspec.convert(stored, ApprovalPolicy)
    except msgspec.ValidationError:
        return STRICTEST
    if policy.ttl is None:
        return replace(policy, ttl=DEFAULT_TTL)
    return policy if _span(policy.ttl) <= MAX_TTL else STRICTEST


def ttl_of(seconds: float) -> str:
    """A wait as a room has it, in its largest whole unit: `4h` of 14400."""
    span = timedelta(seconds=int(seconds))
    unit = next(name for name, each in _UNITS.items() if not span % each)
    return f"{span // _UNITS[unit]}{unit}"


def _span(ttl: str) -> timedelta:
    return int(ttl[:-1]) * _UNITS[ttl[-1]]
