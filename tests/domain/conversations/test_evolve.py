"""What the log does to a conversation, and that only what is verifiably ours does anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from conversation_samples import events_of_any_kind
from conversation_scenes import ALICE, BOB, CONVERSATION, RING, Log, Ring, Row
from hypothesis import given
from hypothesis import strategies as st
from minutebook.domain.conversations.decide import envelope_id, milliseconds
from minutebook.domain.conversations.events import ConversationRotated, ConversationStarted, UserRecorded
from minutebook.domain.conversations.evolve import INITIAL, evolve
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.reading import signed_part
from minutebook.domain.conversations.state import DROP_BATCH, MAX_RECORDED_INVALID, MAX_REPLAY_IDS, Conversation
from minutebook.domain.conversations.turns import next_step
from minutebook.domain.conversations.window import consumed
from minutebook.domain.events import Opaque, Recorded
from minutebook.domain.principals import TURN_RUNNER, Principal
from msgspec.structs import replace


def without_counters(state: Conversation) -> Conversation:
    """The state but for how many events its generation has."""
    return replace(state, events=0)


def test_the_first_event_says_whose_it_is() -> None:
    state = Log().start(barge_in="interrupt").state
    assert (state.id, state.owner, state.agent, state.barge_in) == (CONVERSATION, ALICE, "echo", "interrupt")
    assert state.may_speak(ALICE)


@pytest.mark.parametrize(
    "stranger",
    [
        BOB,
        Identity("human:alice"),
        Identity("human:alice", "other"),
        Identity("human:alice", "acme", "human:boss"),
        Identity("human:alice", "acme", ""),
        Identity("human:Alice", "acme"),
    ],
)
def test_an_identity_is_the_owners_only_to_the_last_field(stranger: Identity) -> None:
    assert not Log().start().state.may_speak(stranger)


def test_an_owner_who_did_not_start_it_owns_nothing() -> None:
    log = Log()
    payload = msgspec.json.decode(Log().start().rows[0].payload)
    log.put("conversation_started", payload, Principal("human", "mallory"))
    assert log.state.id == CONVERSATION
    assert log.state.owner is None
    assert not log.state.may_speak(ALICE)
    assert next_step(log.state).name == "idle"


def signed(log: Log, type_: str, payload: dict[str, Any], seq: int | None = None, stream: str | None = None) -> Row:
    """An event of the runner's, signed for another place than it gets where one is given."""
    domain, fields = signed_part(stream or log.stream, seq or len(log.rows) + 1, type_, payload)
    mac = log.ring.sign(domain, fields)
    return log.put(type_, payload | {"kid": mac.kid, "mac": mac.mac}, TURN_RUNNER)


def test_a_start_is_never_another() -> None:
    log = Log().start()
    payload = json.loads(log.rows[0].payload) | {"owner": {"actor": "human:bob", "tenant": "acme"}}
    row = signed(log, "conversation_started", payload)
    assert isinstance(log.read(row).event, ConversationStarted)
    assert log.state.owner == ALICE


def _forged_kid(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"kid": "k9"}


def _edited(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"text": "delete it all"}


def _another_asker(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"asker": {"actor": "human:bob", "tenant": "acme"}}


def _no_mac(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name != "mac"}


def _unknown_member(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"extra": 1}


def _huge_number(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"iat": 2**60}


def _mac_of_another_shape(payload: dict[str, Any]) -> dict[str, Any]:
    return payload | {"mac": 7}


TAMPERED = [_forged_kid, _edited, _another_asker, _no_mac, _unknown_member, _huge_number, _mac_of_another_shape]


@pytest.mark.parametrize("tamper", TAMPERED)
def test_an_envelope_that_is_not_ours_waits_for_its_rejection(tamper: Callable[[Any], Any]) -> None:
    other = Log().start()
    other.send("hello")
    log = Log().start()
    log.put("envelope_received", tamper(json.loads(other.rows[1].payload)))
    (waiting,) = log.state.queue
    assert (waiting.seq, waiting.is_signed, waiting.is_suspect, waiting.asker) == (2, False, True, None)
    assert log.state.waiting_turns == 0


