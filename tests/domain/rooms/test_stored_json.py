"""The stored JSON of every event of rooms never changes (golden_events.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from golden_events import GOLDEN, as_text, files_in, name_of, read, write_missing
from minutebook.domain.rooms.events import ROOM_EVENTS
from room_samples import FULL

FOLDER = GOLDEN


@pytest.mark.parametrize("event", FULL, ids=name_of)
def test_an_event_is_stored_as_ever(event: Any) -> None:
    assert as_text(event) == (FOLDER / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", files_in(FOLDER), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    assert name_of(read(path, ROOM_EVENTS)) == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in FULL} == set(ROOM_EVENTS.declared)
    assert {name_of(event) for event in FULL} <= {path.name for path in files_in(FOLDER)}


if __name__ == "__main__":
    write_missing(FOLDER, FULL)
