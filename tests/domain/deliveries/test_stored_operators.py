"""The stored JSON of every event of what operators do never changes.

A file under tests/golden/operators/ is written once, by hand or by running this module, and from then on only ever
read. An event that needs another shape gets another version, and both files stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from minutebook.domain.channels.pausing import CHANNEL_EVENTS
from minutebook.domain.deliveries.bulk import BULK_EVENTS
from operator_samples import BULK_SAMPLES, CHANNEL_SAMPLES

GOLDEN = Path(__file__).parents[2] / "golden" / "operators"
SAMPLES: tuple[Any, ...] = (*CHANNEL_SAMPLES, *BULK_SAMPLES)


def name_of(event: Any) -> str:
    """The golden file of an event."""
    return f"{type(event).__name__}.v{event.version}.json"


def as_text(event: Any) -> str:
    """An event at rest, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    stored = {"type": event.type, "version": event.version, "payload": payload}
    return json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


@pytest.mark.parametrize("event", SAMPLES, ids=name_of)
def test_an_event_is_stored_as_ever(event: Any) -> None:
    assert as_text(event) == (GOLDEN / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    stored = json.loads(path.read_text("utf-8"))
    registry = CHANNEL_EVENTS if stored["type"].startswith("channel_") else BULK_EVENTS
    event = registry.decode(stored["type"], stored["version"], msgspec.json.encode(stored["payload"]))
    assert f"{type(event).__name__}.v{event.version}.json" == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in SAMPLES} == {*CHANNEL_EVENTS.declared, *BULK_EVENTS.declared}


def main() -> None:
    """Write the files that are missing; an existing one is never touched."""
    for event in SAMPLES:
        path = GOLDEN / name_of(event)
        if not path.exists():
            path.write_text(as_text(event), "utf-8")


if __name__ == "__main__":
    main()
