"""What in a text is a secret: one pass for the keywords, then the rules whose keyword occurs."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .base64_runs import RUN_BEGINNING, cores_of_words, readings, runs_around
from .known import KnownSecrets, escaped_once_more
from .linear import NOTHING, Pattern, PatternSet, Span, literal
from .prefixes import beginnings_of
from .rules import CONFIGURED, CompiledRule, Finding, keyword_pattern, mask
from .views import (
    ERRORS,
    ESCAPE,
    INVISIBLE,
    View,
    escaped_words,
    escapes,
    last_escaped,
    unescaped,
    visible,
    without_open_escape,
    word_end,
)

_INVISIBLE_HIT, _ESCAPE_HIT, _BASE64_HIT = range(3)
"""Places in the set of what is looked for at once, before those of the rules."""

_MASK_BEGINS = b"[REDACTED:"

MAX_PLAIN_NAMES = 4096
MAX_PLAIN_NAME_CHARS = 64
"""Member names without a keyword that are remembered, and the longest of them."""


class Before(NamedTuple):
    """What stands before a text, as far as it decides whether a word begins there: the last byte, that of what is
    visible, and that of what is left when percent escapes are decoded; a zero for one that is not ASCII."""

    byte: bytes = b""
    visible: bytes = b""
    unescaped: bytes = b""


START = Before()
"""Nothing stands before."""


class Marked(NamedTuple):
    """A part of a text that becomes a mask, in bytes, and the place of the rule that names it."""

    start: int
    end: int
    place: int


class Matcher:
    """All rules and known secrets together. Texts are UTF-8; a lone surrogate may stand in them as its three bytes.

    A secret is found as it is, broken by invisible characters, with its percent escapes, and in Base64. A mask of one
    of the rules is no secret, and goes whole where it is part of one.
    """

    def __init__(self, rules: Sequence[CompiledRule], known: KnownSecrets) -> None:
        self._rules = rules
        self._known = known
        self._names = [CONFIGURED, *(each.rule.id for each in rules)]
        self._masks = [mask(name).encode() for name in self._names]
        self._mask = Pattern("|".join(literal(mask(name)) for name in self._names))
        self._looks: list[CompiledRule | KnownSecrets | None] = [None, None, None]
        sources = [INVISIBLE, ESCAPE, _in_base64(rules)]
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
        self._cores = Pattern(sources[_BASE64_HIT])
        self._invisible = Pattern(INVISIBLE)
        self._beginnings: Pattern | None = None
        self._plain_names: set[str] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Every id that `name` answers."""
        return tuple(self._names)

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
        """Every match, the refused ones too, in no order. A keyword within a mask counts for nothing."""
        masks = self._mask_spans(text)
        hits = self._set.found(_without(text, masks))
        if not hits:
            return []
        found = self._look(text, before.byte, hits)
        for start, view, context in self._views(text, before, hits):
            inner = self._look(view.text, context, self._set.found(view.text))
            found += [view.placed(each, start) for each in inner]
        if _BASE64_HIT in hits:
            cores = (whole for whole, *_ in self._cores.spans(text))
            found += [self._decoded(text, span) for span in runs_around(text, cores)]
        return [_around(each, masks) for each in found] if masks else found

    def joints(self, text: bytes) -> list[Finding]:
        """What a text must not be cut within, beside its matches: masks and percent escapes."""
        spans = [*self._mask_spans(text), *escapes(text)]
        return [Finding(start, end, None, 0) for start, end in spans]

    def undecided_from(self, text: bytes, before: Before) -> int:
        """Where the leftmost beginning of what could become a match starts; the length of the text if nowhere."""
        place = self._beginning(text, before.byte)
        whole = without_open_escape(text)  # which byte it will be is not known
        hits = [_INVISIBLE_HIT] if self._invisible.first(text) is not None else []
        hits += [_ESCAPE_HIT] if len(whole) < len(text) or any(escapes(text)) else []
        for start, view, context in self._views(whole, before, hits):
            # Only the last word is not over.
            if start + view.place(len(view.text)) == len(whole):
                place = min(place, start + view.place(self._beginning(view.text, context)))
        return place

    def before(self, text: bytes, before: Before) -> Before:
        """What stands behind `text`, which stands behind `before`."""
        if not text:
            return before
        byte = _context(text)
        seen = byte if byte != b"\0" else _context(visible(text).text) or before.visible
        return Before(byte, seen, _context(last_escaped(text)) or byte)

    def masked(self, text: bytes, parts: Iterable[Marked]) -> bytes:
        """The text with a mask in the place of each part."""
        pieces: list[bytes] = []
        at = 0
        for part in parts:
            pieces += [text[at : part.start], self._masks[part.place]]
            at = part.end
        return b"".join([*pieces, text[at:]])

    def _views(self, text: bytes, before: Before, hits: Sequence[int]) -> Iterator[tuple[int, View, bytes]]:
        """Other readings that may differ from the text, each with its place and with what stands before it there."""
        if _INVISIBLE_HIT in hits or before.byte != before.visible:
            yield 0, visible(text), before.visible
        words = list(escaped_words(text)) if _ESCAPE_HIT in hits else []
        if before.byte != before.unescaped and (not words or words[0][0] > 0):
            words.insert(0, (0, word_end(text)))
        for start, end in words:
            yield start, unescaped(text[start:end]), text[start - 1 : start] if start else before.unescaped

    def _look(self, text: bytes, before: bytes, hits: Sequence[int]) -> list[Finding]:
        shift = len(before)
        found: list[Finding] = []
        for look in {self._looks[hit] for hit in hits}:
            if look is not None:
                found += look.findings(before + text, shift)
        return [_shifted(each, -shift) for each in found] if shift else found

    def _decoded(self, text: bytes, span: Span) -> Finding:
        """A run that may be Base64: a secret as a whole where what it says holds one."""
        places = [
            each.place
            for reading in readings(text[span[0] : span[1]])
            for each in self._look(reading, b"", self._set.found(reading))
            if each.secret is not None
        ]
        return Finding(span[0], span[1], span if places else None, min(places, default=0))

    def _mask_spans(self, text: bytes) -> list[Span]:
        return [whole for whole, *_ in self._mask.spans(text)] if _MASK_BEGINS in text else []

    def _beginning(self, text: bytes, before: bytes) -> int:
        if self._beginnings is None:
            self._beginnings = Pattern(self._beginnings_source())
        span = self._beginnings.first(before + text, len(before))
        return len(text) if span is None else span[0] - len(before)

    def _beginnings_source(self) -> str:
        sources = [beginnings_of(each.source) for each in self._rules]
        literals = [*self._known.forms, *(mask(name) for name in self._names)]
        sources += [beginnings_of(literal(each)) for each in literals]
        sources += [beginnings_of(ESCAPE), beginnings_of(RUN_BEGINNING)]
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


