"""What becomes of links and challenges afterwards: muted, unlinked, withdrawn, seen in a group."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from ..decisions import Decision, NewEvent
from ..deliveries.retry import DAY_S, after
from ..errors import NotVisible
from ..events import Event
from ..principals import Principal
from .events import LinkVoided, Push, PushChanged, Unlinked, UnlinkReason
from .state import Account, Challenge, Link

RELINK_S = 7 * DAY_S
"""After which an end that was unlinked may belong to another account; to the same one it may at once."""


def change_push(account: Account, link_id: str, push: Push, actor: Principal) -> Decision:
    """What may be sent to a linked end from now on; the same once more changes nothing. Raises NotVisible."""
    link = account.link(link_id)
    if link is None:
        raise NotVisible
    return Decision() if link.push == push else _by(actor, PushChanged(link_id, push))


def unlink(
    account: Account,
    link_id: str,
    reason: UnlinkReason,
    now: datetime,
    actor: Principal,
    relink_s: float = RELINK_S,
) -> Decision:
    """The end is its own again, and what it has begun or presented in this account is void.

    Routes, deliveries, continuations and streams end by this one event: who serves them reads it. Raises NotVisible.
    """
    link = account.link(link_id)
    if link is None:
        raise NotVisible
    void = (LinkVoided(each.link_id, "unlinked") for each in account.challenges if _is_of(each, link))
    gone = Unlinked(link_id, link.end.channel, link.end.native, reason, after(now, relink_s))
    return _by(actor, gone, *void)


def withdraw(account: Account, link_id: str, reason: Literal["withdrawn", "operator"], actor: Principal) -> Decision:
    """End a challenge before it becomes a link. Raises NotVisible."""
    if account.challenge(link_id) is None:
        raise NotVisible
    return _by(actor, LinkVoided(link_id, reason))


def seen_in_group(account: Account, code: str, actor: Principal) -> Decision:
    """A code was read by many, by whomever: what waits for it, or for its confirmation, is void. code: keyed hash."""
    return _by(actor, *(LinkVoided(each.link_id, "group") for each in account.challenges if each.code == code))


def _is_of(challenge: Challenge, link: Link) -> bool:
    return link.end == challenge.end or (challenge.presented is not None and challenge.presented.end == link.end)


def _by(actor: Principal, *events: Event) -> Decision:
    return Decision(tuple(NewEvent(event, actor) for event in events))
