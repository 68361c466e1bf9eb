"""What a run's bridge may call, with its run token (http.md, the bridge)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from msgspec import UNSET, Struct, UnsetType

from ...commands.room_handling import stream_of
from ...commands.run_handlers import NO_LEASE, RUN_LEASE
from ...domain.errors import Forbidden, Invalid, LeaseLost, RoomBusy, RunNotLive, Unavailable
from ...domain.principals import Caller
from ...domain.rooms.approval_events import ActionClass, ApprovalOutcome
from ...domain.rooms.approval_policy import Effect, Profile
from ...domain.rooms.bridge import check_items
from ...domain.rooms.commands import EndRun, StartRun
from ...domain.rooms.decide_approvals import RequestApproval
from ..batch import LEASE, Batch, parse_push
from ..bridge_stream import BridgeStream
from ..raw import RawResponse
from ..reading import see
from ..services import Services
from .common import CommandAnswer, TheCaller, TheServices, answered, body_as, invalid

LEASE_TTL_S = 120
"""A holder that shows no life for this long blocks nobody (rooms.md, Runs)."""

DEFAULT_ROLE = "implementer"
"""The role of a run whose development token names none."""

LeaseQuery = Annotated[
    str | None,
    QueryParameter(
        name="lease", required=False, max_length=18, description="The lease of hello; without it the run's present one."
    ),
]


class Hello(Struct, frozen=True, rename="camel"):
    """The answer to hello. `lease` goes into every call; the two cursors say what is stored already."""

    room_id: str
    lease: str
    after_harness_seq: int
    after_status_seq: int
    approvals: Approvals
    seq: int
    chain: str


class Approvals(Struct, frozen=True):
    """What each class of action comes to in this room."""

    profile: Profile
    classes: dict[ActionClass, Effect]


class Cursors(Struct, frozen=True, rename="camel"):
    """How far the two item streams are stored, and the room's last seq with the chain's hash there."""

    after_harness_seq: int
    after_status_seq: int
    seq: int
    chain: str


class Asked(Struct, frozen=True, rename="camel"):
    """A request for approval as it stands. `decision` where there is one already."""

    approval_id: str
    action_digest: str
    expires_at: str
    seq: int
    chain: str
    decision: ApprovalOutcome | UnsetType = UNSET


class _Started(Cursors, frozen=True):
    profile: Profile
    classes: dict[ActionClass, Effect]


@post("/v1/bridge/hello", status_code=200)
async def hello(caller: TheCaller, services: TheServices) -> Response[Hello]:
    """Claim the room's lease. The run must be registered; a development token's first hello registers it."""
    room_id = _room_of(caller)
    command = StartRun((caller.run_role or DEFAULT_ROLE) if caller.is_development else None)
    with services.bridges.request(caller):
        if caller.is_development and await services.store.room_of_run(caller.principal.id) not in (None, room_id):
            raise RunNotLive("This run is registered in another room; give the token that room, or another run.")
        await services.rooms.check_start(caller, room_id, command)
        epoch = await _take(services, caller, room_id)
        answer = await services.rooms.start_run(caller, room_id, command, epoch)
    started = msgspec.convert(answer.body, _Started)
    approvals = Approvals(started.profile, started.classes)
    cursors = (started.after_harness_seq, started.after_status_seq)
    body = Hello(room_id, str(epoch), *cursors, approvals, started.seq, started.chain)
    return _fresh(body)


async def _take(services: Services, caller: Caller, room_id: str) -> int:
    """The epoch of the lease, now the caller's. Raises RoomBusy, once the room says who was turned away."""
    stream, run_id = stream_of(room_id), caller.principal.id
    epoch, holder = await services.store.take(stream, RUN_LEASE, run_id, LEASE_TTL_S)
    if epoch:
        return epoch
    if not await services.rooms.turn_run_away(caller, room_id, holder):
        # That run was ended by others: nobody dropped its lease, and nobody can hold it any more.
        left = await services.store.lease_epoch(stream, RUN_LEASE, holder)
        await services.store.drop(stream, RUN_LEASE, holder, left or NO_LEASE)
        epoch, holder = await services.store.take(stream, RUN_LEASE, run_id, LEASE_TTL_S)
        if epoch:
            return epoch
        await services.rooms.turn_run_away(caller, room_id, holder)
    raise RoomBusy("Another run is running in this room; wait until it has ended.", holder=f"agent:{holder}")


