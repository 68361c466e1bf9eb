"""Redaction of a text that comes in chunks: the same result however it was cut (rules.md, law 28)."""

from __future__ import annotations

from collections.abc import Iterator

from .matcher import Before, Marked, Matcher, marked_parts
from .rules import Finding
from .views import ERRORS

MAX_HELD_BYTES = 65_536
"""What a look holds back at most, but for what comes between two places where it is asked. No stored payload is longer,
so that in a stored text every match is seen whole."""

LOOK_EVERY_BYTES = 4096
"""How often the limit is looked at, counted from the start of the text: at the same places however it was cut."""

MAX_LOOKS = 6
"""How often a text is looked at again for what comes to light beside a mask, such as a secret that was glued to another
one. What still finds something the last time takes all that follows: nobody writes such a text but to try."""

_RUN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-.~")
"""What secrets are made of: where a match was cut off by the limit, the rest of such a run goes with it."""


class Look:
    """One look at one text. `feed` hands out what is decided and holds back what could be the beginning of a secret.

    places: of the rules that took something so far, see Matcher.name.
    """

    def __init__(self, matcher: Matcher, *, is_last: bool = False) -> None:
        self.places: set[int] = set()
        self._matcher = matcher
        self._is_last = is_last
        self._is_over = False
        self._held = b""
        self._before = Before()
        self._received = 0
        self._in_run = False

    @property
    def held_bytes(self) -> int:
        """How much is held back."""
        return len(self._held)

    @property
    def is_plain(self) -> bool:
        """Whether all that came was handed out as it was."""
        return not (self.places or self._held or self._in_run)

    def feed(self, data: bytes) -> bytes:
        """The next part of the text; returns what may be shown now, which may be nothing."""
        shown: list[bytes] = []
        while data and not self._is_over:
            size = LOOK_EVERY_BYTES - self._received % LOOK_EVERY_BYTES
            while size < len(data) and data[size] & 0xC0 == 0x80:  # not within a character
                size += 1
            part, data = data[:size], data[size:]
            is_look = self._received // LOOK_EVERY_BYTES != (self._received + len(part)) // LOOK_EVERY_BYTES
            self._received += len(part)
            self._hold(part)
            shown.append(self._decided(is_look=is_look))
        return b"".join(shown)

    def finish(self) -> bytes:
        """The text is over: the rest of it."""
        return self._show(len(self._held), self._findings())

    def masked(self, text: bytes, parts: list[Marked]) -> bytes:
        """A text with these parts masked; the last look takes all that follows the first of them."""
        if parts and self._is_last:
            self._is_over = True
            self._held = b""
            parts = [Marked(parts[0].start, len(text), parts[0].place)]
        self.places |= {part.place for part in parts}
        return self._matcher.masked(text, parts)

    def skip_to(self, other: Look) -> bytes:
        """What is held back, of a text that another look handed out as it was: this one would do the same."""
        held, self._held = self._held, b""
        self._before = other._before
        self._received = other._received
        return held

    def _hold(self, part: bytes) -> None:
        if self._in_run:
            rest = next((at for at, byte in enumerate(part) if byte not in _RUN), len(part))
            if rest:
                self._before = self._matcher.before(part[:rest], self._before)
            self._in_run = rest == len(part)
            part = part[rest:]
        self._held += part

    def _decided(self, *, is_look: bool) -> bytes:
        upto = self._matcher.undecided_from(self._held, self._before)
        is_over = is_look and len(self._held) - upto > MAX_HELD_BYTES
        if upto == 0 and not is_over:
            return b""
        findings = self._findings()
        # From the right: whoever reaches over the place moves it to its own start, where others may reach over it.
        for each in sorted([*findings, *self._matcher.joints(self._held)], key=_start, reverse=True):
            if each.start < upto < each.end:
                upto = each.start
        if not is_look or len(self._held) - upto <= MAX_HELD_BYTES:
            return self._show(upto, findings)
        return self._given_up(findings)

    def _given_up(self, findings: list[Finding]) -> bytes:
        """Too much is undecided: decide it as if the text were over, but for what begins within the last look."""
        start = len(self._held) - LOOK_EVERY_BYTES
        while self._held[start] & 0xC0 == 0x80:
            start += 1
        tail = self._held[start:]
        upto = start + self._matcher.undecided_from(tail, self._matcher.before(self._held[:start], self._before))
        cut = [each for each in findings if each.secret is not None and each.secret[0] < upto <= each.secret[1]]
        if not cut:
            return self._show(upto, [each for each in findings if each.end <= upto])
        # What is cut through goes whole: the part that is here, and the rest of its run, here and to come.
        rest = self._held[upto:]
        self._held = self._held[:upto]
        shown = self._show(upto, [_ended(each, upto) for each in findings if each.start < upto])
        self._in_run = True
        self._hold(rest)
        return shown

    def _findings(self) -> list[Finding]:
        return self._matcher.findings(self._held, self._before)

    def _show(self, upto: int, findings: list[Finding]) -> bytes:
        """Let go of the text before `upto`, masked."""
        parts = marked_parts(each for each in findings if each.end <= upto)
        text, self._held = self._held[:upto], self._held[upto:]
        self._before = self._matcher.before(text, self._before)
        return self.masked(text, parts)


class StreamRedactor:
    """Redacts one text, by looks behind one another: each reads what the one before it hands out."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._looks = list(looks_at(matcher))

    @property
    def redactions(self) -> list[str]:
        """Ids of the rules that took something so far, sorted."""
        return sorted({self._matcher.name(place) for place in self.places})

    @property
    def places(self) -> set[int]:
        """Of the rules that took something so far, see Matcher.name."""
        return set[int]().union(*(look.places for look in self._looks))

    @property
    def held_bytes(self) -> int:
        """How much is held back."""
        return sum(look.held_bytes for look in self._looks)

    def feed(self, chunk: str) -> str:
        """The next part of the text; returns what may be shown now, which may be nothing."""
        data = chunk.encode("utf-8", ERRORS)
        for number, look in enumerate(self._looks, 1):
            data = look.feed(data)
            if look.is_plain:
                later = [each.skip_to(look) for each in self._looks[number:]]
                data = b"".join([*reversed(later), data])
                break
        return data.decode("utf-8", ERRORS)

    def finish(self) -> str:
        """The text is over: the rest of it."""
        data = b""
        for look in self._looks:
            data = look.feed(data) + look.finish()
        return data.decode("utf-8", ERRORS)


def looks_at(matcher: Matcher) -> Iterator[Look]:
    """Fresh looks at one text, in their order."""
    return (Look(matcher, is_last=number == MAX_LOOKS) for number in range(1, MAX_LOOKS + 1))


def _ended(finding: Finding, at: int) -> Finding:
    """A match, cut off at that place."""
    secret = finding.secret
    if secret is not None:
        secret = (secret[0], min(secret[1], at)) if secret[0] < at else None
    return Finding(finding.start, min(finding.end, at), secret, finding.place)


def _start(finding: Finding) -> int:
    return finding.start
