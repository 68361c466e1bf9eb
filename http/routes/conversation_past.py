"""Why a record of a conversation is shown to somebody, or not (http.md, Conversations)."""

from __future__ import annotations

import re

from litestar import Response, Router, get
from litestar.params import FromPath, FromQuery

from ...domain.errors import NotVisible
from ..conversation_past import EntryExplained, explain
from .common import TheCaller, TheServices

_ORD = re.compile(r"[1-9][0-9]{0,15}")


@get("/v1/conversations/{conversation_id:str}/entries/{ord_:str}/explain")
async def explain_entry(
    conversation_id: FromPath[str],
    ord_: FromPath[str],
    caller: TheCaller,
    services: TheServices,
    viewer: FromQuery[str | None] = None,
) -> Response[EntryExplained]:
    """Whether a record is shown to `viewer` now (the caller where nobody is named); the tenant's auditors learn why."""
    if _ORD.fullmatch(ord_) is None:
        raise NotVisible
    answer = await explain(services.conversations, caller, conversation_id, int(ord_), viewer)
    return Response(answer, headers={"cache-control": "no-store"})


ROUTES = Router("/", route_handlers=[explain_entry], tags=["conversations"])
