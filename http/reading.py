"""Rooms as queries see them: the projection's row with the later events applied, authorized, filtered per viewer."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..commands.rooms import ROOM, stream_of
from ..commands.streams import Loaded, catch_up
from ..domain.envelope import Envelope, Placeholder
from ..domain.errors import NotVisible, TimedOut
from ..domain.ids import is_room_id
from ..domain.principals import Caller
from ..domain.rooms.approval_policy import DEFAULT_TTL
from ..domain.rooms.rights import Action, allowed_actions, require, standing
from ..domain.rooms.state import INITIAL, Room
from ..domain.visibility import cleared
from ..infra.postgres.store import Entry
from ..projections.room_list import phase
from .services import Services

MIN_SEQ_WAIT_S = 5.0
"""Longest wait of `minSeq` (http.md)."""

MIN_SEQ_POLL_S = 0.02


class Seen(msgspec.Struct, frozen=True):
    """A room that the caller may see, folded up to `head`."""

    room_id: str
    room: Room
    stream_id: int
    tenant: str
    version: int
    chain: str
    sealed: bool
    held: bool
    last_ts: datetime


async def see(services: Services, caller: Caller, room_id: str, action: Action = "read") -> Seen:
    """The room, after the rights table let the caller through. Raises NotVisible, RunNotLive, Forbidden."""
    if not is_room_id(room_id):
        raise NotVisible
    head = await services.store.head(stream_of(room_id))
    if head is None:
        raise NotVisible
    if head.tenant != caller.tenant:
        raise NotVisible
    row = await services.views.room(head.id)
    state, seq = INITIAL, 0
    if row is not None and row.last_seq <= head.version:
        state, seq = msgspec.json.decode(row.state, type=Room), row.last_seq
    start = Loaded(state, msgspec.structs.replace(head, version=seq), seq)
    # An event that cannot be read stops commands and views, but not reading: it is shown as it is stored.
    loaded = await catch_up(services.store, ROOM, start, head, passes_over_damage=True)
    require(loaded.state, room_id, head.tenant, caller, action)
    services.attendance.seen(room_id, caller)
    last_ts = head.last_ts or services.now()
    return Seen(room_id, loaded.state, head.id, head.tenant, head.version, head.chain, head.sealed, head.held, last_ts)


async def wait_for_log(services: Services, room_id: str, min_seq: int | None) -> None:
    """Return when the log of the room has `min_seq`. Raises TimedOut after 5 s."""
    if min_seq is None:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MIN_SEQ_WAIT_S
    while True:
        head = await services.store.head(stream_of(room_id))
        if head is None or head.version >= min_seq:
            return
        if loop.time() >= deadline:
            raise TimedOut("The room has not reached minSeq in time; read again without it, or later.")
        await asyncio.sleep(MIN_SEQ_POLL_S)


async def wait_for_view(services: Services, projection: str, stream_id: int, min_seq: int | None) -> None:
    """Return when the projection has folded the stream to `min_seq`. Raises TimedOut after 5 s."""
    if min_seq is None:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MIN_SEQ_WAIT_S
    while await services.views.checkpoint(projection, stream_id) < min_seq:
        if loop.time() >= deadline:
            raise TimedOut("The view has not reached minSeq in time; read again without it, or later.")
        await asyncio.sleep(MIN_SEQ_POLL_S)


def entry_for(entry: Entry, caller: Caller) -> Envelope | Placeholder:
    """The entry, or the bare placeholder where the caller is not cleared for its classes."""
    envelope = entry.envelope
    if cleared(entry.classes, caller.labels):
        return envelope
    return Placeholder(envelope.id, envelope.seq, envelope.room_id, envelope.ts)


class MemberView(msgspec.Struct, frozen=True, rename="camel"):
    """A person with a role."""

    principal: str
    role: str
    approver: bool


class RunView(msgspec.Struct, frozen=True, rename="camel"):
    """The running run."""

    run_id: str
    role: str
    state: str = "running"


class PendingView(msgspec.Struct, frozen=True, rename="camel"):
    """A request for approval that waits."""

    approval_id: str
    run_id: str
    class_: str = msgspec.field(name="class")
    expires_at: str
    seq: int


class ApprovalsView(msgspec.Struct, frozen=True, rename="camel"):
    """The room's policy, and what waits of which the caller may see the request."""

    profile: str
    overrides: dict[str, str]
    ttl: str
    four_eyes: bool
    pending: list[PendingView]


class You(msgspec.Struct, frozen=True, rename="camel"):
    """What the caller is in the room, and what the rights table lets them do."""

    principal: str
    role: str | None
    approver: bool
    is_driver: bool
    can: list[str]


class Snapshot(msgspec.Struct, frozen=True, rename="camel"):
    """GET /v1/rooms/{id}, and the `state` frame of its stream."""

    id: str
    title: str | None
    phase: str
    owner: str
    driver: str
    driver_epoch: int
    data_class: str
    retention: str
    sealed: bool
    hold: bool
    through_seq: int
    log_id: str
    chain: str
    members: list[MemberView]
    participants: list[str]
    queue: list[dict[str, Any]]
    approvals: ApprovalsView
    you: You
    run: RunView | UnsetType = UNSET
    from_seq: int | UnsetType = UNSET


def snapshot(services: Services, seen: Seen, caller: Caller, from_seq: int | UnsetType = UNSET) -> Snapshot:
    """The room as the caller sees it."""
    room = seen.room
    return Snapshot(
        seen.room_id,
        room.title,
        phase(room, seen.last_ts, services.now(), caller.labels, services.settings.timeouts.room_waiting_seconds),
        room.owner,
        room.driver,
        room.driver_epoch,
        room.data_class,
        room.retention,
        room.is_closed,
        seen.held,
        seen.version,
        services.log_id,
        seen.chain,
        # By name: the order of the fold does not survive its way through jsonb.
        [MemberView(name, member.role, member.approver) for name, member in sorted(room.members.items())],
        list(room.present),
        [{"ref": quote.seq, "author": quote.author, "text": quote.text} for quote in room.queue],
        _approvals(room, caller),
        you(seen, caller),
        UNSET if room.run is None else RunView(room.run.run_id, room.run.role),
        from_seq,
    )


def _approvals(room: Room, caller: Caller) -> ApprovalsView:
    policy = room.approval_settings
    return ApprovalsView(
        policy.profile,
        {**policy.overrides},
        policy.ttl or DEFAULT_TTL,
        policy.four_eyes,
        [
            PendingView(asked.approval_id, asked.run_id, asked.action_class, asked.expires_at, asked.seq)
            for asked in room.approvals.pending.values()
            if cleared(asked.classes, caller.labels)
        ],
    )


def you(seen: Seen, caller: Caller) -> You:
    """The caller's place in the room."""
    name = str(caller.principal)
    member = seen.room.members.get(name)
    return You(
        name,
        role_of(seen.room, seen.room_id, seen.tenant, caller),
        member is not None and member.approver,
        seen.room.driver == name,
        list(allowed_actions(seen.room, seen.room_id, seen.tenant, caller)),
    )


def role_of(room: Room, room_id: str, tenant: str, caller: Caller) -> str | None:
    """The caller's room role, a run's own role, or None for systems and auditors."""
    have = standing(room, room_id, tenant, caller)
    if have == "run" and room.run is not None:
        return room.run.role
    return have if have in ("watcher", "collaborator", "owner") else None
