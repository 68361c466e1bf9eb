"""Secrets that are known by their value are found in every dress; what is too weak masks nothing (field fault B65)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.known import PIECE_CHARS, forms_of, forms_of_key, is_usable
from minutebook.infra.redaction.rules import mask

MASK = mask("configured-secret")
ODD = 's3cr3t/+va"l\\ue==9'
LINES = "first line of it 1\nsecond line of it 2\r\nthird line of it 3"
HEX = "0a1b2c3d4e5f60718293a4b5c6d7e8f9"

REDACTOR = Redactor([], {form for secret in (ODD, LINES, HEX) for form in forms_of(secret)})


def dresses(secret: str) -> Iterator[tuple[str, str]]:
    """Ways in which a secret comes, by name."""
    data = secret.encode()
    yield "as it is", secret
    yield "in a sentence", f"use {secret}, then"
    yield "glued to words", f"a{secret}b"
    for before in ("", "a", "ab", "abc"):
        for after in ("", "x", "xy"):
            whole = before.encode() + data + after.encode()
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield f"{encode.__name__} {before}|{after}", encode(whole).decode()
                yield f"{encode.__name__} {before}|{after} without padding", encode(whole).decode().rstrip("=")
    yield "percent", quote(secret, safe="")
    yield "percent, slashes kept", quote(secret)
    yield "percent, lower case", re.sub("%..", lambda found: found[0].lower(), quote(secret, safe=""))
    yield "in a URL", f"https://h.example/?key={quote(secret, safe='')}&a=b"
    yield "JSON", json.dumps(secret)
    yield "JSON twice", json.dumps(json.dumps({"key": secret}))
    yield "JSON with slashes escaped", json.dumps(secret).replace("/", "\\/")
    yield "zero width", "\u200b".join(secret)
    yield "soft hyphen", secret[:4] + "\u00ad" + secret[4:]
    yield "hex", data.hex()
    yield "hex in upper case", data.hex().upper()


SECRETS = {"odd": ODD, "several lines": LINES, "hex": HEX, "hex in upper case": HEX.upper()}
CASES = [
    pytest.param(text, secret, id=f"{name}: {dress}")
    for name, secret in SECRETS.items()
    for dress, text in dresses(secret)
]


@pytest.mark.parametrize(("text", "secret"), CASES)
def test_a_known_secret_is_masked_in_every_dress(text: str, secret: str) -> None:
    core = base64.b64encode(secret.encode()).decode()[4:12]
    for value in (text, {"a": [{"b": text}]}, {text: 1}, json.dumps({"args": text}, ensure_ascii=False)):
        fresh, redactions = REDACTOR.value(value)
        shown = json.dumps(fresh, ensure_ascii=False)
        assert redactions == ["configured-secret"]
        assert MASK in shown
        assert secret not in shown
        assert secret not in json.loads(f'"{quote(shown)}"')
        assert core not in shown
        assert secret.encode().hex()[4:20] not in shown.lower()


def test_each_line_of_a_secret_of_several_lines_is_one() -> None:
    for line in LINES.splitlines():
        assert REDACTOR.text(f"    {line}  # indented")[0] == f"    {MASK}  # indented"


@pytest.mark.parametrize("key", [bytes(range(32)), b"\x00" * 31 + b"\x01"])
def test_a_binary_key_is_masked_in_its_text_forms(key: bytes) -> None:
    redactor = Redactor([], forms_of_key(key))
    encodings = [key.hex(), key.hex().upper()]
    encodings += [base64.b64encode(b"xyz"[:n] + key + b"!").decode() for n in range(3)]
    encodings += [base64.urlsafe_b64encode(key).decode().rstrip("=")]
    for text in encodings:
        shown = redactor.text(text)[0]
        assert MASK in shown
        assert len(shown.replace(MASK, "")) <= 8


@pytest.mark.parametrize("weak", ["", " ", "a", "the", "1234567", "password", "changeme", "        ", "your-key-here"])
def test_what_is_too_weak_is_not_used(weak: str) -> None:
    assert not is_usable(weak)


def test_a_long_secret_is_masked_piece_by_piece() -> None:
    secret = "".join(f"{number:05d}" for number in range(200))
    shown, _ = Redactor([], forms_of(secret)).text(f"<{secret}>")
    assert shown.replace(MASK, "") == "<>"
    assert len(secret) > 3 * PIECE_CHARS
