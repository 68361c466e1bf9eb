"""Deliveries on a running server, planned and sent by the test: for those who operate them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from delivery_desk import Desk, Receiver, desk_of, wanted, webhook
from live_server import LiveServer
from minutebook.domain.deliveries.retry import Policy
from outside import serving, status

CHANNEL = "hook-of-operators"
CANARY = "canary-5d1c"
"""What all of them say."""

HEARD_S = 5.0
"""Until a notification is missed."""

T = TypeVar("T")


class Office:
    """Deliveries of the tenant acme; nobody but the test sends them."""

    def __init__(self, server: LiveServer, receiver: Receiver) -> None:
        self.receiver = receiver
        self._server = server

    def work(self, act: Callable[[Desk], Awaitable[T]]) -> T:
        """Something with a desk of its own, as another process would."""

        async def run() -> T:
            channels = {CHANNEL: webhook(CHANNEL, self.receiver.url)}
            policy = Policy(first_s=0.01, growth=1, timeout_s=0.5)
            async with desk_of(self._server.database_url("app"), channels, policy=policy) as desk:
                return await act(desk)

        return asyncio.run(run())

    def plan(self, count: int = 1, **fields: Any) -> list[str]:
        """So many deliveries, which nobody sends."""
        return self.work(lambda desk: desk.planner.plan([wanted(CHANNEL, text=CANARY, **fields) for _ in range(count)]))

    def send(self) -> None:
        """Everything that is due."""
        self.work(lambda desk: desk.drain())

    def dead(self) -> str:
        """A delivery that its destination refused for good."""
        (delivery_id,) = self.plan()
        self.receiver.mischief = [status(410)]
        self.receiver.troubles = lambda request: request.headers["webhook-id"].startswith(delivery_id)
        self.send()
        return delivery_id

    @contextlib.contextmanager
    def waking(self) -> Iterator[None]:
        """Inside, an operator must wake a lane. The notification tells: who takes the job does so at once. And it tells
        a wake-up by the sweep apart."""
        self.sleep()
        with self._server.sql() as superuser:
            superuser.execute('LISTEN "procrastinate_queue_v1#lane"')
            yield
            while heard := {each.pid for each in superuser.notifies(timeout=HEARD_S, stop_after=1)}:
                if heard & self._sessions("wake-ups by operators"):
                    return
        raise AssertionError("no lane was woken")

    def _sessions(self, name: str) -> set[int]:
        """Backends of a pool with that name."""
        with self._server.sql() as superuser:
            rows = superuser.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = %s", (f"minutebook {name}",)
            ).fetchall()
        return {pid for (pid,) in rows}

    def sleep(self) -> None:
        """Nobody needs to work at lanes here: forget their jobs that wait."""
        with self._server.sql() as superuser:
            superuser.execute("SET search_path = minutebook_jobs")  # its triggers name no schema
            superuser.execute(
                "DELETE FROM minutebook_jobs.procrastinate_jobs WHERE task_name = 'lane' AND status = 'todo'"
            )

    def payloads(self, delivery_id: str) -> int:
        """Payloads of it at rest."""
        with self._server.sql() as superuser:
            row = superuser.execute(
                "SELECT count(*) FROM minutebook.delivery_payloads WHERE delivery_id = %s", (delivery_id,)
            ).fetchone()
        assert row is not None
        return row[0]


@contextlib.contextmanager
def office_of(server: LiveServer) -> Iterator[Office]:
    """Deliveries to a receiver that does as it is told, of which the server's log says no words."""
    with serving(Receiver()) as receiver:
        made = Office(server, receiver)
        yield made
        made.sleep()
    assert CANARY not in server.logs()
