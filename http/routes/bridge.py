"""What a run's bridge may call, with its run token (http.md, the bridge)."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Response, Router, post
from msgspec import Struct

from ...commands.rooms import RUN_LEASE, stream_of
from ...domain.errors import Forbidden, RoomBusy
from ...domain.principals import Caller
from ...domain.rooms.bridge import check_items
from ...domain.rooms.commands import EndRun, StartRun
from ..batch import Batch, parse_push
from .common import CommandAnswer, TheCaller, TheServices, answered, body_as, invalid

LEASE_TTL_S = 120
"""A holder that shows no life for this long blocks nobody (rooms.md, Runs)."""

NO_LEASE = 0
"""An epoch that no lease has: refused by the fence, after the run's right to record was looked at."""

DEFAULT_ROLE = "implementer"
"""The role of a run whose token names none."""


class Hello(Struct, frozen=True, rename="camel"):
    """The answer to hello. `lease` goes into every push; the two cursors say what is stored already."""

    room_id: str
    lease: str
    after_harness_seq: int
    after_status_seq: int
    approvals: dict[str, Any]


class Cursors(Struct, frozen=True, rename="camel"):
    """How far the two item streams are stored."""

    after_harness_seq: int
    after_status_seq: int


def _room_of(caller: Caller) -> str:
    if caller.principal.kind != "agent" or caller.room_id is None:
        raise Forbidden("Only the bridge of a run may do this; use a run token.")
    return caller.room_id


@post("/v1/bridge/hello", status_code=200)
async def hello(caller: TheCaller, services: TheServices) -> Response[Hello]:
    """Claim the room's lease; the first hello of a run registers it."""
    room_id = _room_of(caller)
    run_id = caller.principal.id
    command = StartRun(caller.run_role or DEFAULT_ROLE)
    await services.rooms.check_start(caller, room_id, command)
    epoch, holder = await services.store.take(stream_of(room_id), RUN_LEASE, run_id, LEASE_TTL_S)
    if epoch == 0:
        raise RoomBusy("Another run is running in this room; wait until it has ended.", holder=f"agent:{holder}")
    answer = await services.rooms.start_run(caller, room_id, command, epoch)
    cursors = msgspec.convert(answer.body, Cursors)
    body = Hello(
        room_id,
        str(epoch),
        cursors.after_harness_seq,
        cursors.after_status_seq,
        {"profile": "attended", "classes": {}},
    )
    return Response(body, headers={"cache-control": "no-store"})


@post("/v1/bridge/events", status_code=200, opt={"body": Batch})
async def push_events(request: Request[Any, Any, Any], caller: TheCaller, services: TheServices) -> Response[Cursors]:
    """Push a batch, or with no items renew the lease. The whole batch is checked before anything is written."""
    room_id = _room_of(caller)
    try:
        push = parse_push(await request.body())
    except msgspec.ValidationError as error:
        raise invalid(error) from error
    items = check_items(push.items, caller.principal.id, services.settings.limits.payload_bytes)
    epoch = NO_LEASE if push.lease is None else int(push.lease)
    if push.lease is None:
        epoch = await services.store.lease_epoch(stream_of(room_id), RUN_LEASE, caller.principal.id) or NO_LEASE
    answer = await services.rooms.record(caller, room_id, items, epoch)
    return Response(msgspec.convert(answer.body, Cursors), headers={"cache-control": "no-store"})


@post("/v1/bridge/bye", status_code=200, opt={"body": EndRun})
async def bye(request: Request[Any, Any, Any], caller: TheCaller, services: TheServices) -> Response[CommandAnswer]:
    """End the run, and let the next one in."""
    room_id = _room_of(caller)
    answer = await services.rooms.end_run(caller, room_id, await body_as(request, EndRun))
    epoch = await services.store.lease_epoch(stream_of(room_id), RUN_LEASE, caller.principal.id)
    if epoch is not None:
        await services.store.drop(stream_of(room_id), RUN_LEASE, caller.principal.id, epoch)
    return answered(answer)


ROUTES = Router("/", route_handlers=[hello, push_events, bye], tags=["bridge"])
