"""From a pattern to the pattern of every beginning of its matches: what a stream must hold back."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_DEPTH = 50
"""Deepest nesting of groups in a rule's pattern."""

_ESCAPE = re.compile(r"\\(?:x\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|[pP](?:\{\^?\w+\}|[A-Z])|[dDsSwWnrtfvb]|[^\w])")
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\(?:[pP](?:\{\^?\w+\}|[A-Z])|x\{[0-9A-Fa-f]{1,6}\}|.)|[^\]\\])*\]")
_QUANTIFIER = re.compile(r"(?:([*+?])|\{(\d+)(,(\d*))?\})\??")
_GROUP = re.compile(r"\((?:\?(?:P?<(?P<name>\w+)>|(?P<flags>[is]*):))?")
_FLAGS = re.compile(r"\(\?([is]+)\)")
"""Only at the start of a pattern: elsewhere they would hold for a part that is easily misread."""


class UnsupportedPattern(ValueError):
    """A pattern outside of what rules may use. The message says which part, and never quotes more than a few of its
    characters."""


class Expression(NamedTuple):
    """A part of a pattern. source: the part itself, its groups not capturing. beginnings: matches every beginning of
    its matches, whole ones and the empty one included. is_char: it matches one character."""

    source: str
    beginnings: str
    is_char: bool = False


def beginnings_of(pattern: str) -> str:
    """The pattern that matches every beginning of a match of `pattern`, the whole match and nothing included.

    A word boundary at the place where the beginning is cut counts as met, since what follows is not known there.
    Raises UnsupportedPattern for what rules may not use: anchors of the text, flags other than `(?i)` and `(?s)`,
    `\\B`, `\\Q` and `\\C`.
    """
    flags = _FLAGS.match(pattern)
    parser = _Parser(pattern, 0 if flags is None else flags.end())
    found = parser.alternatives(0)
    if parser.at < len(pattern):
        raise UnsupportedPattern("it has a ) too many")
    return found.beginnings if flags is None else f"(?{flags[1]}:{found.beginnings})"


class _Parser:
    """Recursive descent over the syntax that RE2 and Python share; RE2 itself has the last word on the rest."""

    def __init__(self, pattern: str, at: int) -> None:
        self._pattern = pattern
        self.at = at

    def alternatives(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise UnsupportedPattern(f"its groups nest more than {MAX_DEPTH} deep")
        branches = [self._sequence(depth)]
        while self._peek() == "|":
            self.at += 1
            branches.append(self._sequence(depth))
        if len(branches) == 1:
            return branches[0]
        source = "|".join(branch.source for branch in branches)
        return Expression(f"(?:{source})", f"(?:{'|'.join(branch.beginnings for branch in branches)})")

    def _sequence(self, depth: int) -> Expression:
        parts: list[Expression] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(depth))
        source = "".join(part.source for part in parts)
        beginnings = ""
        for part in reversed(parts):
            beginnings = _followed(part, beginnings)
        return Expression(source, beginnings)

    def _repeated(self, depth: int) -> Expression:
        atom = self._atom(depth)
        match = _QUANTIFIER.match(self._pattern, self.at)
        if match is None:
            return atom
        self.at = match.end()
        if _QUANTIFIER.match(self._pattern, self.at) is not None:
            raise UnsupportedPattern(f"{match[0]} is followed by another repetition")
        most = _most(match)
        if most == 0:
            return Expression("", "")
        source = f"(?:{atom.source}){match[0]}"
        if atom.is_char:
            return Expression(source, f"{atom.source}*" if most is None else f"{atom.source}{{0,{most}}}")
        before = "*" if most is None else f"{{0,{most - 1}}}"
        if most == 1:
            return Expression(source, atom.beginnings)
        return Expression(source, f"(?:{atom.source}){before}{atom.beginnings}")

    def _atom(self, depth: int) -> Expression:
        char = self._peek()
        if char == "(":
            return self._group(depth)
        if char in "^$":
            raise UnsupportedPattern(f"it uses {char}: a secret may stand anywhere in a text, so bound it by \\b")
        if char in "*+?{":
            raise UnsupportedPattern(f"{char} repeats nothing")
        if char == "[":
            return self._char(_CLASS, "a [ is not closed")
        if char == "\\":
            return self._escape()
        self.at += 1
        return Expression(char, f"{char}?", True)

    def _escape(self) -> Expression:
        found = self._char(_ESCAPE, f"it uses {self._pattern[self.at : self.at + 2]}, which rules may not")
        return Expression(r"\b", "") if found.source == r"\b" else found

    def _char(self, what: re.Pattern[str], otherwise: str) -> Expression:
        match = what.match(self._pattern, self.at)
        if match is None:
            raise UnsupportedPattern(otherwise)
        self.at = match.end()
        return Expression(match[0], f"{match[0]}?", True)

    def _group(self, depth: int) -> Expression:
        opening = _GROUP.match(self._pattern, self.at)
        assert opening is not None  # noqa: S101 - the caller saw the (
        self.at = opening.end()
        if self._peek() == "?":
            raise UnsupportedPattern("it uses a kind of group that rules may not")
        inner = self.alternatives(depth + 1)
        if self._peek() != ")":
            raise UnsupportedPattern("a ( is not closed")
        self.at += 1
        flags = opening["flags"] or ""
        return Expression(f"(?{flags}:{inner.source})", f"(?{flags}:{inner.beginnings})")

    def _peek(self) -> str:
        return self._pattern[self.at : self.at + 1]


def _most(quantifier: re.Match[str]) -> int | None:
    """How often it repeats at most; None for any number."""
    sign, least, has_most, most = quantifier.groups()
    if sign is not None:
        return 1 if sign == "?" else None
    if has_most is None:
        return int(least)
    return int(most) if most else None


def _followed(part: Expression, rest: str) -> str:
    """The beginnings of `part` and what may follow it."""
    if not rest:
        return part.beginnings
    if part.is_char or part.source == r"\b":
        return f"(?:{part.source}{rest})?"
    return f"(?:{part.source}{rest}|{part.beginnings})"
