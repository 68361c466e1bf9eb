"""Leave for single calls: asked of the room, waited for, and given out for exactly the action that was asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from ..domain.rooms.approvals import action_digest
from ..domain.rooms.events import AckKind
from .api_client import Api
from .bridge_feed import Delivery

ASK_AGAIN_S = 60.0
"""A request that is not decided is asked for again this often: its answer says what became of it, whatever got lost."""

MAX_KEPT = 256
"""Decisions that are kept, for who asks for them yet, or since they may come again; the oldest go first."""

ANOTHER_ACTION = "digest_mismatch"

Acknowledge = Callable[[AckKind, int, str | None], None]


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What a local caller wants to do. event_id: its own number for it, the same at every try.

    tool: of the call, where the log may not have the call yet.
    """

    event_id: str
    call_id: str
    class_: str = msgspec.field(name="class")
    action: Any
    tool: str | None = None


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """Whether the call may go ahead. reason: `digest_mismatch` where the decision was about another action."""

    allow: bool
    decision: Literal["approved", "denied", "expired", "superseded"]
    approval_id: str
    action_digest: str
    reason: str | None = None


class _Asked(msgspec.Struct, frozen=True, rename="camel"):
    approval_id: str
    action_digest: str
    expires_at: str
    decision: Literal["approved", "denied", "expired", "superseded"] | None = None


class Approvals:
    """Requests under way, and the decisions that came for them. Law 24: nothing but the very action is let go."""

    def __init__(self, api: Api, lease: str, acknowledge: Acknowledge) -> None:
        self._api = api
        self._lease = lease
        self._acknowledge = acknowledge
        self._asking = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Verdict]]] = {}
        self._parked: dict[str, Delivery] = {}
        self._settled: dict[str, str] = {}

    async def ask(self, request: Request) -> Verdict:
        """The verdict, once there is one. Raises what Api.call raises."""
        while True:
            self._asking += 1
            try:
                asked = msgspec.convert(await self._post(request), _Asked)
            finally:
                self._asking -= 1
            own = action_digest(asked.approval_id, request.action)
            if own != asked.action_digest:
                return Verdict(False, "denied", asked.approval_id, own, ANOTHER_ACTION)
            verdict = self._verdict_of(asked, own) or await self._wait(asked, own)
            if verdict is not None:
                return verdict

    async def _post(self, request: Request) -> dict[str, Any]:
        body = msgspec.to_builtins(request)
        if request.tool is None:
            del body["tool"]  # a server of before knows no such member
        return await self._api.call("POST", "/v1/bridge/approvals", body, params={"lease": self._lease})

    def _verdict_of(self, asked: _Asked, own: str) -> Verdict | None:
        """The verdict where the answer has one already, or the stream had it."""
        parked = self._parked.pop(asked.approval_id, None)
        if parked is not None:
            return self._apply(parked, own)
        if asked.decision is None:
            return None
        self._keep(asked.approval_id, own)
        return Verdict(asked.decision == "approved", asked.decision, asked.approval_id, own)

    async def _wait(self, asked: _Asked, own: str) -> Verdict | None:
        """None where it is time to ask again."""
        decided: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._waiting[asked.approval_id] = mine = (own, decided)
        left_s = (datetime.fromisoformat(asked.expires_at) - datetime.now(UTC)).total_seconds()
        try:
            async with asyncio.timeout(min(max(left_s, 0.0) + 1.0, ASK_AGAIN_S)):
                return await decided
        except TimeoutError:
            return None
        finally:
            if self._waiting.get(asked.approval_id) is mine:
                del self._waiting[asked.approval_id]

    @property
    def is_asking(self) -> bool:
        """Whether a request is on its way, so that it is not known yet whose a decision is."""
        return self._asking > 0

    def take(self, delivery: Delivery) -> bool:
        """Whether a decision of the stream is that of a request made here; then it is applied and acknowledged."""
        approval_id = delivery.approval_id or ""
        if approval_id in self._waiting:
            own, decided = self._waiting[approval_id]
            verdict = self._apply(delivery, own)
            if not decided.done():
                decided.set_result(verdict)
            return True
        if approval_id in self._settled:
            self._apply(delivery, self._settled[approval_id])
            return True
        return False

    def park(self, delivery: Delivery) -> None:
        """Keep a decision for who asks for it yet, unacknowledged: the room sends it again to the next bridge."""
        self._parked[delivery.approval_id or ""] = delivery
        while len(self._parked) > MAX_KEPT:
            del self._parked[next(iter(self._parked))]

    def _apply(self, delivery: Delivery, own: str) -> Verdict:
        approval_id = delivery.approval_id or ""
        self._keep(approval_id, own)
        if delivery.action_digest != own:
            self._acknowledge("undeliverable", delivery.ref, ANOTHER_ACTION)
            return Verdict(False, "denied", approval_id, own, ANOTHER_ACTION)
        self._acknowledge("decision_applied", delivery.ref, None)
        return Verdict(
            bool(delivery.allow), "approved" if delivery.allow else "denied", approval_id, own, delivery.reason
        )

    def _keep(self, approval_id: str, own: str) -> None:
        self._settled[approval_id] = own
        while len(self._settled) > MAX_KEPT:
            del self._settled[next(iter(self._settled))]
