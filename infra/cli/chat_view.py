"""A conversation on a terminal: what was said before, and replies word by word as they come."""

from __future__ import annotations

import sys
from typing import Any

from ..conversation_client import said
from ..sse_client import Frame
from .render import printable, remark

PROMPT = "> "
"""Before what people say."""


def prompt_of(entry: dict[str, Any]) -> str:
    """What stands before a question: who asked it, where that is somebody else. Only one's own have an id."""
    asker = entry.get("asker")
    return PROMPT if "id" in entry or asker is None else f"{asker['actor']}{PROMPT}"


def withheld(entry: dict[str, Any]) -> str | None:
    """What is said in place of a record that the viewer is not cleared for; None for every other."""
    if entry["status"] != "restricted":
        return None
    who = "somebody" if entry["asker"] is None else entry["asker"]["actor"]
    what = f"what {who} asked" if entry["role"] == "user" else f"the answer to {who}"
    return f"-- {what} is restricted: you are not cleared for it"


class ChatView:
    """Shows frames of a conversation on stdout, remarks on stderr.

    turn, offset: of the reply that is on its way, and its code points that were shown. answered: newest turn with a
    reply. outcomes: of messages by their `id`, the turn that they became, or 0 where they were rejected.
    """

    def __init__(self) -> None:
        self.turn = 0
        self.offset = 0
        self.answered = 0
        self.outcomes: dict[str, int] = {}
        self.own: set[str] = set()
        self._attempt = 0
        self._is_open = False
        self._shown = ""

    def show(self, frame: Frame) -> None:
        """One frame. Raises StreamBroken where it cannot be read."""
        data = said(frame)
        match frame.event:
            case "message" if (words := withheld(data)) is not None:
                self._withheld(data, words)
            case "message" if data["role"] == "user":
                self._question(data)
            case "message":
                self._reply(data)
            case "partial":
                self._partial(data)
            case "delta":
                if (data["turn"], data["attempt"]) != (self.turn, self._attempt):
                    self._again(data, "")
                self._words(data["text"])
            case "reset":
                self._again(data, "the reply begins anew")
            case "error":
                remark(f"-- the server had to stop the stream ({data.get('code')})")
            case "closed":
                self._end_line()
                remark(f"-- the conversation is over ({data.get('reason')})")
            case _:
                pass

    def _partial(self, data: dict[str, Any]) -> None:
        """All there is of a running reply; after a cut, most of it was shown."""
        is_known = (data["turn"], data["attempt"]) == (self.turn, self._attempt)
        if not is_known or not data["text"].startswith(self._shown):
            self._again(data, "")
        self._words(data["text"][len(self._shown) :])

    def _withheld(self, entry: dict[str, Any], words: str) -> None:
        self._end_line()
        remark(words)
        if entry["role"] == "assistant":
            self.answered = entry["turn"]

    def _question(self, entry: dict[str, Any]) -> None:
        self.outcomes[str(entry.get("id"))] = entry["turn"]
        if entry.get("id") not in self.own:
            self._end_line()
            _print(f"{prompt_of(entry)}{entry['text']}\n")
        if entry["status"] == "rejected":
            self._end_line()
            remark(f"-- not taken up: {entry.get('reason')}")

    def _reply(self, entry: dict[str, Any]) -> None:
        text = entry["text"]
        if entry["turn"] != self.turn or not text.startswith(self._shown):
            self._again(entry, "")
        self._words(text[len(self._shown) :])
        self._end_line()
        self.answered = entry["turn"]
        if entry["status"] == "failed":
            remark(f"-- failed: {entry.get('reason')}, error id {entry.get('errorId')}")
        elif entry["status"] != "completed" or entry.get("truncated"):
            remark(f"-- {'cut' if entry.get('truncated') else entry['status']}")

    def _again(self, data: dict[str, Any], why: str) -> None:
        """A reply begins, or begins anew."""
        self._end_line()
        if why:
            remark(f"-- {why}")
        self.turn, self._attempt, self.offset, self._shown = data["turn"], data.get("attempt", 0), 0, ""

    def _words(self, text: str) -> None:
        if not text:
            return
        _print(text)
        self._shown += text
        self.offset = len(self._shown)
        self._is_open = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_open:
            _print("\n")
            self._is_open = False


def _print(text: str) -> None:
    sys.stdout.write(printable(text))
    sys.stdout.flush()
