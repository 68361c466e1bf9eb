"""Calls that are begun without a task of their own, since most of them never wait."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any


def begun(call: Awaitable[None]) -> Awaitable[None] | None:
    """Run `call` up to where it first waits: what is left of it, to be awaited once by any task; None where it is
    through. What it raises is raised where the rest is awaited."""
    steps = call.__await__()
    try:
        waits_for = next(steps)
    except StopIteration:
        return None
    except Exception as error:  # noqa: BLE001 - whoever began it is not whom it concerns
        return _Failed(error)
    return _Rest(steps, waits_for)


class _Rest:
    """What is left of a call. waits_for: the future that it waits for."""

    def __init__(self, steps: Generator[Any, Any, None], waits_for: Any) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            yield self._waits_for
        except BaseException:  # a cancellation, most often: nobody waits any more
            self._steps.close()
            raise
        yield from self._steps


class _Failed:
    """A call that raised before it waited."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __await__(self) -> Generator[Any, Any, None]:
        raise self._error
        yield
