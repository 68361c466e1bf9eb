"""The rules: one data file, and an operator's own in the same form; what each takes for a secret."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta

from .linear import BadPattern, Pattern, Span, literal
from .prefixes import UnsupportedPattern, beginnings_of

CONFIGURED = "configured-secret"
"""The rule of secrets that are known by their value: no file may use the id."""

MAX_RULES = 500
MAX_PATTERN_CHARS = 4000
MAX_KEYWORDS = 50

JOINT = "¦"
"""Taken out of examples: with it, no scanner of repositories takes an example for a leak."""

OPENED, CLOSED = "«", "»"
"""Around what a positive example loses; without them it only has to lose something."""

EDGE = r"(?:\b|\\[nrt]|\\u00[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2})"
"""Where a word begins: also behind an escaped character, as in a JSON text within a JSON text."""

REST = r"(?:\b|\w*)"
"""A word goes whole: what is glued to a secret would else begin a word where it did not before."""

_PLACEHOLDER = Pattern(
    r"(?i)(?:x{3,}|\*+|\.{3,}|-+|<.*|\{.*|\(.*|\$\{.*|\$\(.*|\$[a-z_][a-z0-9_]*|%\(.*|%[a-z_]{1,40}%?"
    r"|(?:your|example|sample|dummy|fake|placeholder|insert|enter|replace|change[-_]?(?:me|it|this))(?:[-_ .].*)?"
    r"|(?:db|user|my|your|new|old|test|root|admin)?[-_]?(?:pass|passwd|password|pwd|secret|token|key|api[-_]?key)"
    r"|none|null|nil|undefined|true|false|string|redacted|masked|hidden|required|optional|empty|todo|tbd"
    r"|[a-z][a-z0-9+.-]*://.*|(?:[a-z_]+[0-9]{0,2}\.)+[a-z_]+[0-9_]{0,3})"
)
"""What people write where a secret would stand, and what refers to one without being it."""

_SPECIAL = frozenset(b"0123456789!#%&*+?@^~=|$")


class RuleError(ValueError):
    """Rules that cannot be used. The message names the rule and what to do; it is safe to show."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """One kind of secret. What its pattern matches, or the pattern's first group that took part, becomes the mask.

    A text is looked at by the pattern only where it holds one of the keywords; their case counts unless the pattern
    holds `(?i`. edge: a match begins where a word begins. entropy: least Shannon entropy of the secret, in bits a
    character. mixed: the secret has a letter, and a digit or a special character. placeholders: what only stands for a
    secret (`changeme`, `<token>`, `${TOKEN}`) is left alone. encoded: words to look for in Base64 beside the keywords,
    for keywords of 2 bytes and for those that are written in mixed case.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,63}(?![\s\S])")]
    description: Annotated[str, Meta(min_length=1, max_length=400)]
    keywords: Annotated[tuple[Annotated[str, Meta(min_length=2)], ...], Meta(min_length=1, max_length=MAX_KEYWORDS)]
    pattern: Annotated[str, Meta(min_length=1, max_length=MAX_PATTERN_CHARS)]
    edge: bool = False
    entropy: Annotated[float, Meta(ge=0, le=8)] = 0.0
    mixed: bool = False
    placeholders: bool = False
    encoded: Annotated[tuple[Annotated[str, Meta(min_length=3)], ...], Meta(max_length=MAX_KEYWORDS)] = ()
    positive: Annotated[tuple[str, ...], Meta(min_length=1)]
    negative: tuple[str, ...] = ()

    @property
    def ignores_case(self) -> bool:
        """Whether the case of the keywords counts for nothing."""
        return "(?i" in self.pattern


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: Annotated[tuple[Rule, ...], Meta(max_length=MAX_RULES)] = ()


class Finding(msgspec.Struct, frozen=True):
    """A match in a text, in bytes. secret: what of it becomes the mask; None where it was no secret after all."""

    start: int
    end: int
    secret: Span | None
    place: int


