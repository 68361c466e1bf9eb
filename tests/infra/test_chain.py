"""The hash chain without a database: the page's example, every field covered, every kind of break found."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.infra.chain import (
    ZERO_HASH,
    Break,
    ChainEvent,
    ChainLink,
    ChainVerifier,
    canonical_text,
    commitment,
    event_hash,
    netstring,
    netstrings,
)

STREAM = "room:abcd2345"
PAGE = (Path(__file__).parents[2] / "docs/explanation/hash-chain.md").read_text("utf-8")


def block(language: str) -> str:
    """The page's first code block of a language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def make(seq: int, prev: str, payload: str = '{"kind": "chat"}', **changes: Any) -> ChainEvent:
    """An event that verifies behind `prev`."""
    salt = hashlib.sha256(b"salt %d" % seq).digest()[:16]
    fields: dict[str, Any] = {
        "seq": seq,
        "id": f"01KB7Q2W3Y5G6H7J8K9MANB{seq:03d}",
        "type": "message",
        "schema_version": 1,
        "actor_kind": "human",
        "actor_id": "zoë",
        "actor_role": "owner",
        "run_id": None,
        "caused_by": None,
        "origin": "client",
        "ts": f"2026-01-02T03:04:05.{seq:06d}Z",
        "redactions": (),
        "classes": ("hr",),
        "origin_client": None,
        "origin_key": None,
        "payload_text": payload,
        "salt": salt,
        "commitment": commitment(salt, payload),
        "prev_hash": prev,
        "hash": "",
    }
    return sealed(ChainEvent(**fields | changes))


def sealed(event: ChainEvent) -> ChainEvent:
    """The event with the hash that its content has."""
    return msgspec.structs.replace(event, hash=event_hash(STREAM, event))


def chain(count: int, **changes: Any) -> list[ChainEvent]:
    """A stream that verifies."""
    events: list[ChainEvent] = []
    for seq in range(1, count + 1):
        events.append(make(seq, events[-1].hash if events else ZERO_HASH, **changes))
    return events


def erased(event: ChainEvent) -> ChainEvent:
    """The event as the eraser leaves it."""
    return msgspec.structs.replace(event, payload_text=None, salt=None)


def verify(events: Sequence[ChainEvent], head: ChainEvent | None = None) -> Break | None:
    """The first break of a whole stream that should end with `head`, or with its last event."""
    verifier = ChainVerifier(STREAM)
    for event in events:
        verifier.add(event)
    last = head or (events[-1] if events else None)
    return verifier.finish(last.seq if last else 0, last.hash if last else ZERO_HASH)


def test_example_of_the_page() -> None:
    line = msgspec.json.decode(block("jsonl").splitlines()[1])
    event = ChainEvent(
        line["seq"],
        line["id"],
        line["type"],
        line["schemaVersion"],
        line["actor"]["kind"],
        line["actor"]["id"],
        line["actor"]["role"],
        None,
        line["causedBy"],
        line["origin"],
        line["ts"],
        line["redactions"],
        line["classes"],
        None,
        None,
        line["payloadText"],
        bytes.fromhex(line["salt"]),
        line["commitment"],
        line["prevHash"],
        line["hash"],
    )
    assert canonical_text(STREAM, event) == block("text").rstrip("\n")
    assert len(canonical_text(STREAM, event).encode()) == 347
    assert len(line["payloadText"].encode()) == 77
    assert commitment(bytes.fromhex(line["salt"]), line["payloadText"]) == line["commitment"]
    assert event_hash(STREAM, event) == line["hash"]


@given(st.lists(st.lists(st.one_of(st.none(), st.text()), max_size=4), max_size=4))
def test_netstrings_can_be_read_back(rows: list[list[str | None]]) -> None:
    """No two different sequences of values have one canonical form: the form can be parsed, deterministically."""

    def parse(octets: bytes) -> list[bytes | None]:
        values: list[bytes | None] = []
        while octets:
            size, _, rest = octets.partition(b":")
            length = int(size or b"0")
            values.append(rest[:length] if size else None)
            assert rest[length : length + 1] == b","
            octets = rest[length + 1 :]
        return values

    for row in rows:
        assert parse("".join(map(netstring, row)).encode()) == [None if v is None else v.encode() for v in row]
        texts = [value or "" for value in row]
        (inner,) = parse(netstrings(texts).encode())
        assert parse(inner or b"") == [text.encode() for text in texts]


def test_whole_chain_verifies() -> None:
    assert verify(chain(5)) is None
    assert verify([]) is None


CHANGES = {
    "id": "01KB7Q2W3Y5G6H7J8K9MANB999",
    "type": "tool_call",
    "schema_version": 2,
    "actor_kind": "agent",
    "actor_id": "bob",
    "actor_role": None,
    "run_id": "abcdefgh",
    "caused_by": 1,
    "origin": "broker",
    "ts": "2026-01-02T03:04:06.000000Z",
    "redactions": ("rule",),
    "classes": (),
    "origin_client": "x",
    "origin_key": "events:1",
    "commitment": "0" * 64,
    "hash": "1" * 64,
}


def test_every_field_is_covered() -> None:
    checked_elsewhere = {"seq", "payload_text", "salt", "prev_hash"}
    assert set(CHANGES) | checked_elsewhere == set(ChainEvent.__struct_fields__)


@pytest.mark.parametrize("field", CHANGES)
def test_edited_field_is_found(field: str) -> None:
    events = chain(3)
    events[1] = msgspec.structs.replace(events[1], **{field: CHANGES[field]})
    found = verify(events)
    assert found is not None
    assert found.seq == 2


