"""What a terminal shows of a shared conversation: who asked, and in whose place nothing stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from minutebook.infra.cli.chat_view import ChatView
from minutebook.infra.sse_client import Frame

CLEO = {"actor": "human:cleo", "tenant": "default"}
HIDDEN = {"cursor": "1.1", "ord": 1, "turn": 1, "status": "restricted", "asker": CLEO}
SHOWN = {"cursor": "1.1", "ord": 1, "turn": 1, "asker": CLEO, "ts": "2026-03-01T12:00:00Z", "classes": []}


def shown(view: ChatView, entry: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What stdout and stderr got of it."""
    view.show(Frame("message", json.dumps(entry), entry["cursor"]))
    said = capsys.readouterr()
    return said.out, " ".join(said.err.split())


def test_a_placeholder_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    view = ChatView()
    question = shown(view, {**HIDDEN, "role": "user"}, capsys)
    assert question == ("", "-- what human:cleo asked is restricted: you are not cleared for it")
    answer = shown(view, {**HIDDEN, "role": "assistant"}, capsys)
    assert answer == ("", "-- the answer to human:cleo is restricted: you are not cleared for it")
    assert view.answered == 1
    nobody = shown(view, {**HIDDEN, "role": "user", "asker": None, "turn": 0}, capsys)
    assert nobody == ("", "-- what somebody asked is restricted: you are not cleared for it")


def test_a_question_of_somebody_else_has_their_name(capsys: pytest.CaptureFixture[str]) -> None:
    view = ChatView()
    entry = {**SHOWN, "role": "user", "status": "accepted", "text": "how are you?"}
    assert shown(view, entry, capsys) == ("human:cleo> how are you?\n", "")
    assert shown(view, {**entry, "id": "01"}, capsys) == ("> how are you?\n", "")
