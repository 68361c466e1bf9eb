"""How an account gets an end: begun at one end, presented at another, confirmed at the first. State in, events out;
time, chance and what other accounts have are handed in. Law 30."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct

from ..channels.link_policy import LinkPolicy, may_link
from ..decisions import Decision, NewEvent
from ..deliveries.lanes import DESTINATION
from ..deliveries.retry import after
from ..errors import Full, Invalid, NotVisible, StaleConsent, TooManyPending
from ..events import Event
from ..ids import is_conversation_id
from ..principals import Principal
from ..times import stamp
from .codes import CODE_TTL_S
from .events import FailReason, LinkBegun, LinkConfirmed, LinkedEnd, LinkFailed, LinkPresented, LinkVoided, Push
from .state import Account, Challenge, Presented

MAX_PENDING = 3
"""Links of one account that have begun and not ended."""

MAX_TENANT_PENDING = 10_000
"""The same of a whole tenant."""

MAX_FAILURES = 5
"""Times that a live code may fail before it is void: somebody has it who should not."""

MAX_LINKS = 16
"""Ends of one account."""

Objection = Literal["taken", "policy", "full"]
"""What stands against a link, whoever consents: a reason of LinkFailed and of LinkVoided."""

_CODE_HASH = re.compile(r"[0-9a-f]{64}")
_TOO_MANY = "Too many links wait for their confirmation; confirm one, or begin again when one has expired."


class End(Struct, frozen=True):
    """A proven end: somebody who has just spoken on a channel, or the holder of a token.

    native: keyed hash of the platform's id, `h:` and 32 hex digits. account: the isolation key that it has now, of its
    account or of its own; 26 characters as in ids.py. keeps: it speaks for a person by their token, and never moves to
    another account.
    """

    tenant: str
    channel: str
    native: str
    account: str
    keeps: bool = False

    @property
    def linked(self) -> LinkedEnd:
        """The end as events name it."""
        return LinkedEnd(self.channel, self.native)


class Standing(Struct, frozen=True):
    """What is known of an end besides. holder: the account it is linked to; left: the one it was unlinked from last,
    and free_at: when another one may have it. Empty where there is none. leads: others are linked to the key that is
    its own, so that it cannot join them to another."""

    holder: str = ""
    left: str = ""
    free_at: str = ""
    leads: bool = False


class Around(Struct, frozen=True):
    """What a link is judged by beside its own account: the standing of the end that began it and of the one that
    presents, and the policy of the settings. Read in the transaction that appends, or guarded by it."""

    policy: LinkPolicy
    beginner: Standing = Standing()
    presenter: Standing = Standing()


class Confirmed(Struct, frozen=True):
    """home: for the stream of the account that gets the end, to be appended first. began: for the stream where the link
    began; nothing where it is the same. If only the first is stored, to confirm again appends the second."""

    home: Decision
    began: Decision


def begin(
    account: Account,
    end: End,
    link_id: str,
    code: str,
    pending: int,
    now: datetime,
    actor: Principal,
    ttl_s: float = CODE_TTL_S,
) -> Decision:
    """Ask for a code; what has expired meanwhile is said first. code: its keyed hash. pending: of the whole tenant.

    Raises TooManyPending, Full, NotVisible for another's account, Invalid for what no event may hold.
    """
    _check(end, link_id, code)
    if account.key not in ("", end.account) or account.tenant not in ("", end.tenant):
        raise NotVisible
    old = [each for each in account.challenges if _is_over(each, now)]
    if len(account.challenges) - len(old) >= MAX_PENDING or pending >= MAX_TENANT_PENDING:
        raise TooManyPending(_TOO_MANY)
    if len(account.links) >= MAX_LINKS:
        raise Full(f"{MAX_LINKS} ends are linked already; unlink one first.")
    expires_at = after(now, ttl_s)
    begun = LinkBegun(link_id, end.tenant, end.account, end.channel, end.native, end.keeps, code, expires_at)
    expired = (LinkVoided(each.link_id, "expired") for each in old)
    return _by(actor, *expired, begun, answer={"id": link_id, "expiresAt": expires_at})


def present(
    began: Account,
    own: Account,
    end: End,
    code: str,
    around: Around,
    now: datetime,
    actor: Principal,
    *,
    is_group: bool,
) -> Decision:
    """Show a code at the other end; events are for the stream of `began`, where the code is from.

    own: the account of the presenting end. Every failure is the same NotVisible, raised or, where the log must say
    something, as the refusal of the decision; whoever calls counts each of them (codes.py, Wrongs).
    """
    challenge = next((each for each in began.challenges if each.code == code), None)
    if (
        challenge is None
        or began.tenant != end.tenant
        or own.tenant not in ("", end.tenant)
        or _is_over(challenge, now)
    ):
        raise NotVisible
    if own.key not in ("", end.account):
        raise NotVisible
    if is_group:
        return _refused(actor, LinkVoided(challenge.link_id, "group"))
    if challenge.presented is not None:
        return _failed(challenge, end, "used", actor)
    if began.key == end.account or challenge.end == end.linked:
        return _failed(challenge, end, "own", actor)
    moves = _beginner_moves(began, challenge, own, end)
    if moves is None:
        return _failed(challenge, end, "taken", actor)
    home = own if moves else began
    key = end.account if moves else began.key
    digest = consent_digest(challenge.link_id, challenge.end, end.linked, key)
    shown = Presented(end.linked, end.account, key, digest)
    objection = _objection(challenge, shown, home, around, now)
    if objection is not None:
        return _failed(challenge, end, objection, actor)
    event = LinkPresented(challenge.link_id, end.channel, end.native, end.account, key, digest)
    return _by(actor, event, answer={"id": challenge.link_id, "state": "presented", "consentDigest": digest})


def confirm(
    began: Account,
    home: Account,
    end: End,
    link_id: str,
    digest: str,
    push: Push,
    around: Around,
    now: datetime,
    actor: Principal,
) -> Confirmed:
    """Consent at the end that began, to what it has seen. home: the account that the presentation names.

    Everything is judged once more. Raises NotVisible to any other end and for what has ended; StaleConsent where the
    digest is not that of the presentation, or there is none yet.
    """
    challenge = began.challenge(link_id)
    if challenge is None or challenge.end != end.linked or began.tenant != end.tenant:
        raise NotVisible
    shown = challenge.presented
    answer = {"linkId": link_id}
    made = home.link(link_id)
    if shown is not None and made is not None and home.key == shown.home:
        # An earlier call came half through; what it has made stands, whatever time and policy say now.
        rest = _confirmation(began, challenge, shown, made.push, made.linked_at)
        return Confirmed(Decision(answer=dict(answer)), _by(actor, rest, answer=answer))
    if _is_over(challenge, now):
        return Confirmed(Decision(), _refused(actor, LinkVoided(link_id, "expired")))
    if shown is None or shown.consent_digest != digest:
        raise StaleConsent("The other end is not the one that you have seen; look at it, and confirm again.")
    if home.key not in ("", shown.home) or home.tenant not in ("", began.tenant):
        raise NotVisible
    objection = _objection(challenge, shown, home, around, now)
    if objection is not None:
        return Confirmed(Decision(), _refused(actor, LinkVoided(link_id, objection)))
    decision = _by(actor, _confirmation(began, challenge, shown, push, stamp(now)), answer=answer)
    return Confirmed(decision, Decision() if shown.home == began.key else decision)


def consent_digest(link_id: str, beginner: LinkedEnd, presenter: LinkedEnd, home: str) -> str:
    """What ties a consent to one link between exactly these ends, in hex: SHA-256 over canonical JSON. What the ends
    are shown as is fixed when the code is presented, and therefore not part of it."""
    said = [link_id, beginner.channel, beginner.native, presenter.channel, presenter.native, home]
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def _beginner_moves(began: Account, challenge: Challenge, own: Account, end: End) -> bool | None:
    """Whether the end that began joins the account of the other, and not the other way round; None where neither may
    move: histories and accounts are never merged."""
    beginner_stays = challenge.keeps or bool(began.links)
    presenter_stays = end.keeps or bool(own.links)
    return None if beginner_stays and presenter_stays else presenter_stays


def _objection(
    challenge: Challenge, shown: Presented, home: Account, around: Around, now: datetime
) -> Objection | None:
    """What stands against the link, whoever consents."""
    joining = _joining(challenge, shown)
    if joining == shown.end:
        joins, stays, other = around.presenter, around.beginner, challenge.end
    else:
        joins, stays, other = around.beginner, around.presenter, shown.end
    left_lately = joins.left not in ("", shown.home) and stamp(now) < joins.free_at
    if joins.holder or joins.leads or left_lately or stays.holder not in ("", shown.home):
        return "taken"
    # All ends of an account share its conversations: the policy must allow each pair.
    others = (other.channel, *(each.end.channel for each in home.links))
    if not all(may_link(around.policy, joining.channel, each) for each in others):
        return "policy"
    return "full" if len(home.links) >= MAX_LINKS else None


def _joining(challenge: Challenge, shown: Presented) -> LinkedEnd:
    return challenge.end if shown.home == shown.account else shown.end


def _confirmation(began: Account, challenge: Challenge, shown: Presented, push: Push, at: str) -> LinkConfirmed:
    end = _joining(challenge, shown)
    return LinkConfirmed(challenge.link_id, began.tenant, shown.home, end.channel, end.native, push, at)


def _failed(challenge: Challenge, end: End, reason: FailReason, actor: Principal) -> Decision:
    failed = LinkFailed(challenge.link_id, end.channel, end.native, reason)
    if challenge.failures + 1 < MAX_FAILURES:
        return _refused(actor, failed)
    return _refused(actor, failed, LinkVoided(challenge.link_id, "failures"))


def _is_over(challenge: Challenge, now: datetime) -> bool:
    return challenge.expires_at <= stamp(now)


def _check(end: End, link_id: str, code: str) -> None:
    if not (is_conversation_id(link_id) and is_conversation_id(end.account)):
        raise Invalid.at("$.linkId", "is no id of a link, or its account is no isolation key")
    if not DESTINATION.fullmatch(end.native) or not _CODE_HASH.fullmatch(code):
        raise Invalid.at("$.code", "is no keyed hash of a code, or its end is none of an id")


def _refused(actor: Principal, *events: Event) -> Decision:
    return Decision(tuple(NewEvent(event, actor) for event in events), refusal=NotVisible())


def _by(actor: Principal, *events: Event, answer: dict[str, str] | None = None) -> Decision:
    return Decision(tuple(NewEvent(event, actor) for event in events), answer=dict(answer or {}))
