"""RE2 with types: patterns and sets of literals over UTF-8 bytes, in time linear in the text whatever is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import re2 as untyped  # pyright: ignore[reportMissingTypeStubs]

re2: Any = untyped

MAX_PROGRAM_BYTES = 64 << 20
"""Memory that one compiled pattern may take for its program and its cached states, filled as it is used."""

NOTHING = r"[^\x00-\x{10FFFF}]"
"""The source of a pattern that matches no text."""

Span = tuple[int, int]
"""From and to, in bytes."""


class BadPattern(ValueError):
    """RE2 does not take the pattern. The message is RE2's own."""


class Pattern:
    """A compiled pattern; `source` is Unicode text, matched against UTF-8."""

    def __init__(self, source: str) -> None:
        try:
            self._compiled = re2.compile(source, _options())
        except re2.error as error:
            raise BadPattern(_words(error)) from None
        self.groups: int = self._compiled.groups

    def spans(self, text: bytes, start: int = 0) -> Iterator[Sequence[Span]]:
        """The spans of each match that begins at `start` or later and of its groups; (-1, -1) for one not taken.

        What stands before `start` counts for word boundaries.
        """
        for match in self._compiled.finditer(text, start):
            yield [match.span(group) for group in range(self.groups + 1)]

    def first(self, text: bytes, start: int = 0) -> Span | None:
        """Where the leftmost match is."""
        match = self._compiled.search(text, start)
        return None if match is None else match.span()

    def is_all(self, text: bytes) -> bool:
        """Whether the whole text is a match."""
        return self._compiled.fullmatch(text) is not None


class PatternSet:
    """Which of many patterns occur in a text, found in one pass."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._set = re2.Set.SearchSet(_options())
        for source in sources:
            try:
                self._set.Add(source)
            except re2.error as error:
                raise BadPattern(_words(error)) from None
        self._set.Compile()

    def found(self, text: bytes) -> Sequence[int]:
        """Places of those that occur, in no order."""
        return self._set.Match(text) or ()


def literal(text: str) -> str:
    """The pattern of exactly that text."""
    return re2.escape(text)


def _options() -> Any:
    options = re2.Options()
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False  # it would write the pattern to stderr
    return options


def _words(error: Exception) -> str:
    words = error.args[0] if error.args else "unknown error"
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
