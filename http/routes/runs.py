"""Runs: asked for, registered, looked at, ended (http.md, Rooms)."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, Router, get, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath
from msgspec import UNSET, Struct, UnsetType

from ...domain.errors import NotVisible
from ...domain.rooms.commands import EndRun, RegisterRun, Registration, RequestRun, Revocation
from ...domain.rooms.rights import decide_right
from ...domain.rooms.runs import brief_of
from ..reading import see
from .common import CommandAnswer, Done, KeyHeader, TheCaller, TheServices, answered, body_as, key_of


class RequestedRun(CommandAnswer, frozen=True, kw_only=True):
    """The run that is wanted, and what it starts from. Its bridge says hello with a token for it."""

    run_id: str
    brief: str | None = None


class RunAnswer(CommandAnswer, frozen=True, kw_only=True):
    """The run as it is registered."""

    run_id: str
    room_id: str
    role: str
    state: str
    brief: str | None = None


class RunState(Struct, frozen=True, rename="camel"):
    """GET /v1/runs/{runId}. seq: the room's last event. reason: why it ended. brief: until it has said hello, for those
    who may register runs."""

    seq: int
    run_id: str
    room_id: str
    role: str
    state: str
    reason: str | UnsetType = UNSET
    brief: str | UnsetType = UNSET


Wanted = {202: ResponseSpec(RequestedRun, generate_examples=False, description="It will be launched")}
Registered = {
    200: ResponseSpec(RunAnswer, generate_examples=False, description="Registered already"),
    201: ResponseSpec(RunAnswer, generate_examples=False, description="A new run"),
}


@post("/v1/rooms/{room_id:str}/runs", status_code=202, responses=Wanted, opt={"body": RequestRun})
async def request_run(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Start the next run of the room."""
    command = await body_as(request, RequestRun)
    return answered(await services.rooms.request_run(caller, room_id, command, key_of(key)))


@put("/v1/runs/{run_id:str}", responses=Registered, opt={"body": Registration})
async def register_run(
    request: Request[Any, Any, Any],
    run_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Make a run known before its hello, or say where a requested one works; the same again changes nothing."""
    body = await body_as(request, Registration)
    command = RegisterRun(run_id, body.role, body.branch, body.task_url)
    return answered(await services.rooms.register_run(caller, body.room_id, command, key_of(key)))


@get("/v1/runs/{run_id:str}")
async def get_run(run_id: FromPath[str], caller: TheCaller, services: TheServices) -> Response[RunState]:
    """The run, for whoever may see its room."""
    room_id = await services.store.room_of_run(run_id)
    if room_id is None:
        raise NotVisible
    seen = await see(services, caller, room_id)
    record = seen.room.runs.get(run_id)
    if record is None:
        raise NotVisible
    brief = UNSET
    may_start = decide_right(seen.room, room_id, seen.tenant, caller, "register_run").allowed
    if record.phase == "requested" and may_start:
        brief = brief_of(seen.room, room_id, record)
    state = RunState(
        seen.version,
        run_id,
        room_id,
        record.role,
        record.phase,
        UNSET if record.reason is None else record.reason,
        brief,
    )
    return Response(state, headers={"cache-control": "no-store"})


@post("/v1/runs/{run_id:str}/end", status_code=200, responses=Done, opt={"body": EndRun})
async def end_run(
    request: Request[Any, Any, Any],
    run_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """End a run that is running or awaited."""
    command = await body_as(request, EndRun)
    return answered(await services.rooms.stop_run(caller, run_id, command, key_of(key)))


@post("/v1/runs/{run_id:str}/revoke", status_code=200, responses=Done, opt={"body": Revocation})
async def revoke_run(
    request: Request[Any, Any, Any],
    run_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """End a run that is not to be trusted any more; its token is good for nothing from here."""
    command = await body_as(request, Revocation)
    return answered(await services.rooms.revoke_run(caller, run_id, command, key_of(key)))


ROUTES = Router("/", route_handlers=[request_run, register_run, get_run, end_run, revoke_run], tags=["runs"])
