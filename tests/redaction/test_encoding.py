"""Between decision and rows: what redaction leaves of an event is what is stored, folded, or stood in for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from minutebook.commands.encoding import encode
from minutebook.domain.errors import Invalid, TooLarge
from minutebook.domain.events import Event, Unstorable
from minutebook.domain.principals import SERVER, Principal
from minutebook.domain.redaction import KeyCollision
from minutebook.domain.rooms.context import Decision, NewEvent
from minutebook.domain.rooms.events import MessagePosted, ParticipantJoined, ToolCalled, TurnReported
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import Rule

RULES = [
    Rule(id="corp", description="ours", keywords=("corp_",), pattern="corp_[0-9]", positive=("corp_0",)),
    Rule(id="word", description="a word of the log", keywords=("started", "joined"), pattern="started|joined",
         positive=("started",)),
]  # fmt: skip
REDACTOR = Redactor(RULES)
RUN = Principal("agent", "abcdefgh")


def encoded(new: NewEvent, limit: int = 1000) -> tuple[Any, Any, list[str]]:
    """What is folded, what is stored, and the rules of its row."""
    decided = encode(Decision((new,)), REDACTOR.value, limit, lambda: "id")
    row, (_, event) = decided.rows[0], decided.events[0]
    return event, msgspec.json.decode(bytes(row.payload)), list(row.redactions)


def pushed(event: Event) -> NewEvent:
    """As a bridge pushed it."""
    return NewEvent(event, RUN, origin="harness", body=event.payload())


def call(args: Any) -> ToolCalled:
    """A call with those arguments."""
    return ToolCalled("c", "shell", args, None)


def test_what_is_folded_is_what_is_stored() -> None:
    event, payload, redactions = encoded(NewEvent(MessagePosted("see corp_1"), SERVER))
    assert event == MessagePosted("see [REDACTED:corp]")
    assert (payload["text"], redactions) == ("see [REDACTED:corp]", ["corp"])
    event, payload, redactions = encoded(NewEvent(MessagePosted("nothing"), SERVER))
    assert event == MessagePosted("nothing")
    assert (payload["text"], redactions) == ("nothing", [])


def test_the_limit_holds_for_what_is_stored() -> None:
    small = NewEvent(MessagePosted("corp_1 " * 40), SERVER)
    size = len(msgspec.json.encode(encoded(small)[1]))
    assert len(msgspec.json.encode(small.payload())) < size
    encoded(small, size)
    with pytest.raises(TooLarge):
        encoded(small, size - 1)
    event, payload, _ = encoded(pushed(MessagePosted("corp_1 " * 40)), size - 1)
    assert payload == {"oversize": True, "bytes": size, "type": "message"}
    assert event == Unstorable("message", payload)


def test_names_that_become_one() -> None:
    both = call({"corp_1": 1, "corp_2": 2})
    with pytest.raises(KeyCollision):
        encoded(NewEvent(both, SERVER))
    event, payload, redactions = encoded(pushed(both))
    assert payload == {"refused": True, "reason": "key_collision", "type": "tool_call"}
    assert (event, redactions) == (Unstorable("tool_call", payload), [])


def test_a_secret_where_a_value_must_be_exact() -> None:
    with pytest.raises(Invalid, match="leave the secret out"):
        encoded(NewEvent(ParticipantJoined("human:a", "watcher"), SERVER))
    _, payload, _ = encoded(pushed(TurnReported("abcdefgh", "t", "started")))
    assert payload == {"refused": True, "reason": "secret", "type": "turn"}
