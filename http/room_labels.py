"""Clearance labels of a caller in rooms, where a callable decides and the token says nothing of them."""

from __future__ import annotations

from msgspec.structs import replace

from ..commands.conversations.viewing import viewer_of
from ..domain.principals import Caller
from .services import Services

ASK_AGAIN_S = 30.0
"""From one time that a callable is asked about an open stream of a room to the next."""


def is_asked(services: Services, caller: Caller) -> bool:
    """Whether a callable decides what callers of that tenant may see."""
    return services.clearance.labels(viewer_of(caller)) is None


async def labelled(services: Services, caller: Caller) -> Caller:
    """The caller with the labels that they have now.

    A callable is asked about every class that an entry of a room can have by these settings; what is of another class
    stays restricted.
    """
    if not is_asked(services, caller):
        return caller
    classes = {tool.data_class for tool in services.settings.tools.values() if tool.data_class is not None}
    answers = await services.clearance.resolve(viewer_of(caller), [(each,) for each in classes])
    labels = frozenset(each for each in classes if answers.get(frozenset((each,))) is True)
    return replace(caller, labels=labels)
