"""Requests for approval and their decisions (http.md, Rooms)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, Router, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, QueryParameter
from msgspec import UNSET, Struct, UnsetType

from ...domain.rooms.approvals import Approval
from ...domain.rooms.decide_approvals import ApprovalDecision, DecideApproval
from ...domain.visibility import cleared
from ...infra.postgres.store import Entry
from ..reading import see
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

AskedFor = Literal["pending", "settled"]


class ApprovalCard(Struct, frozen=True, rename="camel"):
    """A request: the raw call, redacted, not what the agent says of it; and who caused the run until then.

    state: `pending`, or what became of it.
    """

    approval_id: str
    run_id: str
    call_id: str
    class_: str = msgspec.field(name="class")
    action: Any
    action_digest: str
    prompted_by: list[str]
    expires_at: str
    seq: int
    state: str
    caused_by: int | UnsetType = UNSET


class ApprovalPage(Struct, frozen=True):
    """GET /v1/rooms/{id}/approvals, in the order of asking."""

    approvals: list[ApprovalCard]


class DecisionAnswer(CommandAnswer, frozen=True, kw_only=True):
    """The decision as it is stored."""

    decision: str


Decided = {200: ResponseSpec(DecisionAnswer, generate_examples=False, description="Decided")}


class _Action(Struct):
    action: Any = None


@get("/v1/rooms/{room_id:str}/approvals")
async def list_approvals(
    room_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    which: Annotated[
        AskedFor, QueryParameter(name="state", required=False, description="Those that wait, or the last decided ones")
    ] = "pending",
) -> Response[ApprovalPage]:
    """The requests of which the caller is cleared for the call."""
    seen = await see(services, caller, room_id)
    known = seen.room.approvals.pending if which == "pending" else seen.room.approvals.settled
    asked = sorted((each for each in known.values() if cleared(each.classes, caller.labels)), key=lambda each: each.seq)
    found = await services.store.entries_at(seen.stream_id, room_id, [each.seq for each in asked])
    entries = {entry.envelope.seq: entry for entry in found}
    cards = [_card(each, entries[each.seq]) for each in asked if each.seq in entries]
    return Response(ApprovalPage(cards), headers={"cache-control": "no-store"})


def _card(asked: Approval, entry: Entry) -> ApprovalCard:
    return ApprovalCard(
        asked.approval_id,
        asked.run_id,
        asked.call_id,
        asked.action_class,
        msgspec.json.decode(entry.envelope.payload, type=_Action).action,
        asked.digest,
        list(asked.prompted_by),
        asked.expires_at,
        asked.seq,
        asked.decision or "pending",
        entry.envelope.caused_by,
    )


@post(
    "/v1/rooms/{room_id:str}/approvals/{approval_id:str}/decision",
    status_code=200,
    responses=Decided,
    opt={"body": ApprovalDecision},
)
async def decide_approval(
    request: Request[Any, Any, Any],
    room_id: FromPath[str],
    approval_id: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    key: KeyHeader = None,
) -> Response[Any]:
    """Approve or deny one call; the first decision wins."""
    body = await body_as(request, ApprovalDecision)
    command = DecideApproval(approval_id, body.decision, body.action_digest, body.reason)
    return answered(await services.rooms.decide_approval(caller, room_id, command, key_of(key)))


ROUTES = Router("/", route_handlers=[list_approvals, decide_approval], tags=["rooms"])
