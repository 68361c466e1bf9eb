"""What the jobs of rooms say and record: a run to start, a verdict with its outcome, whether a notice still holds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from ...domain.errors import NotVisible
from ...domain.rooms.decide_verdicts import SettleVerdict
from ...domain.rooms.events import ROOM_EVENTS, VerdictGiven
from ...domain.rooms.run_state import RunRecord
from ...domain.rooms.runs import brief_of
from ...domain.rooms.state import Room
from ..outward import Launch, Notice, NotPosted, Posted, Verdict
from .ports import Verdicts, Waits
from .server_acts import ServerActs

NO_PULL_REQUEST = "no_pull_request"

log = structlog.get_logger(__name__)


class Lookups:
    """The room's side of each job. Everything is looked up when the job runs: what was erased or ended meanwhile is not
    told."""

    def __init__(self, acts: ServerActs, verdicts: Verdicts, waits: Waits, now: Callable[[], datetime]) -> None:
        self._acts = acts
        self._verdicts = verdicts
        self._waits = waits
        self._now = now

    async def launch(self, room_id: str, run_id: str) -> Launch | None:
        """The run to start, with its brief; None where it said hello, ended, or is gone."""
        room = await self._room(room_id)
        record = None if room is None else room.runs.get(run_id)
        if room is None or record is None or record.phase != "requested":
            return None
        claim = run_claim(room_id, run_id, record)
        return Launch(room_id, run_id, record.role, claim, brief_of(room, room_id, record))

    async def not_launched(self, room_id: str, run_id: str, reason: str) -> None:
        """The run stays requested, so that it may be started by hand, until the sweep says that it never joined."""
        log.warning("a run was not handed to the launcher", room=room_id, run=run_id, reason=reason)

    async def verdict(self, room_id: str, seq: int) -> Verdict | NotPosted | None:
        """What is to be posted; None where its outcome is recorded, or its words are gone."""
        said = await self._verdicts.verdict(room_id, seq)
        if said is None or said.is_settled or said.payload is None:
            return None
        given = ROOM_EVENTS.decode(said.type, said.version, said.payload)
        if not isinstance(given, VerdictGiven) or said.actor_kind != "agent":
            return None
        room = await self._room(room_id)
        if room is None:
            return None
        if room.repository is None or not given.pull_request:
            return NotPosted(NO_PULL_REQUEST)
        return Verdict(
            room_id,
            seq,
            said.ts,
            given.pull_request,
            room.repository,
            given.verdict,
            given.commit,
            given.text,
            room.data_class == "public",
        )

    async def settle(self, room_id: str, seq: int, outcome: Posted | NotPosted) -> None:
        """Append the outcome, once; nothing in a room that was closed meanwhile."""
        said = await self._verdicts.verdict(room_id, seq)
        if said is None or said.is_settled:
            return
        command = (
            SettleVerdict(seq, url=outcome.url) if isinstance(outcome, Posted) else SettleVerdict(seq, outcome.reason)
        )
        await self._acts.settle_verdict(room_id, command)

    async def holds(self, notice: Notice) -> bool:
        """Whether a notice is worth telling: an approval that the policy decided at once pends no more, a silence is
        over once something happened, and of a pause nobody is told twice."""
        if notice.kind not in ("approval_pending", "room_waiting"):
            return True
        found = await self._look(notice.room)
        if found is None:
            return False
        room, version = found
        if notice.kind == "approval_pending":
            return notice.approval_id in room.approvals.pending
        if room.run is None or room.run.run_id != notice.run_id:
            return False
        if notice.is_silence:
            return version == notice.seq
        return await self._waits.tell_pause(notice.room, room.run.run_id, notice.seq, self._now())

    async def _room(self, room_id: str) -> Room | None:
        found = await self._look(room_id)
        return None if found is None else found[0]

    async def _look(self, room_id: str) -> tuple[Room, int] | None:
        try:
            return await self._acts.look(room_id)
        except NotVisible:
            return None


def run_claim(room_id: str, run_id: str, record: RunRecord) -> dict[str, Any]:
    """What a run's bridge takes the room with, beside its token: `{"roomId", "runId", "role", "branch"?, "taskUrl"?,
    "pullRequest"?}`."""
    claim = {
        "roomId": room_id,
        "runId": run_id,
        "role": record.role,
        "branch": record.branch,
        "taskUrl": record.task_url,
        "pullRequest": record.pull_request,
    }
    return {name: value for name, value in claim.items() if value is not None}
