"""Forks of a room: a copy of its log up to an event, and the first run in it if one is wanted (rooms.md, Fork)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..domain.errors import ClientNotAllowed, KeyReused, NotVisible, TooLong, Unavailable
from ..domain.ids import short_id
from ..domain.principals import Caller
from ..domain.rooms.commands import RequestRun
from ..domain.rooms.context import Context, Decision, NewEvent
from ..domain.rooms.decide_fork import ForkRoom, fork_room, latest_commit
from ..domain.rooms.state import Room
from .mailbox import RETRY_AFTER_MS, REUSED, Answer, replay
from .ports import Fork, Key
from .room_handling import stream_of
from .room_runs import RoomRuns

FORK_DEADLINE_S = 130.0
"""Longest wait for the answer of a fork, a little more than the database takes at most."""


class RoomForks(RoomRuns):
    """Handlers of forks."""

    async def fork(self, caller: Caller, room_id: str, command: ForkRoom, key: str | None) -> Answer:
        """201 `{"id", "seq", "chain", "forkedFrom": {"room", "seq", "chain"}}`; with a first run also its `runId`, its
        `brief` and the `commit` that it starts from, and `seq` and `chain` are those behind its request.

        Raises NotVisible, Forbidden, Invalid, TooLong, ReviewerNeedsPr, KeyReused.
        """
        room, context = await self._look(caller, room_id, "fork")
        if command.role is not None and caller.is_cli_client:
            raise ClientNotAllowed("A token of a command-line client may not start a run; fork without a role.")
        fork_id = short_id(self._means.entropy())
        answer = {"id": fork_id, "forkedFrom": {"room": room_id, "seq": command.seq}}
        place = self._dispatcher.key(caller, "fork_room", stream_of(room_id), key, command, 201, answer)
        made = await self._dispatcher.replayed(place)
        if made is None:
            self._beside.admit(caller)()

            async def copy() -> Answer:
                return await self._copy(room, command, context, fork_id, place)

            made = await self._dispatcher.beside(copy, FORK_DEADLINE_S)
        self._beside.acted(room_id, caller)
        return made if command.role is None else await self._first_run(caller, made, command, key)

    async def _copy(self, room: Room, command: ForkRoom, context: Context, fork_id: str, key: Key | None) -> Answer:
        event = fork_room(room, command, context)
        encoded = self._encode(Decision((NewEvent(event, context.caller.principal, "owner"),)))
        limits = self._means.limits
        source = stream_of(context.room_id)
        forked = await self._beside.forks.fork(
            Fork(source, command.seq, stream_of(fork_id), encoded.rows[0], limits.events, limits.bytes, key)
        )
        match forked.kind:
            case "appended":
                self._dispatcher.appended(encoded.rows, encoded.events)
                whence = {"room": context.room_id, "seq": command.seq, "chain": forked.source_chain}
                body = {"seq": forked.seq, "id": fork_id, "chain": forked.chain, "forkedFrom": whence}
                return Answer(201, body, False, forked.seq)
            case "duplicate":
                return replay(forked.status, forked.body)
            case "key_reused":
                raise KeyReused(REUSED)
            case "not_found":
                raise NotVisible
            case "too_long":
                raise TooLong("A fork of so much has no room left; fork before an earlier event.")
            case "conflict":
                raise Unavailable("The new id was taken; try again.", retryAfterMs=RETRY_AFTER_MS)

    async def _first_run(self, caller: Caller, made: Answer, command: ForkRoom, key: str | None) -> Answer:
        """Under the fork's key, so that a retry finishes what a lost server left undone."""
        fork_id: str = made.body["id"]
        assert command.role is not None  # noqa: S101 - asked before
        wanted = RequestRun(command.role, command.pull_request)
        run = await self._requested(self._run, caller, fork_id, wanted, key)  # one action with its fork
        room, _ = await self._look(caller, fork_id, "read")
        fields: dict[str, Any] = {
            name: run.body[name] for name in ("seq", "chain", "runId", "brief") if name in run.body
        }
        commit = latest_commit(room)
        if commit is not None:
            fields["commit"] = commit
        return replace(made, body={**made.body, **fields}, seq=run.seq)