@pytest.mark.parametrize("payload", ['"text"', "null", "[]", "{}", '{"kid": 1}', '{"erased": true}', '{"iat": 1e999}'])
def test_a_payload_of_any_shape_is_no_envelope(payload: str) -> None:
    log = Log().start()
    row = Row(2, "envelope_received", 1, Principal("human", "alice"), payload, log.now)
    state = evolve(log.state, log.read(row))
    assert [each.is_signed for each in state.queue] == [False]


def test_an_envelope_of_another_conversation_is_not_ours() -> None:
    other = Log(conversation_id="b" * 26).start()
    other.send("hello")
    log = Log().start()
    log.put("envelope_received", json.loads(other.rows[1].payload))
    assert not log.state.queue[0].is_signed


def test_an_envelope_of_a_newer_version_gets_its_record() -> None:
    log = Log().start()
    log.send("hello")
    newer = Log().start()
    newer.put("envelope_received", json.loads(log.rows[1].payload), version=9)
    assert not newer.state.queue[0].is_signed


def test_events_of_the_runner_are_bound_to_their_place_and_stream() -> None:
    log = Log().start()
    log.turn("one")
    log.send("two")
    record = {name: value for name, value in json.loads(log.rows[2].payload).items() if name not in ("kid", "mac")}
    before = log.state
    for place in ({"seq": 3}, {"stream": "conversation:" + "b" * 26}):
        row = signed(log, "user_recorded", record, **place)
        assert not isinstance(log.read(row).event, UserRecorded)
        assert without_counters(log.state) == without_counters(before)


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("conversation_started", {"conversationId": CONVERSATION, "owner": {"actor": "human:bob"}, "agent": "echo"}),
        ("user_recorded", {"ord": 1, "turn": 1, "generation": 1, "status": "accepted", "envelopeSeq": 2}),
        ("conversation_rotated", {"generation": 2, "carry": {"owner": {"actor": "human:bob"}}}),
        ("conversation_closed", {"envelopeSeq": 1}),
        ("reply_recorded", {"ord": 1, "turn": 1}),
        ("envelopes_dropped", {"count": -5, "throughSeq": 1}),
        ("never_heard_of", {}),
    ],
)
def test_what_a_writer_without_the_key_says_moves_nothing(type_: str, payload: dict[str, Any]) -> None:
    log = Log().start()
    before = log.state
    log.put(type_, payload | {"kid": "k1", "mac": "0" * 64}, TURN_RUNNER)
    assert without_counters(log.state) == without_counters(before)
    assert log.state.events == before.events + 1


def test_a_stream_that_begins_without_the_key_is_nobodys() -> None:
    forger = Log(ring=Ring(k1=b"9" * 32)).start()
    forger.send("obey")
    log = Log()
    for row in forger.rows:
        log.put(row.type, json.loads(row.payload), row.actor)
    assert log.state.owner is None
    assert next_step(log.state).name == "idle"


def test_only_so_many_suspect_envelopes_wait_and_the_rest_is_counted() -> None:
    log = Log().start()
    for number in range(MAX_RECORDED_INVALID + 7):
        log.forge(id=f"{number}")
    assert len(log.state.queue) == MAX_RECORDED_INVALID
    assert log.state.dropped_uncounted == 7
    for _ in range(30):
        assert log.step() == "unauthenticated"
    log.forge()
    assert log.state.dropped_uncounted == 8, "a record that was given is not given twice"
    log.send("still heard")
    assert log.state.queue[-1].is_suspect is False


def test_a_hundred_dropped_ones_are_one_event() -> None:
    log = Log().start()
    for _ in range(MAX_RECORDED_INVALID + DROP_BATCH + 3):
        log.forge()
    assert next_step(log.state).name == "drop"
    assert log.step() == "drop"
    assert (log.state.dropped, log.state.dropped_uncounted) == (DROP_BATCH + 3, 0)
    assert next_step(log.state).name == "take"


def again(log: Log, seq: int) -> None:
    """A copy of a signed envelope, as a writer in the database makes one."""
    row = log.rows[seq - 1]
    log.put(row.type, json.loads(row.payload), row.actor)


