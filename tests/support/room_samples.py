"""One fully filled sample of every event of a room, and strategies that make any of them."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st
from minutebook.domain.events import Event, Opaque, Recorded, Unstorable
from minutebook.domain.principals import SERVER, Principal
from minutebook.domain.rooms.approval_events import ApprovalDecided, ApprovalOutcome, ApprovalRequested
from minutebook.domain.rooms.events import (
    AckKind,
    DeliveryAcknowledged,
    DriverMoved,
    DriverReason,
    DriverRequested,
    EndReason,
    HarnessKind,
    HarnessReported,
    HoldReleased,
    HoldSet,
    InterruptRequested,
    LimitReached,
    MemberSpec,
    MessagePosted,
    ParticipantJoined,
    ParticipantLeft,
    ParticipantRoleChanged,
    PayloadErased,
    QueuedPromoted,
    QueuedRemoved,
    Role,
    RoomClosed,
    RoomOpened,
    RunEnded,
    RunRegistered,
    RunRequested,
    RunStarted,
    ToolCalled,
    ToolReturned,
    TurnReported,
    VerdictGiven,
    VerdictNotPosted,
    VerdictPosted,
)
from minutebook.domain.rooms.fork import ForkedFrom
from minutebook.domain.rooms.handoff import HandoffRecorded

FULL: tuple[Event, ...] = (
    RoomOpened(
        owner="human:olga",
        driver="human:olga",
        data_class="internal",
        retention="90d",
        members=(MemberSpec("human:carl", "collaborator", approver=True), MemberSpec("human:wanda", "watcher")),
        approvals={"profile": "attended", "fourEyes": True},
        title="Release 2",
        repository="forge/app",
    ),
    RoomClosed("done"),
    LimitReached("concurrent_run", "runrunbb"),
    ParticipantJoined("human:nora", "watcher", approver=False),
    ParticipantRoleChanged("human:nora", "owner", approver=True),
    ParticipantLeft("human:nora"),
    RunStarted("runrunaa", "implementer"),
    RunEnded("runrunaa", "deadline"),
    PayloadErased(7),
    MessagePosted("Grüße, 世界 \u2028 \U0001f600", ("human:carl", "agent:runrunaa")),
    TurnReported("runrunaa", "t1", "cancelled"),
    ToolCalled("c1", "bash", {"command": "ls", "deep": [1, 2.5, None, True]}, "policy", "shell.high", "low"),
    ToolReturned("c1", "rejected", "no", truncated=True, bytes=70_000),
    HarnessReported("policy_decision"),
    HoldSet("lawsuit 7"),
    HoldReleased("settled"),
    DriverRequested("human:carl"),
    DriverMoved("human:olga", "human:carl", 2, "taken", "she is on a plane"),
    RunRequested("runrunbb", "reviewer", (4, 9), 12, "human:olga", "https://forge.example/app/pulls/7"),
    RunRegistered("runrunbb", "reviewer", "fix-7", "https://forge.example/app/pulls/7"),
    VerdictGiven("Wrong sign.", "changes", "0a1b2c3d", ("agent:runrunaa",), "https://forge.example/app/pulls/7"),
    VerdictPosted(14, "https://forge.example/app/pulls/7#1"),
    VerdictNotPosted(14, "the forge answered 404"),
    QueuedRemoved(4),
    QueuedPromoted(9, "runrunaa"),
    InterruptRequested("runrunaa"),
    DeliveryAcknowledged(9, "undeliverable"),
    HandoffRecorded("implementer", "reviewer", "Done but for the docs.", "0a1b2c3d", "fix-7"),
    ApprovalRequested(
        "01J00000000000000000000000",
        "c1",
        "forge.pr",
        {"title": "Fix"},
        "ab" * 32,
        ("human:olga",),
        "2026-03-01T12:30:00.000000Z",
    ),
    ApprovalDecided("01J00000000000000000000000", "ab" * 32, "denied", "not on a Friday"),
    ForkedFrom("abcd2345", 12, "cd" * 32, "human:olga", "another way"),
)
"""Each declared event with every field set."""

_people = st.sampled_from([f"human:p{n}" for n in range(6)])
_runs = st.sampled_from(["runrunaa", "runrunbb"])
_principals = _people | _runs.map(lambda run: f"agent:{run}")
_roles: st.SearchStrategy[Role] = st.sampled_from(get_args(Role))
_words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_holders = _people | st.just("system:triage")
_refs = st.integers(1, 12)
_calls = st.sampled_from(["c1", "c2", "c3"])

EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        RoomOpened,
        owner=_people,
        driver=_people,
        data_class=st.sampled_from(["public", "internal"]),
        retention=st.just("90d"),
        members=st.lists(st.builds(MemberSpec, _people, _roles, st.booleans()), max_size=3).map(tuple),
        approvals=st.dictionaries(_words, _words | st.integers(-(2**53), 2**53) | st.none(), max_size=3),
    ),
    st.builds(RoomClosed, _words),
    st.builds(LimitReached, st.sampled_from(["events", "bytes", "concurrent_run"])),
    st.builds(ParticipantJoined, _principals, _roles, st.booleans()),
    st.builds(ParticipantRoleChanged, _people, _roles, st.booleans()),
    st.builds(ParticipantLeft, _principals),
    st.builds(RunStarted, _runs, _words),
    st.builds(RunEnded, _runs, st.sampled_from(get_args(EndReason))),
    st.builds(PayloadErased, st.integers(1, 12)),
    st.builds(MessagePosted, _words, st.lists(_principals, max_size=3).map(tuple)),
    st.builds(TurnReported, _runs, _words, st.sampled_from(["started", "completed", "cancelled", "failed"])),
    st.builds(
        ToolCalled, _calls, _words, st.dictionaries(_words, _words, max_size=2), st.sampled_from(["policy", None])
    ),
    st.builds(ToolReturned, _calls, st.sampled_from(["ok", "error"]), _words, st.booleans(), st.integers(0, 2**31)),
    st.builds(HarnessReported, st.sampled_from(get_args(HarnessKind))),
    st.builds(HoldSet, _words) | st.builds(HoldReleased, _words),
    st.builds(DriverRequested, _people),
    st.builds(DriverMoved, _holders, _holders, st.integers(1, 99), st.sampled_from(get_args(DriverReason))),
    st.builds(RunRequested, _runs, _words, _refs.map(lambda ref: (ref,)), _refs, _people),
    st.builds(RunRegistered, _runs, _words, _words, _words),
    st.builds(MessagePosted, _words, delivery=st.sampled_from(["queued", "steering"])),
    st.builds(VerdictGiven, _words, st.sampled_from(["approve", "changes"]), _words),
    st.builds(VerdictPosted, _refs) | st.builds(VerdictNotPosted, _refs, _words),
    st.builds(QueuedRemoved, _refs) | st.builds(QueuedPromoted, _refs, _runs),
    st.builds(InterruptRequested, _runs),
    st.builds(DeliveryAcknowledged, _refs, st.sampled_from(get_args(AckKind))),
    st.builds(HandoffRecorded, _words, st.sampled_from(["reviewer", "tester"]), _words, _words),
    st.builds(ApprovalRequested, _calls, _calls, st.just("forge.pr"), _words, _words, st.just(()), st.just("2026")),
    st.builds(ApprovalDecided, _calls, _words, st.sampled_from(get_args(ApprovalOutcome))),
    st.builds(ForkedFrom, st.just("abcd2345"), _refs, _words, _people),
)
"""Any declared event."""

_stored: st.SearchStrategy[Any] = (
    EVENTS
    | st.builds(Opaque, _words, st.integers(1, 9))
    | st.sampled_from(["message", "turn"]).map(lambda type_: Unstorable(type_, {"refused": True, "type": type_}))
)
_keys = st.none() | st.sampled_from(["events", "status", "other"]).flatmap(
    lambda stream: st.integers(1, 99).map(lambda number: f"{stream}:{number}") | st.just(stream)
)

RECORDED: st.SearchStrategy[Recorded[Any]] = st.builds(
    Recorded,
    _refs | st.integers(1, 2**53),
    st.sampled_from([SERVER, Principal("human", "p1"), Principal("agent", "runrunaa")]),
    st.none() | _runs,
    _keys,
    _stored,
)
"""Any event as the log hands it back, in any order: the log of a room that no command would have made, too."""
