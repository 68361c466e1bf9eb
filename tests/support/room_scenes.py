"""People, runs and rooms that the tests of the room aggregate share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from gwt import Given
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER, Caller, Principal
from minutebook.domain.rooms.bridge import RawItem, check_items, record_items
from minutebook.domain.rooms.context import Context, Limits, NewEvent
from minutebook.domain.rooms.events import MemberSpec, ParticipantJoined, RoomOpened, RunStarted
from minutebook.domain.rooms.state import INITIAL, evolve

ROOM = "abcd2345"
OTHER_ROOM = "zzzz7777"
TENANT = "acme"
RUN = "runrunaa"
NEXT_RUN = "runrunbb"
FRESH_RUN = "freshrun"
FRESH_ULID = "01J0000000000000000000FRESH"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def human(name: str, **fields: Any) -> Caller:
    """A person of the room's tenant, with no group unless `fields` say so."""
    given_fields: dict[str, Any] = {"tenant": TENANT, **fields}
    return Caller(Principal("human", name), **given_fields)


def agent(run_id: str = RUN, **fields: Any) -> Caller:
    """The bridge of a run, with a token for the room."""
    given_fields: dict[str, Any] = {"tenant": TENANT, "room_id": ROOM, **fields}
    return Caller(Principal("agent", run_id), **given_fields)


OWNER = human("olga")
COLLABORATOR = human("carl")
WATCHER = human("wanda")
STRANGER = human("sten")
MEMBER_OF_GROUP = human("mia", is_member=True)
ADMIN = human("ada", is_admin=True)
AUDITOR = human("audrey", is_auditor=True)
SYSTEM = Caller(Principal("system", "triage"), TENANT)
SWEEP = Caller(SERVER, TENANT)
RUNNING = agent()

OPENED = RoomOpened(
    owner="human:olga",
    driver="human:olga",
    data_class="internal",
    retention="90d",
    members=(MemberSpec("human:carl", "collaborator"), MemberSpec("human:wanda", "watcher")),
)
"""A room of olga, who owns and drives it, with carl and wanda."""

STARTED = (ParticipantJoined(f"agent:{RUN}", "implementer"), RunStarted(RUN, "implementer"))
"""What a first hello records."""


def given(*events: Any) -> Given:
    """A room after these events."""
    return Given(evolve, INITIAL, events)


def asked(
    decision: Callable[[Any, Any, Context], Any],
    command: Any,
    caller: Caller,
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    stored_bytes: int = 0,
    now: datetime = NOW,
) -> Callable[[Any, int], Any]:
    """A decision, ready for `when`: its command and who asks."""

    def decide(room: Any, version: int) -> Any:
        return decision(room, command, context_of(caller, version, stored_bytes, limits, now=now))

    return decide


def context_of(
    caller: Caller,
    version: int,
    stored_bytes: int = 0,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    *,
    now: datetime = NOW,
) -> Context:
    """What a decision is told in these scenes."""
    return Context(caller, ROOM, TENANT, now, version, stored_bytes, limits, fresh_id=FRESH_RUN, fresh_ulid=FRESH_ULID)


def said(event: Any, by: Caller, run_id: str | None = None) -> Any:
    """An event that somebody's command left in the log."""
    return NewEvent(event, by.principal, run_id=run_id)


def pushed(key: str, event: Any, run_id: str = RUN) -> Recorded[Any]:
    """An event as a run's bridge left it in the log; `key` is `events:<n>` or `status:<n>`."""
    return Recorded(0, Principal("agent", run_id), run_id, key, event)


def pushing(
    *items: tuple[str, str, Any],
    caller: Caller = RUNNING,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    tool_classes: dict[str, str] | None = None,
) -> Callable[[Any, int], Any]:
    """A batch of a bridge, ready for `when`: each item is its key, its type, and its payload (bytes are raw JSON)."""

    def decide(room: Any, version: int) -> Any:
        raw = [raw_item(*item) for item in items]
        checked = check_items(raw, caller.principal.id, limits.payload_bytes)
        return record_items(room, checked, context_of(caller, version, 0, limits), tool_classes or {})

    return decide


def raw_item(key: str, type_: str, payload: Any, caused_by: int | None = None) -> RawItem:
    """One pushed item as the route decodes it."""
    stream, _, number = key.partition(":")
    text = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    return msgspec.convert(
        {"stream": stream, "seq": int(number), "type": type_, "payload": msgspec.Raw(text), "causedBy": caused_by},
        RawItem,
    )