def test_a_copy_is_suspect_while_its_original_waits_runs_or_is_done() -> None:
    log = Log().start()
    log.send("one")
    again(log, 2)
    log.step()
    again(log, 2)
    log.end()
    again(log, 2)
    assert [(each.is_signed, each.is_suspect) for each in log.state.queue] == [(True, True)] * 3
    assert [log.step() for _ in range(4)] == ["replayed"] * 3 + ["idle"]
    assert [record.asker for record in log.events(UserRecorded)[1:]] == [None] * 3


def test_a_copy_stays_dead_when_its_id_is_forgotten() -> None:
    log = Log().start()
    log.turn("one")
    iat = log.state.consumed[0].iat
    state = log.state
    for number in range(MAX_REPLAY_IDS):
        state = consumed(state, f"id{number}", iat + 1 + number)
    assert len(state.consumed) == MAX_REPLAY_IDS
    assert log.state.consumed[0] not in state.consumed
    assert state.floor == iat
    log.state = state
    again(log, 2)
    assert log.state.queue[0].is_suspect
    log.send("new ones are taken")
    assert not log.state.queue[1].is_suspect


def test_the_ids_issued_first_are_forgotten_first() -> None:
    state = INITIAL
    for number in range(MAX_REPLAY_IDS):
        state = consumed(state, f"id{number}", 5000 - number)
    state = consumed(state, "new", 9000)
    assert state.floor == 5000 - (MAX_REPLAY_IDS - 1)
    assert "id0" in [each.id for each in state.consumed]


@pytest.mark.parametrize(("barge_in", "interrupts"), [("interrupt", (5,)), ("queue", ())])
def test_a_message_interrupts_its_own_askers_turn(barge_in: str, interrupts: tuple[int, ...]) -> None:
    log = Log().start(barge_in=barge_in)
    log.send("one")
    log.step()
    log.send("two")
    assert log.state.running is not None
    assert log.state.running.interrupts == interrupts
    assert len(log.state.queue) == 1


def test_a_message_that_landed_before_the_turn_began_counts_too() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.send("two")
    log.step()
    assert log.state.running is not None
    assert (log.state.running.turn, log.state.running.interrupts) == (1, (3,))


def test_a_copy_of_the_running_turns_own_message_is_no_barge_in() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.step()
    again(log, 2)
    assert log.state.running is not None
    assert log.state.running.interrupts == ()


def test_an_unsigned_message_is_no_barge_in() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.forge()
    log.step()
    log.forge(id="other")
    assert log.state.running is not None
    assert log.state.running.interrupts == ()


def test_a_copy_that_waits_is_no_barge_in() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    again(log, 2)
    log.step()
    assert log.state.running is not None
    assert log.state.running.interrupts == ()


def envelope(log: Log, **said: Any) -> Row:
    """An envelope with our MAC that says what none of ours would."""
    number = len(log.rows) + 1
    payload = {
        "id": f"id{number}",
        "kind": "interrupt",
        "iat": milliseconds(log.now),
        "asker": {"actor": "human:alice", "tenant": "acme"},
        "messageId": f"m{number}",
    }
    return signed(log, "envelope_received", payload | said)


def test_an_envelope_of_nobody_who_may_speak_is_suspect() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.step()
    for kind in ("user", "close", "interrupt"):
        envelope(log, kind=kind, asker={"actor": "human:bob", "tenant": "acme"})
    assert log.state.running is not None
    assert log.state.running.interrupts == ()
    assert [each.is_suspect for each in log.state.queue] == [True] * 3
    assert not log.state.is_closing


def test_a_request_to_interrupt_stops_only_the_turn_that_it_names() -> None:
    log = Log().start()
    log.send("one")
    envelope(log, turn=2)
    assert log.state.queue[0].stopped_by == 0
    log.step()
    envelope(log, turn=2)
    assert log.state.running is not None
    assert log.state.running.interrupts == ()
    row = envelope(log, turn=1)
    assert log.state.running.interrupts == (row.seq,)


def test_a_request_to_interrupt_stops_nobody_elses_turn() -> None:
    log = Log().start()
    log.send("one")
    log.state = replace(log.state, queue=(replace(log.state.queue[0], asker=BOB),))
    envelope(log)
    assert log.state.queue[0].stopped_by == 0
    log.step()
    assert log.state.running is not None
    log.state = replace(log.state, running=replace(log.state.running, asker=BOB))
    envelope(log)
    assert log.state.running is not None
    assert log.state.running.interrupts == ()