@post("/v1/bridge/events", status_code=200, opt={"body": Batch})
async def push_events(request: Request[Any, Any, Any], caller: TheCaller, services: TheServices) -> Response[Cursors]:
    """Push a batch, or with no items renew the lease. The whole batch is checked before anything is written."""
    room_id = _room_of(caller)
    with services.bridges.request(caller):
        try:
            push = parse_push(await request.body())
        except msgspec.ValidationError as error:
            raise invalid(error) from error
        items = check_items(push.items, caller.principal.id, services.settings.limits.payload_bytes)
        epoch = await _epoch(services, caller, room_id, push.lease)
        answer = await services.rooms.record(caller, room_id, items, epoch)
    return _fresh(msgspec.convert(answer.body, Cursors))


@get(
    "/v1/bridge/stream",
    responses={200: ResponseSpec(str, media_type="text/event-stream", generate_examples=False, description="Frames")},  # pyright: ignore[reportArgumentType]
)
async def follow_deliveries(caller: TheCaller, services: TheServices, lease: LeaseQuery = None) -> Response[Any]:
    """What waits for the run: `deliver`, `interrupt`, `decision`; again on each connection until acknowledged."""
    room_id = _room_of(caller)
    seen = await see(services, caller, room_id, "record")
    epoch = await _epoch(services, caller, room_id, _checked(lease))
    if epoch != await _present(services, caller, room_id):
        raise LeaseLost("Another holder has the lease now; say hello again.")
    if services.hub.draining.is_set() or services.hub.streams >= services.settings.limits.streams_per_process:
        raise Unavailable("This server takes no more streams now; try again.", retryAfterMs=2000)
    with services.bridges.request(caller):
        pass  # refused here with a problem; the stream itself can only be cut
    return RawResponse(BridgeStream(services, caller, seen, epoch))


@post("/v1/bridge/approvals", status_code=200, opt={"body": RequestApproval})
async def ask_approval(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, lease: LeaseQuery = None
) -> Response[Asked]:
    """Ask leave for one call. The same eventId is the same request, and is answered as it stands."""
    room_id = _room_of(caller)
    with services.bridges.request(caller):
        command = await body_as(request, RequestApproval)
        epoch = await _epoch(services, caller, room_id, _checked(lease))
        answer = await services.rooms.request_approval(caller, room_id, command, epoch)
    return _fresh(msgspec.convert(answer.body, Asked))


@post("/v1/bridge/bye", status_code=200, opt={"body": EndRun})
async def bye(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, lease: LeaseQuery = None
) -> Response[CommandAnswer]:
    """End the run, and let the next one in."""
    room_id = _room_of(caller)
    with services.bridges.request(caller):
        command = await body_as(request, EndRun)
        epoch = await _epoch(services, caller, room_id, _checked(lease))
        answer = await services.rooms.end_run(caller, room_id, command, epoch)
        await services.store.drop(stream_of(room_id), RUN_LEASE, caller.principal.id, epoch)
    return answered(answer)


def _room_of(caller: Caller) -> str:
    if caller.principal.kind != "agent":
        raise Forbidden("Only the bridge of a run may do this; use a run token.")
    if caller.room_id is None:
        raise RunNotLive("This run was never registered; register it first.")
    return caller.room_id


def _checked(lease: str | None) -> str | None:
    if lease is not None and LEASE.fullmatch(lease) is None:
        raise Invalid.at("lease", "is none that hello answered")
    return lease


async def _epoch(services: Services, caller: Caller, room_id: str, lease: str | None) -> int:
    """The epoch that the bridge claims to hold; the fence knows whether it does."""
    return await _present(services, caller, room_id) if lease is None else int(lease)


async def _present(services: Services, caller: Caller, room_id: str) -> int:
    return await services.store.lease_epoch(stream_of(room_id), RUN_LEASE, caller.principal.id) or NO_LEASE


def _fresh(body: Any) -> Response[Any]:
    return Response(body, headers={"cache-control": "no-store"})


ROUTES = Router("/", route_handlers=[hello, push_events, follow_deliveries, ask_approval, bye], tags=["bridge"])
