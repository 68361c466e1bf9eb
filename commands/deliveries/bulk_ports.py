"""What bulk plans need of the world, as a protocol; infra/postgres/delivery_bulk.py has the adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from ...domain.deliveries.bulk import Class
from ...domain.deliveries.state import Status
from .ports import Filter

MAX_PLAN = 10_000
"""Deliveries of one plan; a filter that finds more is refused."""

ItemState = Literal["left", "done", "skipped", "failed"]


class Found(Struct, frozen=True):
    """A delivery as its row shows it, with the version of its stream. open_until: until when it takes receipts or a
    replay."""

    stream_id: int
    delivery_id: str
    version: int
    status: Status
    reason: str
    has_payload: bool
    attempts: int
    open_until: datetime | None


class Item(Struct, frozen=True):
    """A delivery of a plan. place: from 1, the oldest delivery first. version: of its stream, when it was planned."""

    place: int
    delivery_id: str
    stream_id: int
    version: int
    class_: Class
    state: ItemState = "left"


class Claimed(Struct, frozen=True):
    """A plan that this process works on."""

    plan_id: str
    stream_id: int
    tenant: str


class BulkTable(Protocol):
    """Plans and their ids. Every method raises Unavailable where the database cannot be reached in time."""

    async def find(self, tenant: str, wanted: Filter, limit: int) -> list[Found]:
        """At most `limit` deliveries of the tenant, oldest first."""
        ...

    async def put(self, plan_id: str, tenant: str, items: Sequence[Item]) -> None:
        """Keep a plan's items; those that are there stay as they are."""
        ...

    async def tenant_of(self, plan_id: str) -> str | None:
        """Whose a plan is, None where there is none."""
        ...

    async def progress(self, plan_id: str) -> Mapping[tuple[str, str], int]:
        """How many items there are by class and state."""
        ...

    async def claim(self, holder: str, lease_s: float, limit: int) -> list[Claimed]:
        """Running plans that nobody works on, held by `holder` for so long from now on."""
        ...

    async def renew(self, plan_id: str, holder: str, lease_s: float) -> bool:
        """Hold it for longer; False where it runs no more, or is another's."""
        ...

    async def release(self, plan_id: str, holder: str) -> None:
        """Let others have it."""
        ...

    async def left(self, plan_id: str, limit: int) -> list[Item]:
        """The next items to be done, in order."""
        ...

    async def mark(self, plan_id: str, marks: Sequence[tuple[int, ItemState, str]]) -> None:
        """Places, what became of them, and the code of the reason."""
        ...

    async def lapsed(self, limit: int) -> list[Claimed]:
        """Plans that nobody ran in time."""
        ...

    async def forget(self, older_s: float, limit: int) -> int:
        """Delete items that were planned so long ago, at most so many; how many there were."""
        ...