class CompiledRule:
    """A rule that is ready to match. place: the lower, the more it has to say where two rules meet.

    Raises RuleError where the pattern is not one that rules may use.
    """

    def __init__(self, rule: Rule, place: int) -> None:
        self.rule = rule
        self.place = place
        source = rule.pattern
        try:
            if not Pattern(source).groups:
                source = f"((?:{source}){REST})"
            self.source = f"{EDGE}(?:{source})" if rule.edge else source
            self._pattern = Pattern(self.source)
            beginnings_of(self.source)
        except (BadPattern, UnsupportedPattern) as error:
            raise RuleError(f"redaction rule {rule.id}: its pattern cannot be used: {error}.") from None
        if self._pattern.first(b"") is not None:
            raise RuleError(f"redaction rule {rule.id}: its pattern matches the empty text; let it ask for something.")

    def findings(self, text: bytes, start: int) -> list[Finding]:
        """The matches that begin at `start` or later, the refused ones too, from left to right."""
        found: list[Finding] = []
        for whole, *groups in self._pattern.spans(text, start):
            secret = next((group for group in groups if group[0] >= 0), whole)
            accepted = secret if self._is_secret(text[secret[0] : secret[1]]) else None
            found.append(Finding(whole[0], whole[1], accepted, self.place))
        return found

    def _is_secret(self, secret: bytes) -> bool:
        rule = self.rule
        if not secret:
            return False
        if rule.mixed and (_SPECIAL.isdisjoint(secret) or not any(97 <= byte | 32 <= 122 for byte in secret)):
            return False
        if rule.entropy and entropy(secret) < rule.entropy:
            return False
        return not (rule.placeholders and _PLACEHOLDER.is_all(secret))


def mask(rule_id: str) -> str:
    """What stands in the place of a secret."""
    return f"[REDACTED:{rule_id}]"


def entropy(secret: bytes) -> float:
    """Shannon entropy in bits a byte: 0 for one byte repeated, at most log2 of the length."""
    counts = Counter(secret).values()
    return -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts)


def is_placeholder(text: str) -> bool:
    """Whether a text only stands for a secret."""
    return _PLACEHOLDER.is_all(text.encode("utf-8", "replace"))


@functools.cache
def shipped_rules() -> tuple[Rule, ...]:
    """The rules that come with the server."""
    return parse_rules(resources.files(__package__ or "").joinpath("rules.toml").read_text("utf-8"), "rules.toml")


def parse_rules(toml: str, label: str) -> tuple[Rule, ...]:
    """The rules of a file's text. Raises RuleError, which names the file by `label`, where it is not of that form."""
    try:
        return msgspec.convert(tomllib.loads(toml), _File).rules
    except tomllib.TOMLDecodeError as error:
        raise RuleError(f"{label}: is not TOML: {error}.") from None
    except msgspec.ValidationError as error:
        raise RuleError(f"{label}: {error}.") from None


def compile_rules(rules: Iterable[Rule]) -> list[CompiledRule]:
    """The rules, ready to match, in their order; the first is at place 1. Raises RuleError for an id that is taken."""
    compiled: list[CompiledRule] = []
    seen = {CONFIGURED}
    for place, rule in enumerate(rules, 1):
        if rule.id in seen:
            raise RuleError(f"redaction rule {rule.id}: the id is taken; choose another one.")
        seen.add(rule.id)
        compiled.append(CompiledRule(rule, place))
    return compiled


def check_rules(rules: Sequence[Rule]) -> None:
    """Whether an operator's rules can be used beside the shipped ones. Raises RuleError."""
    if rules:
        for compiled in compile_rules([*rules, *shipped_rules()])[: len(rules)]:
            check_examples(compiled)


def check_examples(compiled: CompiledRule) -> None:
    """Raises RuleError where the rule does not do to its examples what they say."""
    rule = compiled.rule
    for number, example in enumerate(rule.positive, 1):
        text, wanted = marked(example)
        taken = [each for each in compiled.findings(text, 0) if each.secret is not None]
        where = f"redaction rule {rule.id}: positive example {number}"
        if not taken:
            raise RuleError(f"{where} is not matched; correct the pattern, the entropy or the example.")
        if wanted and [each.secret for each in taken] != wanted:
            raise RuleError(f"{where} loses something else than what stands between {OPENED} and {CLOSED}.")
        if not all(_has_keyword(rule, text[each.start : each.end]) for each in taken):
            raise RuleError(f"{where}: no keyword stands in what is matched, so that it would not be looked at.")
    for number, example in enumerate(rule.negative, 1):
        if any(each.secret is not None for each in compiled.findings(marked(example)[0], 0)):
            raise RuleError(f"redaction rule {rule.id}: negative example {number} is matched; correct one of them.")


def marked(example: str) -> tuple[bytes, Sequence[Span]]:
    """An example's text, and what it says is lost."""
    spans: list[Span] = []
    text = b""
    for part in re.split(f"({OPENED}[^{CLOSED}]*{CLOSED})", example.replace(JOINT, "")):
        piece = part.strip(OPENED + CLOSED).encode()
        if part.startswith(OPENED):
            spans.append((len(text), len(text) + len(piece)))
        text += piece
    return text, spans


def keyword_pattern(rule: Rule, keyword: str) -> str:
    """The pattern of a keyword for the first look."""
    return f"(?i:{literal(keyword)})" if rule.ignores_case else literal(keyword)


def _has_keyword(rule: Rule, match: bytes) -> bool:
    return any(Pattern(keyword_pattern(rule, keyword)).first(match) is not None for keyword in rule.keywords)
