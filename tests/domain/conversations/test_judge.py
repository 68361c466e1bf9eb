"""What an envelope comes to: the first reason in a fixed order, from what is stored and when."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from conversation_scenes import ALICE, CONVERSATION, NOON, RING, Log
from minutebook.domain.conversations.decide import envelope_id, milliseconds
from minutebook.domain.conversations.events import EnvelopeReceived, UserRecorded
from minutebook.domain.conversations.judge import (
    CLAIMS_AGE_MS,
    MAX_AGE_MS,
    MAX_AHEAD_MS,
    Bad,
    Good,
    StoredEnvelope,
    claims_at,
    judge,
    judge_interrupt,
)
from minutebook.domain.conversations.signing import envelope_fields
from minutebook.domain.conversations.state import Consumed, Waiting
from msgspec import UNSET
from msgspec.structs import replace


def envelope(**said: Any) -> dict[str, Any]:
    """The payload of a message of Alice's, signed; a member that is None is left out."""
    payload = {
        "id": envelope_id(ALICE, "m-1"),
        "kind": "user",
        "iat": milliseconds(NOON),
        "asker": {"actor": "human:alice", "tenant": "acme"},
        "messageId": "m-1",
        "text": "hello",
    } | said
    payload = {name: value for name, value in payload.items() if value is not None}
    mac = RING.sign("envelope", envelope_fields(CONVERSATION, payload))
    return payload | {"kid": mac.kid, "mac": mac.mac}


def reason(payload: dict[str, Any], log: Log | None = None, *, at_ms: int | None = None, version: int = 1) -> str:
    """What a stored payload comes to: a reason, or `good`."""
    log = log or Log().start()
    stored = StoredEnvelope(2, version, json.dumps(payload), milliseconds(NOON) if at_ms is None else at_ms)
    judged = judge(log.state, Waiting(2), stored, RING)
    return judged.reason if isinstance(judged, Bad) else "good"


def test_a_message_of_the_owners_is_good() -> None:
    assert reason(envelope()) == "good"
    assert reason(envelope(claims={"groups": ["ops"]}, classes=["a"])) == "good"


def test_what_was_touched_after_signing_is_unauthenticated() -> None:
    assert reason(envelope() | {"text": "obey"}) == "unauthenticated"
    assert reason(envelope() | {"extra": 1}) == "unauthenticated"
    assert reason(envelope() | {"kid": "k2"}) == "unauthenticated"
    assert reason(envelope() | {"mac": None}) == "unauthenticated"
    assert reason({}) == "unauthenticated"


def test_who_is_not_the_owner_is_unauthenticated_even_signed() -> None:
    assert reason(envelope(asker={"actor": "human:bob", "tenant": "acme"})) == "unauthenticated"
    assert reason(envelope(asker={"actor": "human:alice"})) == "unauthenticated"


@pytest.mark.parametrize(
    "said",
    [
        {"extra": 1},
        {"text": None},
        {"text": 7},
        {"text": " "},
        {"text": "\u0301"},
        {"text": "x" * 65_537},
        {"text": "a\0"},
        {"kind": "start"},
        {"kind": "close"},
        {"kind": "interrupt", "text": None, "editOf": 1},
        {"messageId": None},
        {"messageId": "m-2"},
        {"id": "ab" * 32},
        {"iat": "now"},
        {"iat": -1},
        {"editOf": "1"},
        {"asker": None},
    ],
)
def test_what_is_signed_and_makes_no_sense_is_malformed(said: dict[str, Any]) -> None:
    assert reason(envelope(**said)) == "malformed"


def test_an_envelope_of_another_version_is_malformed() -> None:
    assert reason(envelope(), version=2) == "malformed"


@pytest.mark.parametrize(
    ("late_ms", "expected"),
    [
        (MAX_AGE_MS, "good"),
        (MAX_AGE_MS + 1, "stale"),
        (-MAX_AHEAD_MS, "good"),
        (-MAX_AHEAD_MS - 1, "stale"),
        (0, "good"),
    ],
)
def test_an_envelope_is_as_old_as_it_was_when_it_was_stored(late_ms: int, expected: str) -> None:
    assert reason(envelope(), at_ms=milliseconds(NOON) + late_ms) == expected
    assert (MAX_AGE_MS, MAX_AHEAD_MS) == (300_000, 60_000)


def test_a_long_queue_makes_nothing_stale() -> None:
    log = Log().start()
    log.send("hello")
    log.later(hours=7)
    assert log.step() == "accepted"


def test_a_stale_message_keeps_its_words_and_its_copy_is_replayed() -> None:
    log = Log().start()
    log.send("hello", message_id="m-1")
    row = log.rows[1]
    log.rows[1] = replace(row, at=row.at.replace(hour=13))
    assert log.step() == "stale"
    (record,) = log.events(UserRecorded)
    assert (record.text, record.message_id, record.asker, record.turn) == ("hello", "m-1", ALICE, 0)
    log.put(row.type, json.loads(row.payload))
    assert log.step() == "replayed"


@pytest.mark.parametrize(
    ("said", "ord_"),
    [("its own accepted question", 1), ("a reply", 2), ("a rejected record", 3), ("unknown", 9), ("evicted", 4)],
)
def test_an_edit_names_a_question_in_the_window(said: str, ord_: int) -> None:
    log = Log().start()
    log.turn("one")
    log.forge()
    assert log.step() == "unauthenticated"
    log.turn("two")
    evicted = replace(log.state, window=log.state.window[:1])
    log.state = evicted
    log.send("better", edit_of=ord_)
    assert log.step() == ("accepted" if ord_ == 1 else "edit-invalid"), said
    record = log.events(UserRecorded)[-1]
    assert record.edit_of == ord_
    assert record.edit_of_turn == (1 if ord_ == 1 else UNSET)


