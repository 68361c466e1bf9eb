"""Who speaks, as a message shows them, and what is said back to them in private."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ...domain.channels.messages import Address, Inbound
from ...domain.linking.decide import End
from ...domain.principals import Caller
from ..deliveries.planning import Planner, Said, Wanted
from .inbound_ports import ChannelRules


class Speaking(Struct, frozen=True):
    """A message that was let in, or is about to be. message: its id. own_key: the key that the end has while it is
    linked to nobody. is_linked: other ends are of the same account. claims: verified ones of the account. caller: as
    whom it speaks here, with what it is granted here."""

    rules: ChannelRules
    said: Inbound
    message: str
    correlation_id: str
    end: End
    own_key: str
    is_linked: bool
    claims: Mapping[str, tuple[str, ...]]
    caller: Caller

    @property
    def private(self) -> Address:
        """Where what is for the sender alone goes: the chat where they wrote in private, else their own with us."""
        sender = self.said.sender
        if self.said.place.is_group:
            return Address(sender.channel, sender.native_id)
        return Address(sender.channel, sender.native_id, self.said.place)


class Notices:
    """Short texts of the server itself, as deliveries. pushes: names of the channels that send."""

    def __init__(self, planner: Planner, pushes: frozenset[str]) -> None:
        self._planner = planner
        self._pushes = pushes

    async def answer(self, speaking: Speaking, text: str) -> None:
        """Tell who speaks, in private; the same message again says nothing new. Raises Unavailable."""
        await self.say(speaking.rules.tenant, speaking.private, text, speaking.message, speaking.correlation_id)

    async def say(self, tenant: str, address: Address, text: str, once: str, correlation_id: str) -> None:
        """One notice for what `once` names. Nothing where the channel does not send. Raises Unavailable."""
        if address.channel in self._pushes:
            parts = (Said("notice", text),)
            await self._planner.plan(
                [Wanted(tenant, address.channel, address, parts, f"notice\n{once}", correlation_id)]
            )
