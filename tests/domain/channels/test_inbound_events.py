"""What came in, at rest: the stored JSON never changes; and who shares a conversation on a channel.

A file under tests/golden/inbound/ is written once, by hand or by running this module, and from then on only ever read.
An event that needs another shape gets another version, and both files stay.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from minutebook.domain.channels.inbound import INBOUND_EVENTS, InboundDecided, decided
from minutebook.domain.channels.messages import Place
from minutebook.domain.channels.sessions import Scope, shared
from minutebook.domain.principals import SERVER

GOLDEN = Path(__file__).parents[2] / "golden" / "inbound"

KEY = "acct" * 6 + "aa"

SAMPLES = (
    InboundDecided(
        "mess" * 6 + "aa",
        "acme",
        "telegram",
        "h:" + "0123456789abcdef" * 2,
        KEY,
        "accepted",
        "allowed",
        "01J00000000000000000000000",
        is_group=True,
        verb="link",
        conversation="conv" * 6 + "aa",
    ),
)

GROUP, OTHER_GROUP = Place("-1", is_group=True), Place("-2", is_group=True)
CHAT = Place("7")


def name_of(event: InboundDecided) -> str:
    """The golden file of an event."""
    return f"{type(event).__name__}.v{event.version}.json"


def as_text(event: InboundDecided) -> str:
    """An event at rest, readable in a diff."""
    payload = msgspec.json.decode(msgspec.json.encode(event.payload()))
    stored = {"type": event.type, "version": event.version, "payload": payload}
    return json.dumps(stored, indent=2, sort_keys=True, ensure_ascii=True) + "\n"


@pytest.mark.parametrize("event", SAMPLES, ids=name_of)
def test_an_event_is_stored_as_ever(event: InboundDecided) -> None:
    assert as_text(event) == (GOLDEN / name_of(event)).read_text("utf-8")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.name)
def test_what_was_ever_stored_is_read(path: Path) -> None:
    stored = json.loads(path.read_text("utf-8"))
    event = INBOUND_EVENTS.decode(stored["type"], stored["version"], msgspec.json.encode(stored["payload"]))
    assert f"{type(event).__name__}.v{event.version}.json" == path.name


def test_every_declared_event_has_its_file() -> None:
    assert {type(event) for event in SAMPLES} == set(INBOUND_EVENTS.declared)
    assert {name_of(event) for event in SAMPLES} <= {path.name for path in GOLDEN.glob("*.json")}


def test_a_message_s_stream_is_one_event_of_the_server() -> None:
    decision = decided(SAMPLES[0])
    (new,) = decision.events
    assert (new.event, new.actor, decision.seal) == (SAMPLES[0], SERVER, True)


@pytest.mark.parametrize(
    ("scope", "same", "others"),
    [
        ("per_user", [("tg", KEY, CHAT), ("tg", KEY, GROUP), ("sl", KEY, CHAT)], [("tg", "other", CHAT)]),
        (
            "per_user_per_conversation",
            [("tg", KEY, CHAT)],
            [("tg", KEY, GROUP), ("sl", KEY, CHAT), ("tg", "other", CHAT), ("tg", KEY, Place("7", "1"))],
        ),
        (
            "per_conversation",
            [("tg", KEY, GROUP), ("tg", "other", GROUP)],
            [("tg", KEY, OTHER_GROUP), ("sl", KEY, GROUP), ("tg", KEY, CHAT), ("tg", "other", CHAT)],
        ),
    ],
)
def test_who_shares_a_conversation(
    scope: Scope, same: list[tuple[str, str, Place]], others: list[tuple[str, str, Place]]
) -> None:
    def of(channel: str, account: str, place: Place) -> object:
        return shared(scope, "echo", channel, account, place)

    assert len({of(*each) for each in same}) == 1
    assert len({of(*each) for each in others}) == len(others)
    assert not {of(*each) for each in same} & {of(*each) for each in others}
    assert shared(scope, "echo", "tg", KEY, CHAT) != shared(scope, "ops", "tg", KEY, CHAT)


def test_only_a_group_s_own_conversation_is_the_group_s() -> None:
    assert shared("per_conversation", "echo", "tg", KEY, GROUP).of_group
    assert not shared("per_conversation", "echo", "tg", KEY, CHAT).of_group
    assert not shared("per_user", "echo", "tg", KEY, GROUP).of_group
    assert not shared("per_user_per_conversation", "echo", "tg", KEY, GROUP).of_group


def main() -> None:
    """Write the files that are missing; an existing one is never touched."""
    for event in SAMPLES:
        path = GOLDEN / name_of(event)
        if not path.exists():
            path.write_text(as_text(event), "utf-8")


if __name__ == "__main__":
    main()
