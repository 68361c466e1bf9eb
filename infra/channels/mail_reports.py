"""What mail servers and mail programs report of a mail of ours: DSN (RFC 3464) and MDN (RFC 8098)."""

from __future__ import annotations

import re
from email.message import Message
from typing import Literal, cast
from urllib.parse import quote, unquote

from ...commands.channels.ports import Receipt

MAX_PARTS = 50
"""Of one report."""

State = Literal["delivered", "observed", "failed"]
_ACTIONS: dict[str, State] = {"failed": "failed", "delivered": "delivered"}
_OURS = re.compile(r"<([A-Za-z0-9.%_~-]{1,400})@([^<>@\s]{1,255})>")


def message_id_of(key: str, domain: str) -> str:
    """The Message-ID of the part with that key."""
    return f"<{quote(key, safe='')}@{domain}>"


def key_of(message_id: str, domain: str) -> str | None:
    """The key that a Message-ID of ours stands for; None where it is not of ours."""
    match = _OURS.fullmatch(message_id.strip())
    return unquote(match[1]) if match is not None and match[2].lower() == domain.lower() else None


def receipts_in(mail: Message, domain: str) -> list[Receipt] | None:
    """What a report says of mails from that domain; None where the mail is no report."""
    if mail.get_content_type() != "multipart/report":
        return None
    parts = list(mail.walk())[:MAX_PARTS]
    key = _key_in(parts, domain)
    states: list[State] = [state for part in parts if (state := _state_in(part)) is not None]
    return [] if key is None else [Receipt(key, state) for state in states[:1]]


def _state_in(part: Message) -> State | None:
    """A delay, a relay and an expansion say nothing of the end; a mail that was deleted was not seen."""
    kind = part.get_content_type()
    if kind == "message/disposition-notification":
        disposition = _field(part, "disposition").rpartition(";")[2].partition("/")[0].strip().lower()
        return "observed" if disposition == "displayed" else None
    if kind == "message/delivery-status":
        return _ACTIONS.get(_field(part, "action").lower())
    return None


def _field(part: Message, name: str) -> str:
    """Of the blocks of a report, which the parser gives as messages or as one text."""
    for block in _blocks(part):
        match = re.search(rf"^{name}:[ \t]*(.*)$", block, re.IGNORECASE | re.MULTILINE)
        if match is not None:
            return match[1].strip()
    return ""


def _blocks(part: Message) -> list[str]:
    inner = _inner(part)
    if inner:
        return ["\n".join(f"{name}: {value}" for name, value in each.items()) for each in inner]
    return [str(part.get_payload())]


def _inner(part: Message) -> list[Message]:
    payload = part.get_payload()
    return cast("list[Message]", payload) if isinstance(payload, list) else []


def _key_in(parts: list[Message], domain: str) -> str | None:
    for part in parts:
        envelope = _field(part, "original-envelope-id") if _is_report(part) else ""
        named = _field(part, "original-message-id") if _is_report(part) else ""
        returned = _returned(part)
        for message_id in (named, f"<{envelope}@{domain}>" if envelope else "", returned):
            if message_id and (key := key_of(message_id, domain)) is not None:
                return key
    return None


def _is_report(part: Message) -> bool:
    return part.get_content_type() in ("message/delivery-status", "message/disposition-notification")


def _returned(part: Message) -> str:
    """The Message-ID of the mail that a report gives back, whole or as its headers."""
    if part.get_content_type() == "text/rfc822-headers":
        match = re.search(r"^message-id:\s*(<[^<>\s]+>)", str(part.get_payload()), re.IGNORECASE | re.MULTILINE)
        return match[1] if match is not None else ""
    if part.get_content_type() == "message/rfc822":
        inner = _inner(part)
        return str(inner[0].get("message-id", "")) if inner else ""
    return ""
