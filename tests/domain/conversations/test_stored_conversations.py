"""The stored JSON and the MACs of every event of conversations and turns never change.

A file under tests/golden/conversations/ is written once, by hand or by running this module, and from then on only ever
read. An event that needs another shape gets another version, and both files stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conversation_samples import CONVERSATION_SAMPLES, TURN_SAMPLES
from conversation_scenes import RING
from minutebook.domain.conversations.events import CONVERSATION_EVENTS
from minutebook.domain.conversations.reading import signed_part
from minutebook.domain.conversations.signing import execution_id
from minutebook.domain.conversations.turn_events import TURN_EVENTS
from minutebook.domain.events import Event

GOLDEN = Path(__file__).parents[2] / "golden" / "conversations"
SAMPLES = (*CONVERSATION_SAMPLES, *TURN_SAMPLES)
LATER = {"context_decided": {"hidden"}, "attempt_started": {"asker"}, "envelope_received": {"stops"}}
"""Members that came after the file was written, and that what was stored before does not have."""

STREAM = "conversation:" + "conv" * 6 + "ab"


def name_of(event: Event) -> str:
    """The golden file of an event."""
    return f"{type(event).__name__}.v{event.version}.json"


def as_text(event: Event) -> str:
    """An event at rest, and its MAC at place 7 of a stream, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    domain, fields = signed_part(STREAM, 7, event.type, payload)
    stored: dict[str, Any] = {
        "type": event.type,
        "version": event.version,
        "payload": payload,
        "signed": RING.sign(domain, fields).mac,
    }
    return json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


@pytest.mark.parametrize("event", SAMPLES, ids=name_of)
def test_an_event_is_stored_and_signed_as_ever(event: Event) -> None:
    assert as_text(event) == (GOLDEN / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    stored = json.loads(path.read_text("utf-8"))
    registry: Any = TURN_EVENTS if any(stored["type"] == event.type for event in TURN_SAMPLES) else CONVERSATION_EVENTS
    event = registry.decode(stored["type"], stored["version"], msgspec.json.encode(stored["payload"]))
    assert f"{type(event).__name__}.v{event.version}.json" == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in CONVERSATION_SAMPLES} == set(CONVERSATION_EVENTS.declared)
    assert {type(event) for event in TURN_SAMPLES} == set(TURN_EVENTS.declared)
    assert {name_of(event) for event in SAMPLES} == {path.name for path in GOLDEN.glob("*.json")}


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


def main() -> None:
    """Write the files that are missing; an existing one is never touched."""
    GOLDEN.mkdir(exist_ok=True)
    for event in SAMPLES:
        path = GOLDEN / name_of(event)
        if not path.exists():
            path.write_text(as_text(event), "utf-8")


if __name__ == "__main__":
    main()
