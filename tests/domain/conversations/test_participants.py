"""Shared conversations: who takes part, whose turn each is, and what becomes of who is taken out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conversation_scenes import ALICE, BOB, RING, STREAM, Log, everything
from gwt import Then
from minutebook.domain.conversations.carry import MAX_CARRIED_QUEUE, carry_of, read_carry
from minutebook.domain.conversations.commands import (
    AddParticipant,
    CloseConversation,
    InterruptTurn,
    RemoveParticipant,
    SendTurn,
    StartConversation,
)
from minutebook.domain.conversations.decide import close_conversation, interrupt_turn, send_turn, start
from minutebook.domain.conversations.events import (
    ClearanceRecorded,
    ConversationStarted,
    ParticipantAdded,
    ParticipantRemoved,
    UserRecorded,
)
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.judge import Good, judge_interrupt, judge_removal
from minutebook.domain.conversations.participants import add_participant, participants_of, remove_participant
from minutebook.domain.conversations.reading import signed_part
from minutebook.domain.conversations.state import (
    MAX_PARTICIPANTS,
    MAX_WAITING_PER_ASKER,
    MAX_WAITING_SHARED,
    ROTATE_TURNS,
    Waiting,
    clearance_digest,
)
from minutebook.domain.conversations.turns import accept, next_step, rotate
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.errors import Conflict, Forbidden, Full, Invalid, NotVisible, QueueFull, Sealed
from minutebook.domain.principals import Principal
from msgspec import UNSET
from msgspec.structs import replace

CAROL = Identity("human:carol", "acme")
DESK = Identity("system:desk", "acme", "human:alice")


def adding(log: Log, name: str = "human:bob", who: Identity = ALICE) -> Then:
    """A request to have somebody take part."""
    return Then(lambda: add_participant(log.state, AddParticipant(name), log.received(who)))


def removing(log: Log, name: str = "human:bob", who: Identity = ALICE) -> Then:
    """A request to take somebody out."""
    return Then(lambda: remove_participant(log.state, RemoveParticipant(name), log.received(who)))


def sending(log: Log, who: Identity) -> Then:
    """A message of somebody's."""
    return Then(lambda: send_turn(log.state, SendTurn("hello"), log.received(who)))


def add(log: Log, *names: str) -> Log:
    """Those people take part; answers the log."""
    for name in names:
        log.append(adding(log, f"human:{name}").decided())
    return log


def remove(log: Log, name: str = "bob") -> ParticipantRemoved:
    """Somebody is taken out; answers the event."""
    return log.append(removing(log, f"human:{name}").decided())[0]


def shared(*names: str, **said: Any) -> Log:
    """A shared conversation of alice's with those people in it."""
    return add(Log().start(mode="shared", **said), *names)


def test_a_shared_conversation_is_started_by_who_speaks_for_themselves() -> None:
    command = StartConversation("echo", mode="shared")
    started = ConversationStarted("c" * 26, ALICE, "echo", "shared", "queue", "", "")
    Then(lambda: start("c" * 26, command, Log().received(), ["echo"])).then(started)
    Then(lambda: start("c" * 26, command, Log().received(DESK), ["echo"])).then_refused(Forbidden)
    Then(lambda: start("c" * 26, StartConversation("echo"), Log().received(DESK), ["echo"])).decided()


def test_the_owner_adds_and_removes_and_each_once() -> None:
    log = shared()
    assert participants_of(log.state) == ["human:alice"]
    decision = adding(log).then(ParticipantAdded(BOB, ALICE, "", ""))
    assert decision.events[0].actor == Principal("human", "alice")
    add(log, "bob", "carol")
    assert participants_of(log.state) == ["human:alice", "human:bob", "human:carol"]
    adding(log).then_nothing()
    adding(log, "human:alice").then_nothing()
    removing(log, "human:dave").then_nothing()
    removing(log).then(ParticipantRemoved(BOB, ALICE, "", ""))
    remove(log)
    assert participants_of(log.state) == ["human:alice", "human:carol"]
    removing(log).then_nothing()


def test_the_owner_is_always_one_and_cannot_be_removed() -> None:
    removing(shared("bob"), "human:alice").then_refused(Conflict)


