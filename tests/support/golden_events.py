"""The stored JSON of events, which never changes: a log is read for as long as it is kept.

A file under tests/golden/ is written once, by hand or by running the module of its test, and from then on only ever
read. An event that needs another shape gets another version, and both files stay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from minutebook.domain.events import Registry

GOLDEN = Path(__file__).parents[1] / "golden"


def name_of(event: Any) -> str:
    """The golden file of an event."""
    return f"{type(event).__name__}.v{event.version}.json"


def files_in(folder: Path) -> list[Path]:
    """What was ever stored there."""
    return sorted(folder.glob("*.json"))


def as_text(event: Any, **more: Any) -> str:
    """An event at rest, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    stored = {"type": event.type, "version": event.version, "payload": payload, **more}
    return json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


def read(path: Path, *registries: Registry[Any]) -> Any:
    """The event of a file, by the one of the registries that declares its type."""
    stored = json.loads(path.read_text("utf-8"))
    (registry,) = (each for each in registries if stored["type"] in {event.type for event in each.declared})
    return registry.decode(stored["type"], stored["version"], msgspec.json.encode(stored["payload"]))


def write_missing(folder: Path, events: Iterable[Any], text: Callable[[Any], str] = as_text) -> None:
    """Write the files that are missing; an existing one is never touched."""
    folder.mkdir(exist_ok=True)
    for event in events:
        path = folder / name_of(event)
        if not path.exists():
            path.write_text(text(event), "utf-8")
