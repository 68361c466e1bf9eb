"""Whether a mail is from whom it says: an aligned DMARC pass by the operator's own mail server (RFC 8601, RFC 7489)."""

from __future__ import annotations

import re
from email.message import Message
from email.utils import getaddresses

ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,188}[A-Za-z0-9])?")
"""A mailbox that is written without quotes; at most 255 characters, as an identity."""

MAX_AUTHOR_CHARS = 1000
"""Of a From header."""

MAX_RESULT_CHARS = 8192
"""Of one Authentication-Results header."""

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[^;"()\\]+|[;()]|\\.|.', re.DOTALL)
_METHOD = re.compile(r"\s*dmarc\s*(?:/\s*\d+\s*)?=\s*([A-Za-z]+)", re.IGNORECASE)
_FROM = re.compile(r"(?:^|\s)header\s*\.\s*from\s*=\s*([^\s;]+)", re.IGNORECASE)


def author_of(mail: Message) -> str | None:
    """The address in lower case of the one author that a mail names; None where it names none, several, or unclearly.

    The whole address is folded: no provider gives two people names that differ in case alone.
    """
    headers = [str(each) for each in mail.get_all("from", [])]
    if len(headers) != 1 or len(headers[0]) > MAX_AUTHOR_CHARS:
        return None
    # Parsers do not agree on what is beside the plain form: routes, groups, an @ outside of quotes and comments.
    bare = _outside_comments(headers[0], keeps_quoted=False)
    if bare.count("@") != 1 or set(bare) & set(":;,"):
        return None
    found = getaddresses(headers)
    if len(found) != 1 or ADDRESS.fullmatch(found[0][1]) is None:
        return None
    return found[0][1].lower()


def is_proven(mail: Message, author: str, authserv_id: str) -> bool:
    """Whether the topmost Authentication-Results is of that server and has exactly one DMARC result, a pass for the
    author's domain. What stands below the topmost came with the mail, and anybody may have written it."""
    headers = mail.get_all("authentication-results", [])
    if not headers or len(str(headers[0])) > MAX_RESULT_CHARS:
        return False
    server, *results = _parts(str(headers[0]))
    if server.split()[:1] != [authserv_id.lower()]:
        return False
    dmarc = [(match[1], each) for each in results if (match := _METHOD.match(each)) is not None]
    if len(dmarc) != 1 or dmarc[0][0] != "pass":
        return False
    domains = [match[1].strip('"') for match in _FROM.finditer(dmarc[0][1])]
    return domains == [author.rpartition("@")[2]]


def _parts(header: str) -> list[str]:
    """A header in lower case at its semicolons, without comments; what is quoted does not end a part."""
    return _outside_comments(header, keeps_quoted=True).lower().split(";")


def _outside_comments(header: str, *, keeps_quoted: bool) -> str:
    """A header without its comments; a quoted text neither begins nor ends one, and is left out or unquoted."""
    kept: list[str] = []
    depth = 0
    for found in _PIECE.finditer(header):
        match found[0]:
            case "(":
                depth += 1
            case ")":
                depth = max(0, depth - 1)
            case other if depth == 0:
                kept.append(_unquoted(other) if keeps_quoted or not other.startswith('"') else "")
            case _:
                pass
    return "".join(kept)


def _unquoted(text: str) -> str:
    if not text.startswith('"'):
        return text
    inner = re.sub(r"\\(.)", r"\1", text[1:-1])
    # White space and signs that mean something would split a quoted value, or make one of it.
    return re.sub(r"[\s;=]", "_", inner)
