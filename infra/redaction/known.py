"""Secrets known by their value, in every dress that they may come in (field fault B65)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from .base64_runs import cores_of
from .linear import Pattern, literal
from .rules import Finding, is_placeholder

MIN_SECRET_CHARS = 8
"""Shorter ones would mask what is no secret."""

PIECE_CHARS = 256
"""A longer form is looked for in pieces of so many characters, each of which is masked."""

PLACE = 0
"""Before every rule."""

_PERCENT = re.compile(r"%[0-9A-F]{2}")


def is_usable(secret: str) -> bool:
    """Whether a secret can be told from ordinary text: long enough, and no word that stands in any manual."""
    return len(secret.strip()) >= MIN_SECRET_CHARS and not is_placeholder(secret)


def forms_of(secret: str) -> set[str]:
    """The secret itself, in JSON (escaped up to 3 times), in a URL, in Base64 at each alignment, in hex; in pieces."""
    forms: set[str] = set()
    for text in {secret, secret.replace("\n", "\r\n"), *_lines(secret), *_in_other_case(secret)}:
        data = text.encode("utf-8", "surrogatepass")
        forms |= {
            text,
            data.hex(),
            data.hex().upper(),
            *_escaped(text),
            *_in_url(text),
            *cores_of(data, MIN_SECRET_CHARS),
        }
    return {piece for form in forms for piece in _pieces(form)}


def forms_of_key(key: bytes) -> set[str]:
    """A binary key in hex and in Base64."""
    return {key.hex(), key.hex().upper(), *cores_of(key, MIN_SECRET_CHARS)}


class KnownSecrets:
    """All forms of all known secrets as one pattern."""

    def __init__(self, forms: Iterable[str]) -> None:
        self.forms = sorted(set(forms), key=lambda form: (-len(form), form))
        self.source = "|".join(map(literal, self.forms))
        self._pattern = Pattern(self.source) if self.forms else None

    def findings(self, text: bytes, start: int) -> list[Finding]:
        """Where one of them stands."""
        spans = self._pattern.spans(text, start) if self._pattern is not None else ()
        return [Finding(whole[0], whole[1], whole, PLACE) for whole, *_ in spans]


def escaped_once_more(form: str) -> str:
    """As it stands in the JSON text of a payload that holds it."""
    return json.dumps(form, ensure_ascii=False)[1:-1]


def _lines(secret: str) -> Iterator[str]:
    """The lines of a key file, which may come indented; not those that every such file has."""
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= 2 * MIN_SECRET_CHARS and not line.startswith("---"))


def _in_other_case(secret: str) -> Iterator[str]:
    if all(char in "0123456789abcdefABCDEF" for char in secret):
        yield from (secret.lower(), secret.upper())


def _escaped(text: str) -> Iterator[str]:
    for once in {json.dumps(text)[1:-1], escaped_once_more(text)}:
        for form in (once, once.replace("/", "\\/")):
            twice = escaped_once_more(form)
            yield from (form, twice, escaped_once_more(twice))


def _in_url(text: str) -> Iterator[str]:
    for form in (quote(text, "", errors="replace"), quote(text, errors="replace"), quote_plus(text, errors="replace")):
        yield form
        yield _PERCENT.sub(lambda found: found[0].lower(), form)


def _pieces(form: str) -> Iterator[str]:
    for at in range(0, max(len(form), 1), PIECE_CHARS):
        piece = form[at : at + PIECE_CHARS]
        yield piece if len(piece) >= MIN_SECRET_CHARS else form[-MIN_SECRET_CHARS:]
