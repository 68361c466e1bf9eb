"""What in a text is a secret: one pass for the keywords, then the rules whose keyword occurs."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .known import KnownSecrets, escaped_once_more
from .linear import Pattern, PatternSet, Span, literal
from .prefixes import beginnings_of
from .rules import CONFIGURED, CompiledRule, Finding, keyword_pattern, mask

_INVISIBLE_RANGES = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x600, 0x605), (0x61C, 0x61C), (0x6DD, 0x6DD), (0x70F, 0x70F), (0x890, 0x891)),
    *((0x8E2, 0x8E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E)),
    *((0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB)),
    *((0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A)),
    (0xE0000, 0xE0FFF),
)
INVISIBLE = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _INVISIBLE_RANGES) + "]"
"""Characters that show nothing (Unicode's format characters, fillers, variation selectors): a secret that is broken by
them is looked for without them too."""

_SPLIT = re.compile(f"({INVISIBLE}+)")
_INVISIBLE_HIT = 0

MAX_PLAIN_NAMES = 4096
MAX_PLAIN_NAME_CHARS = 64
"""Member names without a keyword that are remembered, and the longest of them."""

ERRORS = "surrogatepass"
"""How texts become bytes: half a surrogate pair may end a chunk; what to do about it is not decided here."""


class Before(NamedTuple):
    """What stands before a text, as far as it decides whether a word begins there: the last byte, and the last one of
    what is visible; a zero for one that is not ASCII."""

    byte: bytes = b""
    visible: bytes = b""


START = Before()
"""Nothing stands before."""


class Marked(NamedTuple):
    """A part of a text that becomes a mask, in bytes, and the place of the rule that names it."""

    start: int
    end: int
    place: int


class Matcher:
    """All rules and known secrets together. Texts are UTF-8; a lone surrogate may stand in them as its three bytes."""

    def __init__(self, rules: Sequence[CompiledRule], known: KnownSecrets) -> None:
        self._rules = rules
        self._known = known
        self._names = [CONFIGURED, *(each.rule.id for each in rules)]
        self._masks = [mask(name).encode() for name in self._names]
        self._looks: list[CompiledRule | KnownSecrets | None] = [None]
        sources = [INVISIBLE]
        for rule in rules:
            for keyword in rule.rule.keywords:
                for form in {keyword, escaped_once_more(keyword)}:
                    sources.append(keyword_pattern(rule.rule, form))
                    self._looks.append(rule)
        for form in known.forms:
            for each in {form, escaped_once_more(form)}:
                sources.append(literal(each))
                self._looks.append(known)
        self._set = PatternSet(sources)
        self._invisible = Pattern(INVISIBLE)
        self._beginnings: Pattern | None = None
        self._plain_names: set[str] = set()

    def name(self, place: int) -> str:
        """The id of the rule at that place."""
        return self._names[place]

    def may_hold(self, text: bytes) -> bool:
        """Whether a closer look is needed: False means that neither the text nor, where it is JSON, a string in it
        holds a secret."""
        return bool(self._set.found(text))

    def name_may_hold(self, name: str) -> bool:
        """As may_hold, for a member name: those of every payload are looked at once."""
        if name in self._plain_names:
            return False
        if self.may_hold(name.encode("utf-8", ERRORS)):
            return True
        if len(name) <= MAX_PLAIN_NAME_CHARS:
            if len(self._plain_names) >= MAX_PLAIN_NAMES:
                self._plain_names.clear()
            self._plain_names.add(name)
        return False

    def findings(self, text: bytes, before: Before = START) -> list[Finding]:
        """Every match, the refused ones too, in no order."""
        hits = self._set.found(text)
        if not hits:
            return []
        found = self._look(text, before.byte, hits)
        if _INVISIBLE_HIT in hits or before.byte != before.visible:
            view = _View(text)
            found += [view.placed(each) for each in self._look(view.text, before.visible, self._set.found(view.text))]
        return found

    def undecided_from(self, text: bytes, before: Before) -> int:
        """Where the leftmost beginning of what could become a match starts; the length of the text if nowhere."""
        place = self._beginning(text, before.byte)
        if before.byte != before.visible or self._invisible.first(text) is not None:
            view = _View(text)
            place = min(place, view.place(self._beginning(view.text, before.visible)))
        return place

    def before(self, text: bytes, before: Before) -> Before:
        """What stands behind `text`, which stands behind `before`."""
        if not text:
            return before
        byte = _context(text)
        if byte != b"\0":
            return Before(byte, byte)
        return Before(byte, _context(_View(text).text) or before.visible)

    def masked(self, text: bytes, parts: Iterable[Marked]) -> bytes:
        """The text with a mask in the place of each part."""
        pieces: list[bytes] = []
        at = 0
        for part in parts:
            pieces += [text[at : part.start], self._masks[part.place]]
            at = part.end
        return b"".join([*pieces, text[at:]])

    def _look(self, text: bytes, before: bytes, hits: Sequence[int]) -> list[Finding]:
        shift = len(before)
        found: list[Finding] = []
        for look in {self._looks[hit] for hit in hits}:
            if look is not None:
                found += look.findings(before + text, shift)
        return [_shifted(each, -shift) for each in found] if shift else found

    def _beginning(self, text: bytes, before: bytes) -> int:
        if self._beginnings is None:
            self._beginnings = Pattern(self._beginnings_source())
        span = self._beginnings.first(before + text, len(before))
        return len(text) if span is None else span[0] - len(before)

    def _beginnings_source(self) -> str:
        sources = [beginnings_of(each.source) for each in self._rules]
        sources += [beginnings_of(literal(form)) for form in self._known.forms]
        return rf"(?:{'|'.join(sources)})\z"


def marked_parts(findings: Iterable[Finding]) -> list[Marked]:
    """What becomes a mask, from left to right. Parts that overlap become one, named by the rule that comes first."""
    secrets = sorted((*each.secret, each.place) for each in findings if each.secret is not None)
    parts: list[Marked] = []
    for start, end, place in secrets:
        if parts and start < parts[-1].end:
            last = parts.pop()
            parts.append(Marked(last.start, max(last.end, end), min(last.place, place)))
        else:
            parts.append(Marked(start, end, place))
    return parts


def _shifted(finding: Finding, by: int) -> Finding:
    secret = finding.secret
    moved = None if secret is None else (secret[0] + by, secret[1] + by)
    return Finding(finding.start + by, finding.end + by, moved, finding.place)


def _context(text: bytes) -> bytes:
    return b"\0" if text and text[-1] >= 0x80 else text[-1:]


class _View:
    """A text without its invisible characters, and where each byte of it stood."""

    def __init__(self, text: bytes) -> None:
        self._length = len(text)
        self._origins: list[int] = []
        self._places: list[int] = []
        kept: list[bytes] = []
        at = length = 0
        for number, piece in enumerate(_SPLIT.split(text.decode("utf-8", ERRORS))):
            data = piece.encode("utf-8", ERRORS)
            if number % 2 == 0 and data:  # the others are the invisible ones between
                self._origins.append(at)
                self._places.append(length)
                kept.append(data)
                length += len(data)
            at += len(data)
        self.text = b"".join(kept)

    def place(self, at: int) -> int:
        """Where the byte at `at` stood; the end of the text for the end of the view."""
        if at >= len(self.text):
            return self._length
        part = bisect.bisect_right(self._places, at) - 1
        return self._origins[part] + at - self._places[part]

    def placed(self, finding: Finding) -> Finding:
        """A match in the view, as one in the text."""
        secret = finding.secret
        moved = None if secret is None else self._span(*secret)
        start, end = self._span(finding.start, finding.end)
        return Finding(start, end, moved, finding.place)

    def _span(self, start: int, end: int) -> Span:
        return self.place(start), self.place(end - 1) + 1