def _in_base64(rules: Iterable[CompiledRule]) -> str:
    """The pattern of all keywords as they read in Base64; one that nothing matches where there are no rules."""
    cores: set[str] = set()
    for each in rules:
        words = (*each.rule.keywords, *each.rule.encoded)
        cores |= cores_of_words(words, ignores_case=each.rule.ignores_case)
    return "|".join(literal(core) for core in sorted(cores)) or NOTHING


def _without(text: bytes, masks: Sequence[Span]) -> bytes:
    """The text without what stands in masks; what is left of it does not grow together."""
    if not masks:
        return text
    ends = [0, *(end for _, end in masks)]
    starts = [*(start for start, _ in masks), len(text)]
    return b"\0".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _around(finding: Finding, masks: Sequence[Span]) -> Finding:
    start, end = _widened((finding.start, finding.end), masks)
    secret = None if finding.secret is None else _widened(finding.secret, masks)
    if secret is not None and sum(_sizes_within(secret, masks)) == secret[1] - secret[0]:
        secret = None
    return Finding(start, end, secret, finding.place)


def _widened(span: Span, masks: Sequence[Span]) -> Span:
    start, end = span
    first = bisect.bisect_right(masks, (start, end)) - 1
    if first >= 0 and masks[first][1] > start:
        start = min(start, masks[first][0])
    last = bisect.bisect_left(masks, (end, 0)) - 1
    if last >= 0 and masks[last][1] > start:
        end = max(end, masks[last][1])
    return start, end


def _sizes_within(span: Span, masks: Sequence[Span]) -> Iterable[int]:
    first = bisect.bisect_left(masks, (span[0], 0))
    last = bisect.bisect_left(masks, (span[1], 0))
    return (end - start for start, end in masks[first:last])


def _shifted(finding: Finding, by: int) -> Finding:
    secret = finding.secret
    moved = None if secret is None else (secret[0] + by, secret[1] + by)
    return Finding(finding.start + by, finding.end + by, moved, finding.place)


def _context(text: bytes) -> bytes:
    return b"\0" if text and text[-1] >= 0x80 else text[-1:]
