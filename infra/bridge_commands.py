"""The local command that a bridge hands deliveries to: one that runs on, or a new one for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from .bridge_feed import Delivery

ANSWER_S = 30.0
"""How long a command may take for one delivery."""

REFUSED_EXIT = 65
"""Exit status of a command that will never take this delivery (EX_DATAERR of sysexits)."""

MAX_ANSWER_BYTES = 64 * 1024


class NotTaken(Exception):
    """The command did not take a delivery this time; it may the next."""


class RefusedForGood(Exception):
    """The command will never take this delivery; the message is why."""


class Handler(Protocol):
    """Takes deliveries, one at a time."""

    async def take(self, delivery: Delivery) -> None:
        """Returns once it is taken. Raises NotTaken and RefusedForGood."""
        ...

    async def close(self) -> None:
        """Let go of what it holds."""
        ...


class Nobody:
    """Where no command is configured: nothing can be delivered, and the room hears of it."""

    async def take(self, delivery: Delivery) -> None:
        """See Handler.take."""
        raise RefusedForGood(f"this bridge has no command that takes a {delivery.kind}")

    async def close(self) -> None:
        """See Handler.close."""


class EachItsOwn:
    """Runs the command for each delivery, which is a line of JSON on its stdin.

    Exit status 0 took it, REFUSED_EXIT never will (the last line of its stdout says why), any other tries again.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    async def take(self, delivery: Delivery) -> None:
        """See Handler.take."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise NotTaken(f"the command cannot be started ({error.strerror})") from error
        try:
            async with asyncio.timeout(ANSWER_S):
                said, _ = await process.communicate(delivery.line())
        except TimeoutError:
            raise NotTaken(f"the command did not end within {ANSWER_S:.0f} s") from None
        finally:
            await _end(process)
        if process.returncode == REFUSED_EXIT:
            lines = said[-MAX_ANSWER_BYTES:].decode(errors="replace").strip().splitlines()
            raise RefusedForGood(lines[-1] if lines else "the command refused it")
        if process.returncode != 0:
            raise NotTaken(f"the command ended with status {process.returncode}")

    async def close(self) -> None:
        """See Handler.close."""


class _Answer(msgspec.Struct):
    ref: int
    ok: bool
    reason: str | None = None


class OneForAll:
    """Keeps one command running: each delivery is a line of JSON on its stdin, each answer one on its stdout.

    The answer `{"ref", "ok": true}` took it, `{"ref", "ok": false, "reason"?}` never will. A command that ends, or does
    not answer in time, is started again.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None

    async def take(self, delivery: Delivery) -> None:
        """See Handler.take."""
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._ask(delivery)
        except TimeoutError:
            await self.close()
            raise NotTaken(f"the command did not answer within {ANSWER_S:.0f} s") from None
        except (OSError, ValueError, EOFError, msgspec.MsgspecError) as error:
            await self.close()
            raise NotTaken(f"the command ended or answered nonsense ({type(error).__name__})") from error
        if not answer.ok:
            raise RefusedForGood(answer.reason or "the command refused it")

    async def close(self) -> None:
        """See Handler.close."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)

    async def _ask(self, delivery: Delivery) -> _Answer:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_ANSWER_BYTES,
            )
        if process.stdin is None or process.stdout is None:
            raise OSError("no pipes")
        process.stdin.write(delivery.line())
        await process.stdin.drain()
        while True:
            line = await process.stdout.readline()
            if not line:
                raise EOFError
            answer = msgspec.json.decode(line, type=_Answer)
            if answer.ref == delivery.ref:
                return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
