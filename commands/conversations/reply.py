"""The reply of one attempt as its viewers get it: without secrets, in offsets of code points, and not too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...domain.conversations.commands import MAX_REPLY_CHARS
from .steps import separator


class TextStream(Protocol):
    """Takes the secrets out of one text that comes in pieces; the same whatever the pieces are (rules.md, law 28)."""

    @property
    def redactions(self) -> list[str]:
        """Ids of the rules that took something so far."""
        ...

    def feed(self, chunk: str) -> str:
        """The next piece; what may be shown now."""
        ...

    def finish(self) -> str:
        """The text is over: the rest of it."""
        ...


class Reply:
    """What the model says in one attempt. show: is handed each new piece with its offset.

    text: all that may be shown so far; shown: its length. What is still held back is in neither.
    """

    def __init__(self, redactor: Callable[[], TextStream], show: Callable[[int, str], None], said: str) -> None:
        """said: what the attempts before it recorded."""
        self._redactor = redactor
        self._show = show
        self._pieces = [said]
        self._answer: list[str] = []
        self._stream = redactor()
        self.shown = len(said)
        if said:
            show(0, said)

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._pieces)

    @property
    def answer(self) -> str:
        """What the present answer says so far."""
        return "".join(self._answer)

    @property
    def redactions(self) -> Sequence[str]:
        """Ids of the rules that took something out of the present answer."""
        return self._stream.redactions

    @property
    def is_full(self) -> bool:
        """Whether the reply is as long as it may be, and one more, which tells that it is cut."""
        return self.shown > MAX_REPLY_CHARS

    def begin(self) -> None:
        """A model call begins."""
        self._answer.clear()
        self._stream = self._redactor()

    def hear(self, piece: str) -> bool:
        """Some more of the answer; False where the reply is full."""
        self._add(self._stream.feed(piece.replace("\0", "")))
        return not self.is_full

    def finish(self) -> None:
        """The answer is over: what was held back is shown."""
        self._add(self._stream.finish())

    def _add(self, text: str) -> None:
        if text and not self._answer:
            mark = separator(self._pieces[-1] if self.shown else "", text)
            if mark:
                self._put(mark)
        if text := self._put(text):
            self._answer.append(text)

    def _put(self, text: str) -> str:
        text = text[: max(0, MAX_REPLY_CHARS + 1 - self.shown)]
        if text:
            at, self.shown = self.shown, self.shown + len(text)
            self._pieces.append(text)
            # The one character beyond the limit only tells that there was more.
            if seen := text[: max(0, MAX_REPLY_CHARS - at)]:
                self._show(at, seen)
        return text
