"""Bulk work of operators on deliveries: always a plan first, then a run over what has not changed since."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from ..decisions import Decision, NewEvent
from ..errors import AlreadyEnded, Conflict, NotVisible
from ..events import Event, Opaque, Recorded, Registry
from ..principals import SERVER, Principal
from ..times import stamp
from .operate import reason_code
from .retry import after
from .state import Status

SCHEMA = "bulk-1"

PLAN_S = 3600.0
"""So long a plan may be run."""

Action = Literal["replay", "revoke", "purge"]
Class = Literal["safe", "unknown_outcome", "would_duplicate", "revoked", "expired", "redacted"]
"""What a run means for a delivery, see class_of."""

CLASSES: tuple[Class, ...] = ("safe", "unknown_outcome", "would_duplicate", "revoked", "expired", "redacted")

Ended = Literal["done", "stopped", "expired"]


class BulkPlanned(Event, frozen=True, omit_defaults=True):
    """A dry run: which deliveries would be touched, by class; their ids are in a table that may be deleted.

    wish: the filter, by the names of http.md; ids, channels and keyed hashes only. rate: deliveries a second. reason: a
    code. expires_at: until then it may be run.
    """

    type: ClassVar[str] = "bulk_planned"
    plan_id: str
    action: Action
    wish: Mapping[str, str]
    counts: Mapping[str, int]
    rate: int
    reason: str
    expires_at: str
    resend_unknown: bool = False


class BulkStarted(Event, frozen=True):
    """It is run, by this event's actor."""

    type: ClassVar[str] = "bulk_started"
    plan_id: str


class BulkEnded(Event, frozen=True, omit_defaults=True):
    """Nothing more comes of it. done, skipped, failed: deliveries, of a run that came to its end."""

    type: ClassVar[str] = "bulk_ended"
    plan_id: str
    outcome: Ended
    done: int = 0
    skipped: int = 0
    failed: int = 0


BulkEvent = BulkPlanned | BulkStarted | BulkEnded

StoredBulkEvent = BulkEvent | Opaque

BULK_EVENTS: Registry[BulkEvent] = Registry((BulkPlanned, BulkStarted, BulkEnded))


class Bulk(Struct, frozen=True):
    """A plan. actor: who runs it."""

    plan: BulkPlanned | None = None
    state: Literal["none", "planned", "running", "done", "stopped", "expired"] = "none"
    actor: Principal | None = None
    ended: BulkEnded | None = None


INITIAL = Bulk()


def evolve(bulk: Bulk, recorded: Recorded[StoredBulkEvent]) -> Bulk:
    """One event further."""
    match recorded.event:
        case BulkPlanned() as plan:
            return replace(bulk, plan=plan, state="planned")
        case BulkStarted():
            return replace(bulk, state="running", actor=recorded.actor)
        case BulkEnded() as ended:
            return replace(bulk, state=ended.outcome, ended=ended)
        case Opaque():
            return bulk
        case _:
            assert_never(recorded.event)


class Seen(Struct, frozen=True):
    """What the class of a delivery depends on. open_until: of a dead one, until when it may be replayed. is_in_doubt:
    something that counts as not sent may have arrived."""

    status: Status
    reason: str
    has_payload: bool
    is_in_doubt: bool
    open_until: datetime | None


def class_of(action: Action, seen: Seen, now: datetime) -> Class:
    """What a run would mean for it, as the guide's table has it (docs/howto/operate-deliveries.md)."""
    if not seen.has_payload:
        return "redacted"
    match action:
        case "purge":
            return "unknown_outcome" if seen.status in ("attempting", "unknown") else "safe"
        case "revoke":
            return _of_revoke(seen.status)
        case "replay":
            return _of_replay(seen, now)


def is_run(action: Action, class_: Class, *, resend_unknown: bool) -> bool:
    """Whether a run touches deliveries of that class."""
    return class_ == "safe" or (class_ == "unknown_outcome" and (action != "replay" or resend_unknown))


def begin(bulk: Bulk, now: datetime, actor: Principal) -> Decision:
    """Run it; once more changes nothing. Raises NotVisible, AlreadyEnded, Conflict for a plan that is too old."""
    if bulk.plan is None:
        raise NotVisible
    if bulk.state == "running":
        return Decision()
    if bulk.ended is not None:
        raise AlreadyEnded("The plan has ended; make another one.", state=bulk.state)
    if bulk.plan.expires_at <= stamp(now):
        raise Conflict("The plan is too old; make another one.")
    return Decision((NewEvent(BulkStarted(bulk.plan.plan_id), actor),))


def stop(bulk: Bulk, actor: Principal) -> Decision:
    """Touch nothing more; what has ended stays as it is. Raises NotVisible."""
    if bulk.plan is None:
        raise NotVisible
    if bulk.ended is not None:
        return Decision()
    return Decision((NewEvent(BulkEnded(bulk.plan.plan_id, "stopped"), actor),), seal=True)


def planned(
    plan_id: str,
    action: Action,
    wish: Mapping[str, str],
    counts: Mapping[str, int],
    rate: int,
    reason: str,
    now: datetime,
    actor: Principal,
    *,
    resend_unknown: bool,
) -> Decision:
    """The first event of its stream."""
    event = BulkPlanned(plan_id, action, wish, counts, rate, reason_code(reason), after(now, PLAN_S), resend_unknown)
    return Decision((NewEvent(event, actor),))


def finish(bulk: Bulk, done: int, skipped: int, failed: int) -> Decision:
    """A run has come to its end; nothing where it was stopped meanwhile."""
    if bulk.plan is None or bulk.state != "running":
        return Decision()
    return _by_us(BulkEnded(bulk.plan.plan_id, "done", done, skipped, failed))


def lapse(bulk: Bulk, now: datetime) -> Decision:
    """Nobody ran it in time."""
    if bulk.plan is None or bulk.state != "planned" or bulk.plan.expires_at > stamp(now):
        return Decision()
    return _by_us(BulkEnded(bulk.plan.plan_id, "expired"))


def _by_us(event: Event) -> Decision:
    return Decision((NewEvent(event, SERVER, origin="broker"),), seal=True)


def _of_revoke(status: Status) -> Class:
    match status:
        case "planned" | "waiting":
            return "safe"
        case "attempting" | "unknown":
            return "unknown_outcome"
        case "accepted":
            return "would_duplicate"
        case "cancelled":
            return "revoked"
        case _:
            return "expired"


def _of_replay(seen: Seen, now: datetime) -> Class:
    match seen.status:
        case "dead":
            if seen.open_until is None or seen.open_until <= now:
                return "expired"
            return "unknown_outcome" if seen.is_in_doubt else "safe"
        case "cancelled":
            return "redacted" if seen.reason == "redaction" else "revoked"
        case "expired":
            return "expired"
        case _:
            return "would_duplicate"
