"""Work that must survive a restart, as commands and processes see it: jobs, sweeps, and processes that ask for jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from msgspec import Struct, field

from .ports import StoredEvent

Arguments = Mapping[str, Any]
"""A job's arguments: ids and numbers only, since the engine stores and logs them."""


class TryAgain(Exception):
    """A job cannot be done now and may be later. reason: a stable code. after_s: not sooner, where somebody said so."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class Refused(Exception):
    """A job can never be done. reason: a stable code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class JobRequest(Struct, frozen=True):
    """Asks for a job. task: the job's name.

    key: fixed by what causes the job (`verdict:<room>:<seq>`). Of one key one job waits and one runs at any time; a
    request whose key waits already changes nothing. after_s: do it not sooner than in so many seconds.
    """

    task: str
    key: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    after_s: float = 0


class Job(Protocol):
    """One kind of job. It may run again after any crash, so what it does must be the same when done twice."""

    name: ClassVar[str]
    """The task's name, 1 to 32 characters of `[a-z_]`; stored, so never changed."""

    is_exclusive: ClassVar[bool]
    """Whether an attempt must never overlap another one of its key, not even one of a worker that is believed dead."""

    async def run(self, arguments: Arguments) -> None:
        """One attempt, bounded in time. Raises TryAgain (there is another attempt, after a back-off) or Refused."""
        ...

    async def give_up(self, arguments: Arguments, reason: str) -> None:
        """After Refused, or after the last attempt. Where it raises, the job goes on, and ends here again."""
        ...


class Sweep(Struct, frozen=True):
    """Work by the clock: `run` is called every `every_s` seconds by one of all the servers.

    every_s: a divisor of a minute or of an hour, or more than an hour; then it runs at the first tick of 10 minutes
    after so much time, also when no server ran meanwhile. A run is cut off after `limit_s`. It may overlap another one
    after a crash, so its effects need fixed keys.
    """

    name: str
    every_s: int
    run: Callable[[], Awaitable[None]]
    limit_s: float = 60


class Process(Protocol):
    """A process manager: answers events with jobs, each event once. A rebuild never runs it (rules.md, law 9)."""

    name: ClassVar[str]
    """Its name in `minutebook_jobs.processes`, where a migration writes it."""

    kinds: ClassVar[tuple[str, ...]]
    """Kinds of streams that it follows."""

    types: ClassVar[tuple[str, ...]]
    """Types of events that it looks at."""

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:
        """The jobs that an event of `stream` (`room:abcdefgh`) asks for. Pure.

        Not called for events of before the process began, for copies in a fork, and for erased payloads. Raising parks
        the stream, and repeats.
        """
        ...
