"""What the verbs print. What people and agents wrote is untrusted data: a terminal shows it and never obeys it."""

from __future__ import annotations

import unicodedata

import msgspec
from msgspec import Raw
from rich.text import Text

from ...domain.envelope import Actor
from ...domain.errors import Damaged
from ...domain.events import Opaque
from ...domain.rooms.events import ROOM_EVENTS, StoredRoomEvent, ToolCalled, ToolReturned
from ...projections.transcript import Line, describe
from .common import err, out

MESSAGE_LINES = 16
RESULT_LINES = 6
CALL_LINES = 3
"""Lines of a body that are shown; `--full` shows all."""

LINE_CHARS = 400
"""Longest shown line of a trimmed body."""

COLOURS = {"human": "bold cyan", "agent": "bold green", "system": "bold magenta"}
QUIET = "dim"

_KEPT = frozenset("\n\t\u200c\u200d")
"""Line breaks, tabs, and the joiners that scripts and emoji are written with."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class _Shown(msgspec.Struct, rename="camel"):
    seq: int
    ts: str
    type: str
    payload: Raw
    actor: Actor | None = None


_decoder = msgspec.json.Decoder(_Shown)


def printable(text: str) -> str:
    """`text` with every character that could steer a terminal or turn the reading direction written out, as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in _KEPT or unicodedata.category(char) not in _HIDDEN else _written_out(char) for char in text
    )


def printable_json(text: str) -> str:
    """A JSON text that says the same and holds no character that could steer a terminal."""
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    hidden = {char for char in text if char not in _KEPT and unicodedata.category(char) in _HIDDEN}
    for char in hidden:
        text = text.replace(char, _escaped(char))
    return text


def _escaped(char: str) -> str:
    """A character as JSON writes it in ASCII: one escape, or the two of a pair."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def entry(data: str, *, full: bool = False) -> Text:
    """One envelope (its JSON text) as lines. Raises msgspec.MsgspecError where it is none."""
    shown = _decoder.decode(data)
    text = Text(f"{printable(shown.ts[11:19])} #{shown.seq} ", style=QUIET)
    if shown.actor is None:
        return text.append("restricted: you are not cleared for this entry", style="italic")
    text.append_text(_who(shown.actor))
    event, line = _line(shown)
    style, limit = _look(event)
    if line.heading != "message":
        text.append(f" {printable(line.heading)}", style="yellow" if isinstance(event, ToolCalled) else QUIET)
    body = printable(line.body).strip("\n")
    if body:
        text.append_text(_body(body, style, 10_000_000 if full else limit, full=full))
    return text


def say(words: str, style: str = "") -> None:
    """Words on stdout."""
    out.print(Text(printable(words), style=style), soft_wrap=True)


def remark(words: str) -> None:
    """Words on stderr that are no result."""
    err.print(Text(printable(words), style=QUIET), soft_wrap=True)


def complain(words: str) -> None:
    """A finding on stderr."""
    err.print(Text(printable(words), style="red"), soft_wrap=True)


def _who(actor: Actor) -> Text:
    name = Text(printable(f"{actor.kind}:{actor.id}"), style=COLOURS.get(actor.kind, ""))
    if isinstance(actor.role, str):
        name.append(f" ({printable(actor.role)})", style="not bold dim")
    return name


def _line(shown: _Shown) -> tuple[StoredRoomEvent, Line]:
    payload = bytes(shown.payload).decode()
    try:
        event = ROOM_EVENTS.decode(shown.type, 1, payload)
    except Damaged:
        event = Opaque(shown.type, 1)
    return event, describe(event, payload)


def _look(event: StoredRoomEvent) -> tuple[str, int]:
    match event:
        case ToolReturned(status=status):
            return (QUIET if status == "ok" else "red"), RESULT_LINES
        case ToolCalled():
            return "", CALL_LINES
        case _:
            return "", MESSAGE_LINES


def _body(body: str, style: str, limit: int, *, full: bool) -> Text:
    """Beside the heading where it is one short line, else indented under it; what is cut is said."""
    lines = body.split("\n")
    shown = [line if full or len(line) <= LINE_CHARS else line[:LINE_CHARS] + " …" for line in lines[:limit]]
    if len(lines) == 1 and len(shown[0]) < LINE_CHARS:
        return Text(f" {shown[0]}", style=style)
    text = Text("", style=style)
    for line in shown:
        text.append(f"\n    {line}")
    if len(lines) > limit:
        text.append(f"\n    … {len(lines) - limit} more lines", style=QUIET)
    return text


def _written_out(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
