"""How the channels of a tenant do, for operators: what waits, since when, and which destinations are left alone."""

from __future__ import annotations

from collections.abc import Mapping

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
    """A channel. waiting: deliveries that have not ended. oldest: when the first of them was planned."""

    name: str
    waiting: int
    breaker: BreakerView
    oldest: str | UnsetType = UNSET


class ChannelWatch:
    """tenants: of each configured channel, by its name."""

    def __init__(self, board: Board, tenants: Mapping[str, str]) -> None:
        self._board = board
        self._tenants = tenants

    async def channels(self, caller: Caller) -> list[ChannelView]:
        """The configured channels of the caller's tenant, and those of which deliveries are left; by name.

        Raises Forbidden.
        """
        check_operator(caller)
        configured = [name for name, tenant in self._tenants.items() if tenant == caller.tenant]
        found = {each.channel: each for each in await self._board.standing(caller.tenant, configured)}
        return [_view(name, found.get(name)) for name in sorted({*configured, *found})]


def _view(name: str, standing: Standing | None) -> ChannelView:
    if standing is None:
        return ChannelView(name, 0, BreakerView(0))
    return ChannelView(
        name,
        standing.waiting,
        BreakerView(standing.shut, UNSET if standing.retry_at is None else stamp(standing.retry_at)),
        UNSET if standing.oldest is None else stamp(standing.oldest),
    )