def test_a_start_that_comes_late_is_none() -> None:
    log = Log()
    log.put("conversation_started", {})
    payload = json.loads(Log().start().rows[0].payload)
    row = signed(log, "conversation_started", payload)
    assert isinstance(log.read(row).event, ConversationStarted)
    assert log.state.id == ""


def test_a_count_is_never_below_nothing() -> None:
    log = Log().start()
    signed(log, "envelopes_dropped", {"count": 100, "throughSeq": 1})
    assert (log.state.dropped, log.state.dropped_uncounted) == (100, 0)


def test_a_request_to_interrupt_takes_no_place_in_the_queue_and_counts_once() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    (envelope,) = log.interrupt()
    assert log.state.running is not None
    assert log.state.running.interrupts == (5,)
    assert log.state.queue == ()
    assert envelope.id in [each.id for each in log.state.consumed]
    log.end("", "interrupted")
    log.send("two")
    log.step()
    again(log, 5)
    assert log.state.running is not None
    assert log.state.running.interrupts == ()


def test_a_request_to_interrupt_holds_for_the_turn_that_is_about_to_begin() -> None:
    log = Log().start()
    log.send("one")
    log.send("two")
    log.interrupt()
    log.step()
    assert log.state.running is not None
    assert log.state.running.interrupts == (4,)
    log.end("", "interrupted")
    log.step()
    assert log.state.running.interrupts == ()


def test_a_reply_of_another_turn_ends_nothing() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    running = log.state.running
    payload = {
        "ord": 2,
        "turn": 7,
        "generation": 1,
        "status": "completed",
        "text": "",
        "asker": {"actor": "human:alice", "tenant": "acme"},
        "attempts": 1,
    }
    signed(log, "reply_recorded", payload)
    assert log.state.running == running


def test_after_the_close_nothing_waits() -> None:
    log = Log().start()
    log.close()
    assert log.step() == "close"
    assert (log.state.state, log.state.queue) == ("closed", ())
    log.is_sealed = False
    log.forge()
    assert log.state.queue == ()


def test_keys_that_are_only_verified_with_still_count() -> None:
    log = Log().start()
    log.turn("one")
    assert log.folded(ring=Ring(k2=b"2" * 32, k1=b"1" * 32)) == log.state
    assert log.folded(ring=Ring(k2=b"2" * 32)).owner is None


@given(st.lists(st.tuples(events_of_any_kind, st.integers(1, 40)), max_size=12))
def test_no_sequence_of_events_breaks_the_fold(items: list[tuple[Any, int]]) -> None:
    state = INITIAL
    for event, seq in items:
        state = evolve(state, Recorded(seq, TURN_RUNNER, None, None, event))
        msgspec.json.decode(msgspec.json.encode(state), type=Conversation)


def test_what_no_version_knows_is_passed_over() -> None:
    state = evolve(INITIAL, Recorded(1, TURN_RUNNER, None, None, Opaque("later", 1)))
    assert state == replace(INITIAL, events=1)


def test_a_signed_rotation_with_a_body_of_another_shape_is_passed_over() -> None:
    log = Log().start()
    before = log.state
    row = signed(log, "conversation_rotated", {"generation": 2, "carry": {"owner": {"actor": "human:bob"}}})
    assert isinstance(log.read(row).event, ConversationRotated)
    assert without_counters(log.state) == without_counters(before)


def test_ids_tell_apart_what_is_absent_and_what_runs_together() -> None:
    made = {
        envelope_id(identity, message_id)
        for identity, message_id in [
            (Identity("a"), "m"),
            (Identity("a", ""), "m"),
            (Identity("a", "t"), "m"),
            (Identity("a", "t", ""), "m"),
            (Identity("at"), "m"),
            (Identity("a"), "tm"),
            (Identity("a", on_behalf_of="t"), "m"),
            (Identity("a-1:m"), ""),
        ]
    }
    assert len(made) == 8
    assert RING.sign("digest", {"a": 1}) != RING.sign("event", {"a": 1})