def test_a_participant_may_see_it_and_not_change_who_takes_part() -> None:
    log = shared("bob")
    for who, refusal in ((BOB, Forbidden), (CAROL, NotVisible), (DESK, NotVisible)):
        for name in ("human:carol", "human:bob", "human:alice", "nonsense"):
            adding(log, name, who).then_refused(refusal)
            removing(log, name, who).then_refused(refusal)


@pytest.mark.parametrize(
    "name",
    ["system:conversations", "system:ci", "agent:abcdefgh", "bob", "human:", "human: bob", "human:bo\u200bb", "root:x"],
)
def test_only_people_take_part(name: str) -> None:
    adding(shared(), name).then_refused(Invalid, "principal")
    removing(shared(), name).then_refused(Invalid, "principal")


def test_at_most_a_hundred_take_part() -> None:
    log = shared(*(f"p{number}" for number in range(MAX_PARTICIPANTS - 1)))
    assert len(participants_of(log.state)) == MAX_PARTICIPANTS
    adding(log).then_refused(Full)
    adding(log, "human:p7").then_nothing()
    remove(log, "p7")
    adding(log).decided()


def test_an_owner_only_conversation_has_nobody_else() -> None:
    log = Log().start()
    adding(log).then_refused(Conflict)
    removing(log).then_refused(Conflict)
    assert participants_of(log.state) == ["human:alice"]


def test_a_closed_conversation_changes_no_more() -> None:
    log = shared("bob")
    log.close()
    adding(log, "human:carol").then_refused(Sealed)
    removing(log).then_refused(Sealed)
    sending(log, BOB).then_refused(Sealed)
    adding(log, "human:carol", CAROL).then_refused(NotVisible)


def test_each_turn_is_its_askers() -> None:
    log = shared("bob")
    log.send("one")
    log.send("two", BOB)
    for who in (ALICE, BOB):
        assert log.step() == "accepted"
        running = log.state.running
        assert running is not None
        assert running.asker == who
        assert log.end().asker == who
    assert [turn.asker for turn in log.state.window] == [ALICE, BOB]


def test_only_who_takes_part_speaks() -> None:
    log = shared("bob")
    for who in (CAROL, DESK, Identity("human:bob"), Identity("human:bob", "elsewhere"), replace(BOB, on_behalf_of="x")):
        sending(log, who).then_refused(NotVisible)
        Then(lambda who=who: interrupt_turn(log.state, InterruptTurn(), log.received(who))).then_refused(NotVisible)
    sending(log, BOB).decided()


def test_shared_mode_close_is_the_owners() -> None:
    log = shared("bob")
    for who in (BOB, CAROL):
        Then(lambda who=who: close_conversation(log.state, CloseConversation(), log.received(who))).then_refused(
            NotVisible
        )
    assert log.close().asker == ALICE


def test_a_participants_close_that_somebody_signed_closes_nothing() -> None:
    log = shared("bob")
    signed(log, "close", BOB)
    assert not log.state.is_closing
    assert log.step() == "unauthenticated"
    assert log.step() == "idle"


def signed(log: Log, kind: str, who: Identity, **said: Any) -> None:
    """An envelope as no command makes one, with our MAC."""
    made = interrupt_envelope(log, who)
    fields = {**msgspec.to_builtins(made), "kind": kind, **said}
    payload = {name: value for name, value in fields.items() if name not in ("kid", "mac")}
    domain, covered = signed_part(STREAM, len(log.rows) + 1, "envelope_received", payload)
    mac = RING.sign(domain, covered)
    log.put("envelope_received", {**payload, "kid": mac.kid, "mac": mac.mac}, Principal.parse(who.actor))


def interrupt_envelope(log: Log, who: Identity) -> Any:
    """What a message of somebody's would be, without its text."""
    other = Log()
    other.owner = who
    other.now = log.now
    other.start()
    envelope = other.append(close_conversation(other.state, CloseConversation(), other.received(who)))[0]
    return msgspec.to_builtins(envelope)


