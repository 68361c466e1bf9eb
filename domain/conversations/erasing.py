"""What stays of an event of a conversation or turn once its words are erased: all that the fold needs, signed anew.

A conversation goes on without the turn (rules.md, law 10): its records keep their places, and no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .events import EnvelopeReceived, ReplyRecorded, SummaryRecorded, UserRecorded
from .reading import is_ours, signed_part
from .signing import Keyring
from .turn_events import ModelAnswered, ToolEnded

NAMING = "state_changed"
"""Type of the events that say what was erased. No fold heeds one: it is signed by nobody."""

ERASED = "isErased"
"""Member that says so, in what stays."""

_TAKEN: dict[str, tuple[str, ...]] = {
    EnvelopeReceived.type: ("text", "claims"),
    UserRecorded.type: ("text", "digest"),
    SummaryRecorded.type: ("text",),
}
_EMPTIED: dict[str, dict[str, Any]] = {
    ReplyRecorded.type: {"text": ""},
    ModelAnswered.type: {"text": "", "calls": []},
    ToolEnded.type: {"output": ""},
}

WITH_WORDS = frozenset({*_TAKEN, *_EMPTIED})
"""Types of events that hold words."""


def what_stays(keyring: Keyring, stream: str, seq: int, type_: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload without words, signed for its place with the key that signed it.

    Of what is not verifiably ours nothing stays but that it was erased: it said nothing before either. type_: one of
    WITH_WORDS.
    """
    if not is_ours(keyring, stream, seq, type_, payload):
        return {"erased": True}  # as any erased payload reads
    taken = _TAKEN.get(type_, ())
    left = {name: value for name, value in payload.items() if name not in taken}
    left |= {**_EMPTIED.get(type_, {}), ERASED: True}
    domain, fields = signed_part(stream, seq, type_, left)
    mac = keyring.sign(domain, fields, left["kid"])
    return {**left, "mac": mac.mac}
