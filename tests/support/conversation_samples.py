"""One fully filled sample of every event of a conversation and of a turn, and strategies that make any of them."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st
from minutebook.domain.conversations.events import (
    ClearanceRecorded,
    ContextDecided,
    ConversationClosed,
    ConversationRotated,
    ConversationStarted,
    EnvelopeKind,
    EnvelopeReceived,
    EnvelopesDropped,
    ParticipantAdded,
    ParticipantRemoved,
    Rejection,
    ReplyRecorded,
    ReplyStatus,
    SummaryRecorded,
    Unsigned,
    UserRecorded,
)
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.turn_events import (
    AttemptStarted,
    ModelAnswered,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    WantedCall,
)
from minutebook.domain.events import Event, Opaque, Unstorable

ID = "ab" * 32
MAC = "cd" * 32
ASKER = Identity("agent:abcdefgh", "acme", "human:alice")

CONVERSATION_SAMPLES: tuple[Event, ...] = (
    ConversationStarted("conv" * 6 + "ab", ASKER, "ops", "owner", "interrupt", "k1", MAC, "my-handle"),
    EnvelopeReceived(
        ID,
        "user",
        1772625600000,
        ASKER,
        "k1",
        MAC,
        message_id="m-1",
        text="Gr\u00fc\u00df dich \U0001f44b",
        claims={"groups": ["ops", "sec"]},
        edit_of=3,
        classes=("secret",),
        turn=2,
        seen=17,
    ),
    UserRecorded(
        5,
        3,
        1,
        "accepted",
        9,
        ASKER,
        "k1",
        MAC,
        id=ID,
        message_id="m-1",
        text="hello",
        edit_of=3,
        edit_of_turn=2,
        classes=("secret",),
        reason="stale",
        digest=ID,
    ),
    ContextDecided(
        3,
        5,
        (1, 3),
        (2,),
        {"3": 40},
        900,
        4096,
        2,
        ID,
        MAC,
        "k1",
        MAC,
        summary_dropped=True,
        model="scripted",
        parts={"system": 10, "tools": 20, "summary": 30, "turns": 40, "prompt": 50},
        kept_tokens=(30, 40),
        system_digest=ID,
    ),
    SummaryRecorded(
        2, 7, "replaced", "k1", MAC, text="They greeted.", tokens=4, reason="model-error", classes=("secret",)
    ),
    ReplyRecorded(
        6,
        3,
        1,
        "interrupted",
        "hi there",
        ASKER,
        2,
        "k1",
        MAC,
        classes=("secret",),
        reason="model-error",
        error_id="e-1",
        truncated=True,
        seen=2,
        usage={"input": 10, "output": 20},
    ),
    EnvelopesDropped(100, 412, "k1", MAC),
    ConversationRotated(2, {"id": "conv" * 6 + "ab", "nextOrd": 7, "turns": 3}, "k1", MAC),
    ParticipantAdded(Identity("human:bob", "acme"), ASKER, "k1", MAC),
    ParticipantRemoved(Identity("human:bob", "acme"), ASKER, "k1", MAC),
    ClearanceRecorded(Identity("human:bob", "acme"), ("secret", "vault"), "0123456789abcdef", "k1", MAC),
    ConversationClosed(99, "k1", MAC),
)

TURN_SAMPLES: tuple[Event, ...] = (
    AttemptStarted("conv" * 6 + "ab", 3, 5, 2, 17, "k1", MAC),
    ModelAnswered(
        1,
        "Let me look.",
        (WantedCall("c1", "vault", {"path": "a/b", "deep": [1, None]}),),
        {"input": 10, "output": 20},
        "k1",
        MAC,
        cut="interrupted",
        request_cut=("c0",),
    ),
    ToolStarted("c1", 1, "k1", MAC),
    ToolEnded("c1", "ok", "found", ("secret",), "k1", MAC, truncated=True),
    TurnEnded("completed", "k1", MAC),
)

small = st.integers(0, 12)
ords = st.lists(small, max_size=3).map(tuple)
ids = st.sampled_from(["", "a", "b", ID])
identities = st.sampled_from([ASKER, Identity("human:alice", "acme"), Identity("human:bob")])
kinds: st.SearchStrategy[EnvelopeKind] = st.sampled_from(get_args(EnvelopeKind))
statuses: st.SearchStrategy[ReplyStatus] = st.sampled_from(get_args(ReplyStatus))
reasons: st.SearchStrategy[Rejection] = st.sampled_from(get_args(Rejection))
key = st.just("k1")

events_of_any_kind: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(CONVERSATION_SAMPLES),
    st.builds(EnvelopeReceived, ids, kinds, small, identities, key, key, turn=small),
    st.builds(
        UserRecorded,
        small,
        small,
        small,
        st.sampled_from(["accepted", "rejected"]),
        small,
        st.none() | identities,
        key,
        key,
        id=ids,
        reason=reasons,
    ),
    st.builds(
        ContextDecided,
        small,
        small,
        ords,
        ords,
        st.dictionaries(st.sampled_from(["1", "x", ""]), small),
        small,
        small,
        small,
        ids,
        ids,
        key,
        key,
    ),
    st.builds(SummaryRecorded, small, small, st.sampled_from(["replaced", "kept"]), key, key),
    st.builds(ReplyRecorded, small, small, small, statuses, st.just("hi"), identities, small, key, key),
    st.builds(ParticipantAdded, identities, identities, key, key),
    st.builds(ParticipantRemoved, identities, identities, key, key),
    st.builds(ClearanceRecorded, identities, st.just(("secret",)), ids, key, key),
    st.builds(EnvelopesDropped, small, small, key, key),
    st.builds(ConversationRotated, small, st.dictionaries(st.sampled_from(["id", "turns"]), small), key, key),
    st.builds(Unsigned, small, st.booleans()),
    st.builds(Opaque, st.just("later"), small),
    st.builds(Unstorable, st.just("later"), st.just({"oversize": True})),
)