def test_eight_of_one_asker_wait_and_others_wait_beside_them() -> None:
    log = shared("bob")
    for _ in range(MAX_WAITING_PER_ASKER):
        log.send("mine", BOB)
    refusal = sending(log, BOB).then_refused(QueueFull)
    assert refusal.attributes["retryAfterMs"] > 0
    assert "8 of your turns" in refusal.detail
    sending(log, ALICE).decided()
    assert log.step() == "accepted"
    sending(log, BOB).decided()


def test_what_waits_of_all_is_bounded_whoever_comes_and_goes() -> None:
    log = shared("bob")
    gone = [Waiting(number, asker=Identity(f"human:{number}", "acme"), is_removed=True) for number in range(3, 810)]
    log.state = replace(log.state, queue=tuple(gone[: MAX_WAITING_SHARED - 1]))
    sending(log, BOB).decided()
    log.state = replace(log.state, queue=tuple(gone[:MAX_WAITING_SHARED]))
    sending(log, BOB).then_refused(QueueFull)


def test_turns_are_taken_in_the_order_of_their_coming_whoever_asks() -> None:
    log = shared("bob", "carol")
    order = [BOB, ALICE, CAROL, BOB, ALICE]
    for number, who in enumerate(order):
        log.send(f"{number}", who)
    for _ in order:
        assert log.step() == "accepted"
        log.end()
    assert [each.asker for each in log.events(UserRecorded)] == order


@pytest.mark.parametrize("barge_in", ["queue", "interrupt"])
def test_nobody_interrupts_anothers_turn(barge_in: str) -> None:
    log = shared("bob", barge_in=barge_in)
    log.send("one")
    assert log.step() == "accepted"
    log.send("two", BOB)
    Then(lambda: interrupt_turn(log.state, InterruptTurn(), log.received(BOB))).then_nothing()
    assert log.state.running is not None
    assert log.state.running.interrupts == ()
    log.send("three")
    assert len(log.state.running.interrupts) == (barge_in == "interrupt")


def test_nobody_stops_the_turn_of_another_that_is_about_to_begin() -> None:
    log = shared("bob")
    log.send("one")
    Then(lambda: interrupt_turn(log.state, InterruptTurn(), log.received(BOB))).then_nothing()


def test_what_waits_of_a_removed_participant_is_rejected_with_its_record() -> None:
    log = shared("bob")
    sent = log.send("two", BOB)
    remove(log)
    assert log.step() == "not-a-participant"
    (record,) = log.events(UserRecorded)
    assert (record.status, record.reason, record.asker, record.text, record.id) == (
        "rejected", "not-a-participant", BOB, "two", sent.id,
    )  # fmt: skip
    assert log.state.queue == ()
    assert log.state.invalid == 0


def test_coming_back_brings_nothing_back() -> None:
    log = shared("bob")
    log.send("before", BOB)
    remove(log)
    add(log, "bob")
    log.send("after", BOB)
    assert log.step() == "not-a-participant"
    assert log.step() == "accepted"
    assert log.events(UserRecorded)[-1].text == "after"


def test_a_removal_between_judging_and_taking_up_wins() -> None:
    log = shared("bob")
    log.send("two", BOB)
    good = log.judged(log.state.queue[0])
    assert isinstance(good, Good)
    remove(log)
    assert accept(log.state, good, everything(log.state)) == Decision()
    add(log, "bob")
    assert accept(log.state, good, everything(log.state)) == Decision()


def test_a_removal_interrupts_the_running_turn_of_theirs_and_no_others() -> None:
    log = shared("bob", "carol")
    log.send("one", BOB)
    assert log.step() == "accepted"
    other = remove(log, "carol")
    assert log.state.running is not None
    assert log.state.running.interrupts == ()
    assert not judge_removal(log.state, other)
    removed = remove(log)
    assert log.state.running.interrupts == (len(log.rows),)
    assert judge_removal(log.state, removed)
    assert judge_interrupt(log.state, log.stored(len(log.rows)), RING) is None, "it is no envelope"


