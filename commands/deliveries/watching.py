"""How the channels of a tenant do, for operators: what waits, since when, and which destinations are left alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import UNSET, Struct, UnsetType

from ...domain.principals import Caller
from ...domain.times import stamp
from .operators import check_operator
from .ports import Board, Standing


class BreakerView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """shut: destinations that are left alone since they failed. retry_at: when the first of them is probed, at the
    earliest."""

    shut: int
    retry_at: str | UnsetType = UNSET


class ChannelView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A channel. waiting: deliveries that have not ended. oldest: when the first of them was planned.

    paused: whether nothing is sent, for the reason of that code, until then where somebody said so.
    """

    name: str
    waiting: int
    breaker: BreakerView
    paused: bool
    oldest: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    until: str | UnsetType = UNSET


class ChannelWatch:
    """tenants: of each configured channel, by its name."""

    def __init__(self, board: Board, tenants: Mapping[str, str]) -> None:
        self._board = board
        self._tenants = tenants

    async def channels(self, caller: Caller) -> list[ChannelView]:
        """By name: the configured channels of the caller's tenant, and others that are stopped or have deliveries left.

        Raises Forbidden.
        """
        check_operator(caller)
        configured = [name for name, tenant in self._tenants.items() if tenant == caller.tenant]
        found = {each.channel: each for each in await self._board.standing(caller.tenant, configured)}
        return [_view(name, found.get(name)) for name in sorted({*configured, *found})]


def _view(name: str, standing: Standing | None) -> ChannelView:
    if standing is None:
        return ChannelView(name, 0, BreakerView(0), paused=False)
    return ChannelView(
        name,
        standing.waiting,
        BreakerView(standing.shut, _stamped(standing.retry_at)),
        standing.pause is not None,
        _stamped(standing.oldest),
        UNSET if standing.pause is None else standing.pause,
        _stamped(standing.paused_until),
    )


def _stamped(moment: datetime | None) -> str | UnsetType:
    return UNSET if moment is None else stamp(moment)
