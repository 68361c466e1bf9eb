"""One sweep over all rooms where a time has passed: page by page, one room's trouble no other's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import structlog

from ...domain.errors import MinutebookError, NotVisible, Sealed, Unavailable
from .ports import PAGE

log = structlog.get_logger(__name__)


class _OfStream(Protocol):
    @property
    def stream_id(self) -> int: ...


T = TypeVar("T", bound=_OfStream)


async def sweep(find: Callable[[int], Awaitable[Sequence[T]]], act: Callable[[T], Awaitable[None]]) -> None:
    """Act on every candidate that `find` gives for the streams above its argument.

    A room that was closed or purged meanwhile needs nothing. Raises Unavailable; the next tick goes on.
    """
    after = 0
    while True:
        found = await find(after)
        for each in found:
            try:
                await act(each)
            except (NotVisible, Sealed):
                continue
            except Unavailable:
                raise
            except MinutebookError as error:
                log.warning("a room was not swept", code=error.code, stream=each.stream_id)
        if len(found) < PAGE:
            return
        after = found[-1].stream_id
