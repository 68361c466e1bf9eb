"""The stored JSON of every event of answers never changes.

A file under tests/golden/answers/ is written once, by hand or by running this module, and from then on only ever
read. An event that needs another shape gets another version, and both files stay.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from answer_samples import ANSWER_SAMPLES
from minutebook.domain.answers.events import ANSWER_EVENTS, AnswerEvent

GOLDEN = Path(__file__).parents[2] / "golden" / "answers"


def name_of(event: AnswerEvent) -> str:
    """The golden file of an event."""
    return f"{type(event).__name__}.v{event.version}.json"


def as_text(event: AnswerEvent) -> str:
    """An event at rest, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    stored = {"type": event.type, "version": event.version, "payload": payload}
    return json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


@pytest.mark.parametrize("event", ANSWER_SAMPLES, ids=name_of)
def test_an_event_is_stored_as_ever(event: AnswerEvent) -> None:
    assert as_text(event) == (GOLDEN / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    stored = json.loads(path.read_text("utf-8"))
    event = ANSWER_EVENTS.decode(stored["type"], stored["version"], msgspec.json.encode(stored["payload"]))
    assert f"{type(event).__name__}.v{event.version}.json" == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in ANSWER_SAMPLES} == set(ANSWER_EVENTS.declared)
    assert {name_of(event) for event in ANSWER_SAMPLES} <= {path.name for path in GOLDEN.glob("*.json")}


def main() -> None:
    """Write the files that are missing; an existing one is never touched."""
    for event in ANSWER_SAMPLES:
        path = GOLDEN / name_of(event)
        if not path.exists():
            path.write_text(as_text(event), "utf-8")


if __name__ == "__main__":
    main()
