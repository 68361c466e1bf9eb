"""The commands of runs by people and systems (http.md, Rooms): request, register, end, revoke."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from ..domain.errors import Conflict, NotVisible
from ..domain.principals import Caller
from ..domain.rooms import runs
from ..domain.rooms.commands import EndRun, RegisterRun, RequestRun, Revocation, RevokeRun, StopRun
from ..domain.rooms.context import Context, Decision
from ..domain.rooms.events import RunRequested
from ..domain.rooms.rights import Action
from ..domain.rooms.state import Room
from .mailbox import Answer
from .room_acting import Decide, RoomActing


class RoomRuns(RoomActing):
    """Handlers of runs that somebody else than their bridge asks for."""

    async def request_run(self, caller: Caller, room_id: str, command: RequestRun, key: str | None) -> Answer:
        """202 `{"seq", "id", "chain", "runId", "brief"?}`; the brief is there until the run has said hello."""
        return await self._requested(self._act, caller, room_id, command, key)

    async def _requested(
        self, act: Callable[..., Awaitable[Answer]], caller: Caller, room_id: str, command: RequestRun, key: str | None
    ) -> Answer:
        # Whoever drove until now hears of the epoch that they sent.
        action: Action = "start_run" if command.driver_epoch is None else "queue"
        return await self._with_brief(act, caller, room_id, command, runs.request_run, action, key, status=202)

    async def register_run(self, caller: Caller, room_id: str, command: RegisterRun, key: str | None) -> Answer:
        """201 for a new run, else 200: `{"seq", "chain", "runId", "roomId", "role", "state", "brief"?}`.

        Raises Conflict where the id is that of another room's run.
        """
        other = await self._beside.runs.room_of_run(command.run_id)

        def register_run(room: Room, command: RegisterRun, context: Context) -> Decision:
            decision = runs.register_run(room, command, context)
            if other not in (None, room_id):
                raise Conflict("This run id is taken; choose another one.")
            return decision

        return await self._with_brief(
            self._act, caller, room_id, command, register_run, "register_run", key, status_of=_new
        )

    async def stop_run(self, caller: Caller, run_id: str, command: EndRun, key: str | None) -> Answer:
        """200 `{"seq"}`. Raises NotVisible for a run that the caller may not see, AlreadyEnded."""
        stop = StopRun(run_id, command.reason)
        return await self._act(caller, await self._room_of(run_id), stop, runs.stop_run, "end_run", key)

    async def revoke_run(self, caller: Caller, run_id: str, command: Revocation, key: str | None) -> Answer:
        """200 `{"seq"}`. Raises NotVisible for a run that the caller may not see, AlreadyEnded."""
        revoke = RevokeRun(run_id, command.reason)
        return await self._act(caller, await self._room_of(run_id), revoke, runs.revoke_run, "end_run", key)

    async def _room_of(self, run_id: str) -> str:
        room_id = await self._beside.runs.room_of_run(run_id)
        if room_id is None:
            raise NotVisible
        return room_id

    async def _with_brief(
        self,
        act: Callable[..., Awaitable[Answer]],
        caller: Caller,
        room_id: str,
        command: Any,
        decision: Decide,
        action: Action,
        key: str | None,
        **status: Any,
    ) -> Answer:
        """A command whose answer quotes the room. No quotation is stored with its key: words that are erased later must
        be gone from there too (rules.md, law 10), so a replay gets it from the room as it is then."""
        briefs: list[str | None] = []

        def without_brief(room: Room, command: Any, context: Context) -> Decision:
            made = decision(room, command, context)
            answer = dict(made.answer)
            briefs.append(answer.pop("brief", None))
            return replace(made, answer=answer)

        without_brief.__name__ = decision.__name__  # the operation of the key
        answer = await act(caller, room_id, command, without_brief, action, key, **status)
        brief = briefs[-1] if briefs and not answer.is_replay else await self._brief(caller, room_id, answer)
        return answer if brief is None else replace(answer, body={**answer.body, "brief": brief})

    async def _brief(self, caller: Caller, room_id: str, answer: Answer) -> str | None:
        room, _ = await self._look(caller, room_id, "read")
        record = room.runs.get(answer.body["runId"])
        return None if record is None or record.phase != "requested" else runs.brief_of(room, room_id, record)


def _new(decision: Decision) -> int:
    return 201 if any(isinstance(new.event, RunRequested) for new in decision.events) else 200
