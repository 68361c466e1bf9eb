"""The handlers of rooms on a database of a test's own, without a server around them."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from appender_helpers import Pool
from minutebook.commands.beside import Beside
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.ports import no_redaction
from minutebook.commands.room_handling import Means
from minutebook.commands.rooms import Rooms
from minutebook.domain.rooms.context import Limits
from minutebook.infra.postgres.forks import PostgresForks
from minutebook.infra.postgres.holds import PostgresHolds
from minutebook.infra.postgres.store import PostgresStore
from ulid_transform import ulid_now


def means_of(**fields: Any) -> Means:
    """Default limits of a room and no redaction; `fields` win."""
    defaults: dict[str, Any] = {
        "limits": Limits(),
        "redact": no_redaction,
        "new_id": ulid_now,
        "entropy": lambda: secrets.randbits(40),
        "now": lambda: datetime.now(UTC),
        "tool_classes": {},
    }
    return Means(**{**defaults, **fields})


def rooms_on(store: PostgresStore, pool: Pool, **fields: Any) -> Rooms:
    """The handlers with `means_of(**fields)`, and no limit on principals."""
    beside = Beside(store, PostgresForks(pool), PostgresHolds(pool), lambda _: lambda: None, lambda *_: None)
    return Rooms(Dispatcher(store, Fingerprints(b"k" * 32), Bounds()), means_of(**fields), beside)
