"""Whether the process lives, whether it can serve, and its metrics."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import SkipValidation
from prometheus_client import CONTENT_TYPE_LATEST

from ...infra.postgres.readiness import Readiness
from ..metrics import Metrics

_NotReady = ResponseSpec(dict[str, Any], generate_examples=False, description="Not ready; the checks say why")


@get("/healthz", tags=["operations"])
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@get("/readyz", tags=["operations"], responses={503: _NotReady})
async def readyz(readiness: NamedDependency[SkipValidation[Readiness]]) -> Response[dict[str, Any]]:
    """503 where the database, the migrations or a projection would keep a request from being served."""
    checks = await readiness.checks()
    is_ready = all(check["ok"] for check in checks)
    return Response({"ready": is_ready, "checks": checks}, status_code=200 if is_ready else 503)


@get("/metrics", tags=["operations"], include_in_schema=False)
async def metrics(metrics: NamedDependency[SkipValidation[Metrics]]) -> Response[bytes]:
    """Prometheus text; no payloads, tokens or principals in any label."""
    # Litestar adds the charset that Prometheus' constant ends with.
    return Response(await metrics.text(), media_type=CONTENT_TYPE_LATEST.partition("; charset")[0])
