"""A call that is begun without a task does all that it would do with one."""

from __future__ import annotations

import asyncio

import pytest
from minutebook.http.begun import begun


def test_a_call_that_never_waits_is_through_at_once() -> None:
    done: list[int] = []

    async def call() -> None:
        done.append(1)

    assert begun(call()) is None
    assert done == [1]


def test_the_rest_of_a_call_that_waits_is_done_by_whoever_awaits_it() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        done: list[int] = []

        async def call() -> None:
            done.append(1)
            await gate.wait()
            await asyncio.sleep(0)
            done.append(2)

        rest = begun(call())
        assert rest is not None
        assert done == [1]
        asyncio.get_running_loop().call_soon(gate.set)
        await asyncio.create_task(_awaited(rest))
        assert done == [1, 2]

    asyncio.run(main())


async def _awaited(rest: object) -> None:
    await rest  # pyright: ignore[reportGeneralTypeIssues]


def test_a_time_out_ends_the_call_where_it_waits() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def call() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        rest = begun(call())
        assert rest is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await rest
        assert ended == ["ended"]

    asyncio.run(main())


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    async def main() -> None:
        async def call() -> None:
            raise ConnectionError("gone")

        rest = begun(call())
        assert rest is not None
        with pytest.raises(ConnectionError, match="gone"):
            await rest

    asyncio.run(main())
