"""Whether the process lives, whether it can serve, and its metrics."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ..readiness import Readiness


@get("/healthz", tags=["operations"])
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz", tags=["operations"])
async def readyz(readiness: Any) -> Response[dict[str, Any]]:
    """503 where the database, the migrations or a projection would keep a request from being served."""
    typed: Readiness = readiness
    checks = await typed.checks()
    is_ready = all(check["ok"] for check in checks)
    return Response({"ready": is_ready, "checks": checks}, status_code=200 if is_ready else 503)


@get("/metrics", tags=["operations"], include_in_schema=False)
async def metrics(registry: Any) -> Response[bytes]:
    """Prometheus text; no payloads, tokens or principals in any label."""
    typed: CollectorRegistry = registry
    return Response(generate_latest(typed), media_type=CONTENT_TYPE_LATEST)