def test_a_removal_that_nobody_signed_or_that_another_made_is_none() -> None:
    log = shared("bob", "carol")
    payload = msgspec.to_builtins(ParticipantRemoved(BOB, ALICE, "k1", "0" * 64))
    log.put(ParticipantRemoved.type, payload)
    by_carol = ParticipantRemoved(BOB, CAROL, "", "")
    log.append(Decision((NewEvent(by_carol, Principal("human", "carol")),)))
    as_alice = ParticipantRemoved(BOB, ALICE, "", "")
    log.append(Decision((NewEvent(as_alice, Principal("human", "carol")),)))
    assert log.state.may_speak(BOB)


def test_what_came_before_somebody_took_part_is_nobodys() -> None:
    log = shared()
    signed(log, "user", BOB, text="hello")
    assert log.state.queue[0].is_suspect
    add(log, "bob")
    assert log.step() == "unauthenticated"
    (record,) = log.events(UserRecorded)
    assert (record.asker, record.text) == (None, UNSET)


def test_a_close_rejects_what_waits_of_all() -> None:
    log = shared("bob", "carol")
    log.send("one", BOB)
    log.send("two", CAROL)
    remove(log)
    log.close()
    reasons: list[str] = []
    while not log.is_sealed:
        reasons.append(log.step())
    assert reasons == ["not-a-participant", "closed", "close"]


def test_a_rotation_keeps_who_takes_part_and_what_they_are_cleared_for() -> None:
    log = shared("bob", "carol")
    log.append(Decision((NewEvent(ClearanceRecorded(BOB, ("secret",), "0" * 16, "", ""), Principal("system", "x")),)))
    log.send("waits", CAROL)
    remove(log, "carol")
    before = log.state
    log.state = replace(log.state, generation_turns=ROTATE_TURNS)
    assert log.step() == "rotate"
    for name in ("participants", "clearances", "queue"):
        assert getattr(log.state, name) == getattr(before, name)
    assert log.state.clearances == {next(iter(before.clearances)): clearance_digest(("secret",), "0" * 16)}
    assert log.folded(after=len(log.rows) - 1) == log.state
    assert log.step() == "not-a-participant"


FAULTS: list[dict[str, Any]] = [
    {"mode": "owner"},
    {"participants": [{"actor": "human:bob", "tenant": "acme"}] * 2},
    {"participants": [{"actor": "human:alice", "tenant": "acme"}]},
    {"participants": [{"actor": "human:bob", "tenant": "elsewhere"}]},
    {"participants": [{"actor": "human:bob"}]},
    {"participants": [{"actor": "system:conversations", "tenant": "acme"}]},
    {"participants": [{"actor": "human:bob", "tenant": "acme", "onBehalfOf": "human:alice"}]},
    {"participants": [{"actor": f"human:{number}", "tenant": "acme"} for number in range(MAX_PARTICIPANTS)]},
    {"owner": None},
    {"clearances": {"0" * 31: "0" * 16}},
    {"clearances": {"0" * 32: "x"}},
    {"clearances": {f"{number:032x}": "0" * 16 for number in range(MAX_PARTICIPANTS + 1)}},
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_carry_with_people_that_cannot_be_is_none(fault: dict[str, Any]) -> None:
    carry = msgspec.to_builtins(carry_of(shared("bob").state), str_keys=True)
    assert read_carry(carry, 2, 9) is not None
    assert read_carry({**carry, **fault}, 2, 9) is None


def test_a_clearance_of_who_is_gone_is_not_carried() -> None:
    state = replace(shared("bob").state, clearances={"0" * 32: "1" * 16})
    assert carry_of(state).clearances == {}


def test_a_rotation_waits_until_what_waits_has_room_in_a_carry() -> None:
    """Longest names: what waits of all askers is more than a carry holds."""
    log = shared("bob")
    due = replace(log.state, generation_turns=ROTATE_TURNS)
    names = [Identity("human:" + f"{number:04}" * 60, "a" * 200) for number in range(MAX_CARRIED_QUEUE)]
    waiting = tuple(Waiting(seq, "i" * 64, "user", 1, who) for seq, who in enumerate(names, 3))
    crowded = replace(due, queue=waiting[:MAX_WAITING_SHARED])
    assert next_step(due).name == "rotate"
    assert next_step(crowded).name == "take"
    assert rotate(crowded) == Decision()
    assert next_step(replace(due, queue=waiting[:100])).name == "rotate"