def test_edited_payload_is_found() -> None:
    events = chain(3)
    events[1] = msgspec.structs.replace(events[1], payload_text='{"kind": "chat", "text": "no"}')
    assert verify(events) == Break(2, "The payload of event 2 is not what its commitment was made of.")


def test_payload_shifted_into_the_salt_is_found() -> None:
    events = chain(1, payload="12")
    salt = events[0].salt
    assert salt is not None
    events[0] = msgspec.structs.replace(events[0], salt=salt + b"1", payload_text="2")
    found = verify(events)
    assert found is not None
    assert "16 bytes" in found.what


def test_removed_repeated_and_moved_events_are_found() -> None:
    a, b, c = chain(3)
    assert verify([a, c]) == Break(2, "Event 2 is missing; event 3 follows event 1.")
    assert verify([b, c]) == Break(1, "Event 1 is missing; event 2 follows event 0.")
    assert verify([a, b, b, c]) == Break(2, "Event 2 comes twice.")
    assert verify([a, b, a, c]) == Break(1, "Event 1 comes after event 2.")
    assert verify([a, b], head=c) == Break(3, "Event 3 is missing; the stream should end at 3.")
    assert verify([a, b, c], head=b) == Break(3, "The stream has event 3, though it should end at 2.")


def test_rewritten_tail_is_found_by_the_head() -> None:
    a, b = chain(2)
    forged = make(2, a.hash, '{"kind": "chat", "text": "forged"}')
    assert verify([a, forged]) is None
    assert verify([a, forged], head=b) == Break(2, "The head hash is not the hash of the last event.")


def test_event_rewritten_with_its_hash_is_found_at_the_next() -> None:
    a, b, c = chain(3)
    forged = make(2, a.hash, '{"kind": "chat", "text": "forged"}')
    assert verify([a, forged, c]) == Break(3, "The previous hash of event 3 is not the hash of the event before it.")
    assert verify([a, b, c]) is None


def test_time_that_runs_back_is_found() -> None:
    a = make(1, ZERO_HASH, ts="2026-01-02T03:04:06.000000Z")
    b = make(2, a.hash, ts="2026-01-02T03:04:05.999999Z")
    assert verify([a, b]) == Break(2, "The time of event 2 is before that of the event before it.")


def test_erased_event_verifies_where_a_later_event_names_it() -> None:
    a = make(1, ZERO_HASH)
    b = make(2, a.hash)
    c = make(3, b.hash, '{"kind": "payload_erased", "erasedSeq": 2}', type="state_changed")
    verifier = ChainVerifier(STREAM)
    for event in (a, erased(b), c):
        assert verifier.add(event) is None
    assert verifier.finish(3, c.hash) is None
    assert verifier.erased == 1
    gone = verify([erased(a), erased(b), c])
    assert gone == Break(1, "The payload of event 1 is gone, and no later event erased it.")
    half = verify([a, msgspec.structs.replace(b, salt=None), c])
    assert half == Break(2, "Event 2 has a payload without a salt, or a salt without a payload.")


def test_erasure_of_an_erasure_verifies() -> None:
    a = make(1, ZERO_HASH)
    b = make(2, a.hash, '{"kind": "payload_erased", "erasedSeq": 1}', type="state_changed")
    c = make(3, b.hash, '{"kind": "payload_erased", "erasedSeq": 2}', type="state_changed")
    assert verify([erased(a), erased(b), c]) is None
    assert verify([erased(a), erased(b), erased(c)]) is not None


def test_erased_event_stays_covered() -> None:
    a, b = chain(2)
    c = make(3, b.hash, '{"kind": "payload_erased", "erasedSeq": 2}', type="state_changed")
    lied = msgspec.structs.replace(erased(b), actor_id="bob")
    assert verify([a, lied, c]) == Break(2, "The hash of event 2 is not the hash of what it says.")


def test_restricted_events_keep_their_place() -> None:
    a, b, c = chain(3)
    verifier = ChainVerifier(STREAM)
    verifier.add(a)
    assert verifier.add_restricted(ChainLink(b.seq, b.ts, b.prev_hash, b.hash)) is None
    assert verifier.add(c) is None
    assert verifier.finish(3, c.hash) is None
    assert verifier.restricted == 1
    other = ChainVerifier(STREAM)
    other.add(a)
    other.add_restricted(ChainLink(b.seq, b.ts, b.prev_hash, "f" * 64))
    assert other.add(c) == Break(3, "The previous hash of event 3 is not the hash of the event before it.")


def test_range_behind_a_known_or_unknown_hash() -> None:
    a, b, c = chain(3)
    for prev in (a.hash, None):
        verifier = ChainVerifier(STREAM, 1, prev)
        assert verifier.add(b) is None
        assert verifier.add(c) is None
        assert verifier.finish(3, c.hash) is None
    assert ChainVerifier(STREAM, 1, ZERO_HASH).add(b) is not None


@pytest.mark.parametrize("values", [["a", None], [["a"]]])
def test_list_that_the_form_does_not_cover_is_found(values: Any) -> None:
    event = msgspec.structs.replace(chain(1)[0], redactions=values)
    assert verify([event]) == Break(1, "Event 1 holds a list that is not of texts, which its hash cannot cover.")


def test_nothing_is_looked_at_behind_the_first_break() -> None:
    a, b, c = chain(3)
    verifier = ChainVerifier(STREAM)
    first = verifier.add(b)
    assert verifier.add(a) is first
    assert verifier.add_restricted(ChainLink(c.seq, c.ts, c.prev_hash, c.hash)) is first
    assert verifier.finish(3, c.hash) is first
