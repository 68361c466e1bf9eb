"""Decisions on what a run hands on: its work to the next role, its verdict to whoever works next (rooms.md, Runs)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from ..errors import Invalid
from ..events import Event
from .acting import allow, by_caller
from .commands import Command, Commit
from .context import Context, Decision
from .events import VerdictGiven
from .handoff import HandoffRecorded, RoomTool, RunRole
from .run_state import Run
from .state import Room

MAX_SUMMARY_BYTES = 8192
"""Longest summary of a handoff or a verdict, in bytes of UTF-8."""

Summary = Annotated[str, Meta(min_length=1, max_length=MAX_SUMMARY_BYTES, description="1 to 8192 bytes")]


class RecordHandoff(Command, frozen=True):
    """The arguments of room_handoff."""

    to_role: RunRole
    summary: Summary
    commit: Commit


class RecordVerdict(Command, frozen=True):
    """The arguments of room_verdict."""

    verdict: Literal["approve", "changes"]
    summary: Summary
    commit: Commit


def record_handoff(room: Room, command: RecordHandoff, context: Context) -> Decision:
    """The running run passes its work on. Its role must have the tool (TOOL_ROLES)."""
    run = _run_with(room, "room_handoff", command.summary, context)
    branch: str | UnsetType = UNSET if run.branch is None else run.branch
    handoff = HandoffRecorded(run.role, command.to_role, command.summary, command.commit, branch)
    return _recorded(room, handoff, context)


def record_verdict(room: Room, command: RecordVerdict, context: Context) -> Decision:
    """The running run judges a commit; stored as a message, which names the run's pull request where it has one."""
    run = _run_with(room, "room_verdict", command.summary, context)
    verdict = VerdictGiven(
        command.summary,
        command.verdict,
        command.commit,
        pull_request=UNSET if run.task_url is None else run.task_url,
    )
    return _recorded(room, verdict, context)


def _run_with(room: Room, tool: RoomTool, summary: str, context: Context) -> Run:
    allow(room, context, tool)
    run = room.run
    assert run is not None  # noqa: S101 - room tools are the running run's alone
    size = len(summary.encode())
    if size > MAX_SUMMARY_BYTES:
        raise Invalid.at("$.summary", f"must be at most {MAX_SUMMARY_BYTES} bytes; this one has {size}")
    return run


def _recorded(room: Room, event: Event, context: Context) -> Decision:
    return Decision((by_caller(room, event, context),))
