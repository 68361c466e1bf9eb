"""The redactor: texts, JSON values and streams in; the same without secrets out, and which rules took something."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from ...domain.jsontext import MAX_PATH_CHARS
from ...domain.redaction import KeyCollision
from .known import KnownSecrets
from .matcher import Matcher, marked_parts
from .rules import Finding, Rule, compile_rules
from .stream import MAX_HELD_BYTES, Look, StreamRedactor, looks_at
from .views import ERRORS

MAX_NAMED_CHARS = 200
"""A member name that is longer says nothing about its value."""

CUT = "…"
"""Ends what was cut short for an answer: what stands before it may be the beginning of a secret."""


class Redactor:
    """One per process; its methods keep no state of what they saw, and may be called from any thread.

    Markers in a text that ask to be passed over (`gitleaks:allow`, `nosec`) have no effect.
    """

    def __init__(self, rules: Iterable[Rule], known_forms: Iterable[str] = ()) -> None:
        """Raises RuleError. known_forms: texts that are secrets as they are, see known.forms_of."""
        self._matcher = Matcher(compile_rules(rules), KnownSecrets(known_forms))
        self._encoder = msgspec.json.Encoder()

    @property
    def rule_ids(self) -> tuple[str, ...]:
        """Every id that a redaction may be named by."""
        return self._matcher.names

    def value(self, value: Any) -> tuple[Any, list[str]]:
        """A JSON value without secrets in its strings and member names, and the ids of the rules, sorted.

        The value itself is not changed; one without secrets comes back as it is. A string is also looked at as what
        its member name says it is: `{"password": ...}`. Raises KeyCollision. It is the hook of commands/ports.py.
        """
        if not self._matcher.may_hold(self._encoder.encode(value)):
            return value, []
        walk = _Walk(self._matcher)
        return walk.fresh(value, ()), walk.redactions

    def text(self, text: str) -> tuple[str, list[str]]:
        """A text without secrets, and the ids of the rules, sorted."""
        walk = _Walk(self._matcher)
        return walk.text(text), walk.redactions

    def cut_text(self, text: str) -> str:
        """A text of an answer, in which something may have been cut short: what could be the beginning of a secret
        there is left out with it."""
        *cut, last = text.split(CUT)
        return CUT.join([*(self.text(self._decided(part))[0] for part in cut), self.text(last)[0]])

    def _decided(self, part: str) -> str:
        return Look(self._matcher).feed(part.encode("utf-8", ERRORS)).decode("utf-8", ERRORS)

    def stream(self) -> StreamRedactor:
        """A redactor of one text that comes in chunks."""
        return StreamRedactor(self._matcher)


class _Walk:
    """One redaction of one value."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._places: set[int] = set()
        self._steps: list[str] = []

    @property
    def redactions(self) -> list[str]:
        return sorted({self._matcher.name(place) for place in self._places})

    def fresh(self, value: Any, names: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self.text(value, names)
        if isinstance(value, dict):
            return self._members(cast("dict[str, Any]", value))
        if isinstance(value, (list, tuple)):
            return [self._step(f"[{at}]", each, names) for at, each in enumerate(cast("list[Any]", value))]
        return value

    def _members(self, members: dict[str, Any]) -> dict[str, Any]:
        fresh: dict[str, Any] = {}
        for name, inner in members.items():
            shown = self.text(name) if self._matcher.name_may_hold(name) else name
            if shown in fresh:
                raise KeyCollision(f"${''.join(self._steps)}"[:MAX_PATH_CHARS])
            names = (name,) if shown == name else (name, shown)
            fresh[shown] = self._step(f".{shown}", inner, names)
        return fresh

    def _step(self, step: str, value: Any, names: tuple[str, ...]) -> Any:
        self._steps.append(step)
        fresh = self.fresh(value, names)
        self._steps.pop()
        return fresh

    def text(self, text: str, names: tuple[str, ...] = ()) -> str:
        """A string, which stands under these names."""
        data = text.encode("utf-8", ERRORS)
        if not self._matcher.may_hold(data) and not any(self._matcher.name_may_hold(name) for name in names):
            return text
        for look in looks_at(self._matcher):
            data = self._looked_at(data, names, look)
            self._places |= look.places
            if look.is_plain:
                break
        return data.decode("utf-8", ERRORS)

    def _looked_at(self, data: bytes, names: tuple[str, ...], look: Look) -> bytes:
        if len(data) > MAX_HELD_BYTES:
            # As a stream, whose looks at a long text are at fixed places: the same for one chunk and for many.
            return look.feed(data) + look.finish()
        findings = self._matcher.findings(data)
        for name in names:
            if len(name) <= MAX_NAMED_CHARS and self._matcher.name_may_hold(name):
                findings += self._named(data, name)
        return look.masked(data, marked_parts(findings))

    def _named(self, data: bytes, name: str) -> list[Finding]:
        """What is a secret in the value of a member because of the member's name."""
        head = name.encode("utf-8", ERRORS) + b": "
        found: list[Finding] = []
        for each in self._matcher.findings(head + data):
            if each.secret is not None and each.secret[0] >= len(head):
                secret = (each.secret[0] - len(head), each.secret[1] - len(head))
                found.append(Finding(secret[0], secret[1], secret, each.place))
        return found
