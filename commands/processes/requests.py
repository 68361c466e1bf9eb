"""The jobs that rooms ask for, by name, key and arguments."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ..jobs import JobRequest
from ..outward import Notice

LAUNCH_RUN: Final = "launch_run"
NOTIFY: Final = "notify"
POST_VERDICT: Final = "post_verdict"


def launch_request(room: str, run_id: str) -> JobRequest:
    """The job that hands a run to the launcher."""
    return JobRequest(LAUNCH_RUN, f"launch:{room}:{run_id}", {"room": room, "run": run_id})


def notice_request(notice: Notice) -> JobRequest:
    """The job that tells of a notice, which has ids only and so goes along."""
    arguments = {"kind": notice.kind, "room": notice.room, "seq": notice.seq, "ts": notice.ts}
    if notice.run_id is not None:
        arguments["run"] = notice.run_id
    if notice.approval_id is not None:
        arguments["approval"] = notice.approval_id
    if notice.is_silence:
        arguments["silence"] = True
    return JobRequest(NOTIFY, f"notify:{notice.room}:{notice.seq}:{notice.kind}", arguments)


def pause_request(notice: Notice) -> JobRequest:
    """The job that tells of a pause. One waits for a run at most, however often its harness reports one."""
    return replace(notice_request(notice), key=f"notify:{notice.room}:{notice.run_id}:paused")


def verdict_request(room: str, seq: int) -> JobRequest:
    """The job that brings a verdict to its pull request."""
    return JobRequest(POST_VERDICT, f"verdict:{room}:{seq}", {"room": room, "seq": seq})
