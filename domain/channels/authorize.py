"""What a proven message comes to before anything of it is acted on: once a message, never once a chat."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct

from .allowlist import Verdict
from .messages import Inbound

AcceptInGroup = Literal["mention_only", "command_only", "mention_or_command", "all"]

DenyReason = Literal["not_allowed", "abstained", "not_addressed"]
"""For the audit log alone; not_addressed: said in a group, and not to the agent."""

BLAND = "This is not available to you here."
"""All that anybody is told of a denial."""


class Allowed(Struct, frozen=True):
    """The message may be acted on."""


class LinkRequired(Struct, frozen=True):
    """The sender must link this end first. In a group they are told so in private, or not at all."""


class Denied(Struct, frozen=True):
    """It may not. public: what may be said where it was said, empty in a shared chat. details: for the audit log."""

    reason: DenyReason
    public: str
    details: str


Outcome = Allowed | LinkRequired | Denied


def authorize(before: Verdict, after: Verdict | None, *, require_link: bool, is_group: bool) -> Outcome:
    """The outcome of both phases. after: None where the sender is not linked.

    A deny in either phase wins, an allow is needed in one, and to abstain throughout is to be denied.
    """
    phases = f"before {before}, after {after or 'none'}"
    if "deny" in (before, after):
        return Denied("not_allowed", _public(is_group), phases)
    if after is None and require_link:
        return LinkRequired()
    if "allow" in (before, after):
        return Allowed()
    return Denied("abstained", _public(is_group), phases)


def is_addressed(inbound: Inbound, accept: AcceptInGroup) -> bool:
    """Whether a message is meant for the agent: in a group only where the settings say that it is. A deletion always
    is: it may be of one that was."""
    if not inbound.place.is_group or inbound.deletes is not UNSET:
        return True
    is_command = inbound.verb is not None
    match accept:
        case "all":
            return True
        case "mention_only":
            return inbound.is_mention
        case "command_only":
            return is_command
        case "mention_or_command":
            return inbound.is_mention or is_command


def _public(is_group: bool) -> str:
    return "" if is_group else BLAND
