"""The room of a run's token: the one that the run is registered in, whatever anybody says (rooms.md, Principals)."""

from __future__ import annotations

from msgspec.structs import replace

from ..domain.principals import Caller
from .services import Services


async def in_own_room(services: Services, caller: Caller) -> Caller:
    """The caller with the room of their run; without any where the run was never registered.

    A development token names its room itself, since its first hello registers the run.
    """
    if caller.principal.kind != "agent" or caller.is_development:
        return caller
    return replace(caller, room_id=await services.store.room_of_run(caller.principal.id), run_role=None)
