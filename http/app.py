"""The Litestar application: routes, dependencies, error mapping, the OpenAPI document, behind the gate."""

from __future__ import annotations

import functools
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, ControllerRouterHandler

from ..commands.channels.inbound import Receiving
from ..domain.errors import MinutebookError
from ..infra.postgres.readiness import Readiness
from ..infra.tokens import TokenVerifier
from .gate import Gate, is_conversation
from .link_services import LinkServices
from .mcp import McpEndpoint, room_tools
from .methods import MethodTable
from .metrics import Metrics
from .openapi import describe
from .own_room import in_own_room
from .problems import on_any_error, on_domain_error, on_http_error
from .room_labels import labelled
from .routes import (
    approvals,
    bench,
    bridge,
    continuations,
    conversation_past,
    conversations,
    driver,
    export,
    forks,
    health,
    history,
    inbound,
    inbox,
    link_oidc,
    links,
    members,
    messages,
    ops_bulk,
    ops_channels,
    ops_deliveries,
    ops_links,
    participants,
    rooms,
    runs,
    session,
    streams,
)
from .routes.common import TheCaller, caller_of
from .services import Services

ROUTES: list[ControllerRouterHandler] = [
    rooms.ROUTES,
    members.ROUTES,
    history.ROUTES,
    streams.follow_room,
    export.export_room,
    messages.ROUTES,
    driver.ROUTES,
    runs.ROUTES,
    approvals.ROUTES,
    forks.ROUTES,
    bridge.ROUTES,
    conversations.ROUTES,
    participants.ROUTES,
    conversation_past.ROUTES,
    continuations.ROUTES,
    inbox.ROUTES,
    ops_deliveries.ROUTES,
    ops_channels.ROUTES,
    ops_bulk.ROUTES,
    ops_links.ROUTES,
    inbound.ROUTES,
    links.ROUTES,
    link_oidc.ROUTES,
    session.ROUTES,
    health.healthz,
    health.readyz,
]
"""Everything that the OpenAPI document describes."""


DEPENDENCIES = ("services", "caller", "readiness", "metrics", "receiving", "links")


@functools.cache
def _document() -> bytes:
    return describe(ROUTES, DEPENDENCIES)


@get("/v1/openapi.json")
async def openapi() -> Response[bytes]:
    """The OpenAPI document of this server."""
    return Response(_document(), media_type="application/json")


def create_app(
    services: Services,
    verifier: TokenVerifier,
    readiness: Readiness,
    *,
    serves_metrics: bool = True,
) -> ASGIApp:
    """The whole HTTP side of one process. serves_metrics: whether /metrics is one of its routes."""
    app = make_router(services, readiness, serves_metrics=serves_metrics)
    return Gate(app, verifier, services.settings, MethodTable(app.routes))


def make_router(services: Services, readiness: Readiness, *, serves_metrics: bool) -> Litestar:
    """What stands behind the gate. Its routes trust the caller that they find in the scope."""

    endpoint = McpEndpoint(services)

    def provide_services(caller: TheCaller) -> Services:  # noqa: ARG001
        # Asks for the caller so that the two are resolved one after the other: Litestar resolves what is independent in
        # a task group, which costs more than both together (9 % of a command).
        return services

    def provide_readiness() -> Readiness:
        return readiness

    def provide_receiving() -> Receiving:
        return services.receiving

    def provide_metrics() -> Metrics:
        return services.metrics

    def provide_links() -> LinkServices:
        return services.links

    def provide_endpoint() -> McpEndpoint:
        return endpoint

    async def provide_caller(request: Request[Any, Any, Any]) -> Any:
        caller = await in_own_room(services, caller_of(request))
        return caller if is_conversation(request.scope) else await labelled(services, caller)

    return Litestar(
        [
            *ROUTES,
            openapi,
            room_tools,
            *([health.metrics] if serves_metrics else []),
            *([bench.noop] if services.settings.server.bench_routes else []),
        ],
        dependencies={
            "services": Provide(provide_services, sync_to_thread=False),
            "caller": Provide(provide_caller),
            "readiness": Provide(provide_readiness, sync_to_thread=False),
            "metrics": Provide(provide_metrics, sync_to_thread=False),
            "receiving": Provide(provide_receiving, sync_to_thread=False),
            "links": Provide(provide_links, sync_to_thread=False),
            "endpoint": Provide(provide_endpoint, sync_to_thread=False),
        },
        exception_handlers={
            MinutebookError: on_domain_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=services.settings.limits.bridge_body_bytes,
    )