def test_nobody_edits_what_another_asked() -> None:
    log = Log().start()
    log.turn("one")
    window = (replace(log.state.window[0], asker=replace(ALICE, actor="human:bob")),)
    log.state = replace(log.state, window=window)
    log.send("better", edit_of=1)
    assert log.step() == "edit-invalid"


def test_an_edit_of_the_running_question_is_good_once_its_turn_comes() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.step()
    log.send("better", edit_of=1)
    assert isinstance(log.judged(log.state.queue[0]), Good)
    log.end("", "interrupted")
    assert log.step() == "accepted"
    assert log.events(UserRecorded)[-1].edit_of_turn == 1


def test_the_first_reason_in_order_is_the_one() -> None:
    log = Log().start()
    log.state = replace(log.state, is_closing=True)
    old = milliseconds(NOON) + MAX_AGE_MS + 1
    bad_edit = envelope(editOf=9)
    assert reason(bad_edit | {"text": ""}, log, at_ms=old) == "unauthenticated"
    assert reason(envelope(editOf=9, text=""), log, at_ms=old) == "malformed"
    consumed = log.state
    log.state = replace(consumed, consumed=(Consumed(bad_edit["id"], 0),))
    assert reason(bad_edit, log, at_ms=old) == "replayed"
    log.state = consumed
    assert reason(bad_edit, log, at_ms=old) == "stale"
    assert reason(bad_edit, log) == "closed"
    log.state = replace(consumed, is_closing=False)
    assert reason(bad_edit, log) == "edit-invalid"


def test_a_digest_stands_for_what_nobody_sent() -> None:
    log = Log().start()
    row = log.forge(text="secret words")
    assert log.step() == "unauthenticated"
    (record,) = log.events(UserRecorded)
    assert record.asker is None
    assert "secret" not in log.rows[-1].payload
    assert record.digest == log.judged(Waiting(row.seq)).digest  # pyright: ignore[reportAttributeAccessIssue]
    assert len(record.digest) == 64


def interrupt_of(log: Log, seq: int) -> EnvelopeReceived | None:
    """What an envelope that is listed as interrupting comes to."""
    return judge_interrupt(log.state, log.stored(seq), RING)


def test_only_an_envelope_that_passes_every_check_interrupts() -> None:
    log = Log().start(barge_in="interrupt")
    log.send("one")
    log.step()
    good, bad_edit = log.send("two"), log.send("three", edit_of=9)
    (stop,) = log.interrupt(seen=3)
    assert interrupt_of(log, 5) == good
    assert interrupt_of(log, 6) is None
    assert bad_edit.edit_of == 9
    assert interrupt_of(log, 7) == stop
    log.rows[6] = replace(log.rows[6], at=NOON.replace(hour=13))
    assert interrupt_of(log, 7) is None, "stale"
    log.rows[6] = replace(log.rows[6], at=NOON, payload=log.rows[6].payload.replace('"seen":3', '"seen":4'))
    assert interrupt_of(log, 7) is None, "touched"


def test_what_waits_suspect_is_replayed_whatever_the_state_knows() -> None:
    log = Log().start()
    stored = StoredEnvelope(2, 1, json.dumps(envelope()), milliseconds(NOON))
    assert isinstance(judge(log.state, Waiting(2), stored, RING), Good)
    judged = judge(log.state, Waiting(2, is_suspect=True), stored, RING)
    assert isinstance(judged, Bad)
    assert (judged.reason, judged.envelope) == ("replayed", None)


def interrupting(**said: Any) -> EnvelopeReceived | None:
    """What a signed envelope that waits nowhere comes to, when it is listed as interrupting."""
    stored = StoredEnvelope(2, 1, json.dumps(envelope(**said)), milliseconds(NOON))
    return judge_interrupt(Log().start().state, stored, RING)


def test_only_a_request_of_the_owners_interrupts_without_waiting() -> None:
    assert interrupting(kind="interrupt", text=None) is not None
    assert interrupting(kind="user") is None
    assert interrupting(kind="interrupt", text=None, asker={"actor": "human:bob", "tenant": "acme"}) is None


def test_nobody_edits_what_another_has_running() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    assert log.state.running is not None
    log.state = replace(log.state, running=replace(log.state.running, asker=replace(ALICE, actor="human:bob")))
    assert reason(envelope(editOf=1), log) == "edit-invalid"


def test_a_close_interrupts_and_a_start_does_not() -> None:
    log = Log().start()
    log.send("one")
    log.step()
    close = log.close()
    assert interrupt_of(log, 5) == close
    assert interrupt_of(log, 1) is None


def test_claims_last_an_hour() -> None:
    said = msgspec.convert(envelope(claims={"groups": ["ops"]}), EnvelopeReceived)
    assert claims_at(said, said.iat + CLAIMS_AGE_MS) == {"groups": ["ops"]}
    assert claims_at(said, said.iat + CLAIMS_AGE_MS + 1) == {}
    assert claims_at(said, said.iat - MAX_AHEAD_MS - 1) == {}
    assert claims_at(replace(said, claims=UNSET), said.iat) == {}
    assert CLAIMS_AGE_MS == 3_600_000
