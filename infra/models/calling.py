"""Calls of a model's service: again after what passes by itself, as long as nothing of the answer was used."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from msgspec import Struct

from ...commands.conversations.ports import ModelError, ModelPart, Wait

MAX_TRIES = 4
"""Of one model call, the first among them."""

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 8.0
MAX_RETRY_AFTER_S = 20.0
"""Of a Retry-After that is waited for; a longer one is taken for this."""


class Failure(Struct, frozen=True):
    """Why a try failed. words: for the server's log, without anything that the service said. status: of HTTP, where
    there was one. passes: whether it is worth another try, after_s: not before."""

    words: str
    status: int | None = None
    passes: bool = False
    after_s: float | None = None


class Pace(Struct, frozen=True):
    """How retries wait. chance: from 0 to 1."""

    wait: Wait = asyncio.sleep
    chance: Callable[[], float] = random.random


async def with_retries(
    attempt: Callable[[], AsyncGenerator[ModelPart, None]], failure_of: Callable[[Exception], Failure], pace: Pace
) -> AsyncIterator[ModelPart]:
    """The parts of the answer. attempt: makes the call anew each time.

    Raises ModelError for the failure of the last try, or of any after the first part.
    """
    tries = 0
    while True:
        tries += 1
        has_begun = False
        try:
            async with aclosing(attempt()) as parts:
                async for part in parts:
                    has_begun = True
                    yield part
            return
        except Exception as error:  # noqa: BLE001 - whatever a library raises is a failed try
            failure = failure_of(error)
            if has_begun or not failure.passes or tries >= MAX_TRIES:
                # What the library says may hold hosts, keys and words: it must not even be the cause.
                raise ModelError(failure.words, failure.status) from None
        await pace.wait(_pause_s(tries, failure, pace.chance()))


def _pause_s(tries: int, failure: Failure, chance: float) -> float:
    """Half of it by chance, so that those who failed together do not come back together."""
    asked = min(failure.after_s or 0.0, MAX_RETRY_AFTER_S)
    own = min(FIRST_PAUSE_S * 2 ** (tries - 1), MAX_PAUSE_S) * (0.5 + chance / 2)
    return max(asked, own)
