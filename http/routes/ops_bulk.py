"""Work of operators on many deliveries: bulk plans, and what nobody can prove (http.md, Linking and delivery)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request, Response, Router, delete, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath

from ...commands.deliveries.bulk import BulkView, PlanBulk
from ...commands.deliveries.reconcile import ReconcileDeliveries, Report
from .common import CommandAnswer, KeyHeader, TheCaller, TheServices, answered, body_as, key_of

ALL = "/v1/ops/bulk"
ONE = f"{ALL}/{{plan_id:str}}"
UNCACHED = {"cache-control": "no-store"}


class PlanAnswer(CommandAnswer, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What a plan answers. counts: deliveries by class. expiresAt: until then it may be run."""

    plan_id: str
    counts: Mapping[str, int]
    expires_at: str


Planned = {201: ResponseSpec(PlanAnswer, generate_examples=False, description="A dry run: nothing was touched")}
Accepted = {202: ResponseSpec(CommandAnswer, generate_examples=False, description="Stored, or nothing to change")}


@post(ALL, status_code=201, responses=Planned, opt={"body": PlanBulk})
async def plan_bulk(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Count what a replay, revocation or purge of the deliveries that a filter finds would do; nothing is touched."""
    command = await body_as(request, PlanBulk)
    return answered(await services.operating.bulk.plan(caller, command, key_of(key)))


@post(f"{ONE}/run", status_code=202, responses=Accepted)
async def run_bulk(
    plan_id: FromPath[str], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Do what a plan counted, for the deliveries that have not changed since, at its rate."""
    return answered(await services.operating.bulk.run(caller, plan_id, key_of(key)))


@get(ONE)
async def get_bulk(plan_id: FromPath[str], caller: TheCaller, services: TheServices) -> Response[BulkView]:
    """A plan, and what became of its deliveries so far."""
    return Response(await services.operating.bulk.show(caller, plan_id), headers=UNCACHED)


@delete(ONE, status_code=202, responses=Accepted)
async def stop_bulk(
    plan_id: FromPath[str], caller: TheCaller, services: TheServices, key: KeyHeader = None
) -> Response[Any]:
    """Touch no further delivery of a plan. What was done stays done."""
    return answered(await services.operating.bulk.stop(caller, plan_id, key_of(key)))


@post("/v1/ops/reconcile", status_code=202, opt={"body": ReconcileDeliveries})
async def reconcile_deliveries(
    request: Request[Any, Any, Any], caller: TheCaller, services: TheServices
) -> Response[Report]:
    """Look at deliveries without proof of what became of them; with `repair`, write down what is found. The same again
    changes nothing more."""
    command = await body_as(request, ReconcileDeliveries)
    return Response(await services.operating.reconciling.run(caller, command), status_code=202, headers=UNCACHED)


ROUTES = Router(
    "/", route_handlers=[plan_bulk, run_bulk, get_bulk, stop_bulk, reconcile_deliveries], tags=["operators"]
)
