"""What somebody wrote in a mail: its plain text, without the history that mail programs put below it."""

from __future__ import annotations

import re
from email.message import EmailMessage, Message

from ...domain.jsontext import repair_text

_ATTRIBUTION = re.compile(r"(?:On|Am|Le|El|Il|Op|Em|Den|W dniu)\b.{5,400}:", re.DOTALL)
_ORIGINAL = re.compile(r"-{2,}\s*(?:Original Message|Forwarded message|Ursprüngliche Nachricht)\s*-{2,}", re.IGNORECASE)
_OUTLOOK = re.compile(r"_{20,}")
_HEAD = re.compile(r"(?:\*?(?:From|Von|De)\*?:\s)\S")
_HEAD_MORE = re.compile(r"\*?(?:Sent|Date|Gesendet|Datum|Envoyé|To|An|À)\*?:\s")
SIGNATURE = "-- "


def plain_part(mail: Message) -> str | None:
    """The first text/plain part that is no attachment; None where there is none or it cannot be read."""
    if not isinstance(mail, EmailMessage):
        return None
    part = mail.get_body(preferencelist=("plain",))
    if part is None or part.get_content_type() != "text/plain":
        return None
    text = repair_text(str(part.get_content(errors="replace"))).replace("\0", "")
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _unflowed(lines) if part.get_param("format", "") == "flowed" else lines


def _unflowed(text: str) -> str:
    """RFC 3676: a line that ends in a space goes on in the next one of the same quotation."""
    joined: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(">"))
        body = line[depth:].removeprefix(" ")
        if goes_on and joined and _depth(joined[-1]) == depth:
            joined[-1] += body
        else:
            joined.append(">" * depth + (" " if depth else "") + body)
        goes_on = body.endswith(" ") and body != SIGNATURE
    return "\n".join(joined)


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(">"))


def written(text: str) -> str:
    """What is new in a mail: up to a signature or a copied message, without the quotation at its end and the line that
    announces it. Quotations between answers stay: the answers mean nothing without them."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if line == SIGNATURE or _ORIGINAL.fullmatch(line.strip()) or _begins_copy(lines, at):
            lines = lines[:at]
            break
    end = _before_quote(lines)
    if end < len(_stripped(lines)):
        lines = _without_attribution(lines[:end])
    return "\n".join(lines).strip()


def _begins_copy(lines: list[str], at: int) -> bool:
    if _OUTLOOK.fullmatch(lines[at].strip()):
        return at + 1 < len(lines) and _HEAD.match(lines[at + 1].strip()) is not None
    more = [each for each in lines[at + 1 : at + 5] if _HEAD_MORE.match(each.strip())]
    return _HEAD.match(lines[at].strip()) is not None and len(more) >= 2


def _stripped(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _before_quote(lines: list[str]) -> int:
    """Where the quotation begins that a mail ends with."""
    end = len(_stripped(lines))
    while end and (lines[end - 1].startswith(">") or not lines[end - 1].strip()):
        end -= 1
    return end


def _without_attribution(lines: list[str]) -> list[str]:
    lines = _stripped(lines)
    for count in (1, 2):
        if _ATTRIBUTION.fullmatch("\n".join(lines[-count:]).strip()):
            return lines[:-count]
    return lines
