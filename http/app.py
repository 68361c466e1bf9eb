"""The Litestar application: routes, dependencies, error mapping, OpenAPI, behind the gate."""

from __future__ import annotations

from typing import Any

from litestar import Litestar, Request
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.types import ASGIApp
from prometheus_client import CollectorRegistry

from .. import __version__
from ..domain.errors import MinutebookError
from ..infra.tokens import TokenVerifier
from .gate import Gate
from .problems import on_any_error, on_domain_error, on_http_error
from .readiness import Readiness
from .routes import bridge, health, rooms, streams
from .routes.common import caller_of
from .services import Services


def create_app(
    services: Services, verifier: TokenVerifier, readiness: Readiness, registry: CollectorRegistry
) -> ASGIApp:
    """The whole HTTP side of one process."""

    def provide_services() -> Services:
        return services

    def provide_readiness() -> Readiness:
        return readiness

    def provide_registry() -> CollectorRegistry:
        return registry

    def provide_caller(request: Request[Any, Any, Any]) -> Any:
        return caller_of(request)

    app = Litestar(
        [rooms.ROUTES, streams.follow_room, bridge.ROUTES, health.healthz, health.readyz, health.metrics],
        dependencies={
            "services": Provide(provide_services, sync_to_thread=False),
            "caller": Provide(provide_caller, sync_to_thread=False),
            "readiness": Provide(provide_readiness, sync_to_thread=False),
            "registry": Provide(provide_registry, sync_to_thread=False),
        },
        exception_handlers={
            MinutebookError: on_domain_error,
            HTTPException: on_http_error,
            Exception: on_any_error,
        },
        openapi_config=OpenAPIConfig(
            title="Minutebook",
            version=__version__,
            path="/v1",
            render_plugins=[JsonRenderPlugin(path="/openapi.json", media_type="application/json")],  # pyright: ignore[reportArgumentType]
            components=Components(
                security_schemes={"token": SecurityScheme("http", scheme="bearer", bearer_format="JWT")}
            ),
            security=[{"token": []}],
        ),
        logging_config=None,
        request_max_body_size=services.settings.limits.bridge_body_bytes,
    )
    return Gate(app, verifier, services.settings)
