"""What the terminal shows: the words of an entry, and nothing in them that a terminal would obey."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.infra.cli.render import MESSAGE_LINES, RESULT_LINES, entry, printable, printable_json
from rich.console import Console

HOSTILE = [
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJm\x07",
    "\x9b31m",
    "\u202ereversed\u202c",
    "\u2066isolate\u2069",
    "a\rb",
    "a\bb",
    "\x7f",
    "\u2028",
    "\ufeff",
    "\U000e0041",
]


def envelope(type_: str, payload: Any, **fields: Any) -> str:
    actor = {"kind": "human", "id": "anna", "role": "owner"}
    plain = {"v": 1, "id": "01", "seq": 3, "roomId": "aaaaaaaa", "actor": actor, "type": type_, "origin": "client",
             "ts": "2026-01-02T03:04:05.000006Z", "redactions": [], "payload": payload}  # fmt: skip
    return json.dumps(plain | fields)


def shown(data: str, *, full: bool = False) -> str:
    """As a terminal with colours gets it."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=1000)
    console.print(entry(data, full=full), soft_wrap=True)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def without_colours(text: str) -> str:
    console = Console(file=io.StringIO(), width=1000)
    console.print(entry(text), soft_wrap=True)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def message(text: str) -> str:
    return envelope("message", {"kind": "chat", "text": text, "to": [], "delivery": "none"})


@pytest.mark.parametrize("text", HOSTILE)
def test_terminal_escapes_in_a_room_are_written_out(text: str) -> None:
    for data in (
        message(f"before {text} after"),
        envelope("message", {"kind": "chat", "text": "x"}, actor={"kind": "human", "id": text, "role": text}),
        envelope("tool_call", {"callId": "1", "tool": text, "args": {"command": text}, "decidedBy": None}),
        envelope("tool_result", {"callId": "1", "status": "ok", "output": text, "truncated": False, "bytes": 3}),
        envelope("state_changed", {"kind": "harness_status", "status": text}),
        envelope(text, {"kind": text}),
    ):
        raw = without_colours(data)
        bad = [char for char in raw if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char != "\n"]
        assert bad == [], raw


def test_what_is_written_out_can_be_read() -> None:
    assert printable("a\x1b[31mb\u202ec\U000e0041") == "a\\x1b[31mb\\u202ec\\U000e0041"
    family = "tab\tline\nfamily \U0001f468\u200d\U0001f469 caf\u00e9"
    assert printable(family) == family


@given(st.text())
def test_printable_json_says_the_same_and_steers_nothing(text: str) -> None:
    made = printable_json(json.dumps({"text": text}, ensure_ascii=False))
    assert json.loads(made) == {"text": text}
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not [char for char in made if unicodedata.category(char) in hidden and char not in "\u200c\u200d"]


def test_markup_of_the_terminal_library_is_only_text() -> None:
    assert "[red]no[/red] :smile:" in without_colours(message("[red]no[/red] :smile:"))


def test_people_agents_and_the_system_have_colours_of_their_own() -> None:
    colours: set[str] = set()
    for kind in ("human", "agent", "system"):
        actor = {"kind": kind, "id": "x"}
        raw = shown(envelope("message", {"kind": "chat", "text": "words"}, actor=actor))
        found = re.search(rf"\x1b\[([0-9;]+)m{kind}:x", raw)
        assert found is not None, raw
        colours.add(found[1])
    assert len(colours) == 3


def test_long_results_and_messages_are_trimmed_unless_full() -> None:
    long = "\n".join(f"line {n}" for n in range(100))
    result = envelope("tool_result", {"callId": "1", "status": "ok", "output": long, "truncated": False, "bytes": 1})
    assert f"{100 - RESULT_LINES} more lines" in without_colours(result)
    assert f"{100 - MESSAGE_LINES} more lines" in without_colours(message(long))
    assert "line 99" in shown(result, full=True)
    assert len(without_colours(message("x" * 5000))) < 600


def test_a_restricted_entry_shows_only_that_it_is_there() -> None:
    data = json.dumps({"v": 1, "id": "01", "seq": 9, "roomId": "aaaaaaaa", "ts": "2026-01-02T03:04:05.000006Z",
                       "type": "restricted", "payload": {}})  # fmt: skip
    assert without_colours(data) == "03:04:05 #9 restricted: you are not cleared for this entry\n"


def test_an_entry_of_a_later_version_is_shown_as_it_is() -> None:
    assert '{"new": 1}' in without_colours(envelope("from_the_future", {"new": 1}))
    odd = {"kind": "chat", "text": 3}
    assert json.dumps(odd) in without_colours(envelope("message", odd))
