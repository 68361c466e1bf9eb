"""The stored JSON and the MACs of every event of conversations and turns never change (golden_events.py)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conversation_samples import CONVERSATION_SAMPLES, TURN_SAMPLES
from conversation_scenes import RING
from golden_events import GOLDEN, as_text, files_in, name_of, read, write_missing
from minutebook.domain.conversations.events import CONVERSATION_EVENTS
from minutebook.domain.conversations.reading import signed_part
from minutebook.domain.conversations.signing import execution_id
from minutebook.domain.conversations.turn_events import TURN_EVENTS
from minutebook.domain.events import Event

FOLDER = GOLDEN / "conversations"
SAMPLES = (*CONVERSATION_SAMPLES, *TURN_SAMPLES)
LATER = {"context_decided": {"hidden"}, "attempt_started": {"asker"}, "envelope_received": {"stops"}}
"""Members that came after the file was written, and that what was stored before does not have."""

STREAM = "conversation:" + "conv" * 6 + "ab"


def signed_text(event: Event) -> str:
    """An event at rest, and its MAC at place 7 of a stream, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    domain, fields = signed_part(STREAM, 7, event.type, payload)
    return as_text(event, signed=RING.sign(domain, fields).mac)


@pytest.mark.parametrize("event", SAMPLES, ids=name_of)
def test_an_event_is_stored_and_signed_as_ever(event: Event) -> None:
    assert signed_text(event) == (FOLDER / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", files_in(FOLDER), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    assert name_of(read(path, TURN_EVENTS, CONVERSATION_EVENTS)) == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in CONVERSATION_SAMPLES} == set(CONVERSATION_EVENTS.declared)
    assert {type(event) for event in TURN_SAMPLES} == set(TURN_EVENTS.declared)
    assert {name_of(event) for event in SAMPLES} == {path.name for path in files_in(FOLDER)}


def test_every_sample_fills_every_member() -> None:
    for event in SAMPLES:
        # isErased: what stays of an erased event is recorded by nobody.
        left_out = LATER.get(event.type, set()) | {"isErased"}
        members = {field.encode_name for field in msgspec.structs.fields(event)} - left_out
        assert set(event.payload()) == members, name_of(event)


def test_the_execution_of_a_turn_has_the_same_id_for_ever() -> None:
    found = execution_id(RING, "k1", "conv" * 6 + "ab", 5)
    assert found == execution_id(RING, None, "conv" * 6 + "ab", 5)
    assert found == "ef88fc226fa04b52eca9213df5ff72b46fb0c2adabb934a8ce1b878ac893d88f"
    assert found != execution_id(RING, "k1", "conv" * 6 + "ab", 6)


if __name__ == "__main__":
    write_missing(FOLDER, SAMPLES, signed_text)
