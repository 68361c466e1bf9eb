"""`minutebook tail ROOM`: a room as it happens, in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Annotated, Any

import msgspec
import typer

from ...domain.principals import DEFAULT_TENANT
from ..api_client import TokenSource
from ..sse_client import Follower, Frame, StreamBroken
from .access import (
    DEFAULT_URL,
    OPERATOR,
    PrincipalName,
    Tenant,
    Token,
    TokenFile,
    Url,
    client_of,
    guarded_call,
    room_of,
    tokens_of,
)
from .common import FINDING, USAGE, DataDir, Json, fail, out
from .render import entry, printable_json, remark

DEFAULT_TAIL = 50
MAX_TAIL = 500
"""What the server takes (http.md, Rooms)."""


class Viewer:
    """Prints frames. `through` is set by the first snapshot: the head when the stream began."""

    def __init__(self, *, json: bool = False, full: bool = False) -> None:
        self.seq = 0
        self.through: int | None = None
        self._json = json
        self._full = full

    def show(self, frame: Frame) -> None:
        """One frame as lines, or as its envelope. Raises StreamBroken where it cannot be read."""
        try:
            self._show(frame)
        except msgspec.MsgspecError as error:
            raise StreamBroken(f"A {frame.event[:20]} frame cannot be read: is this a Minutebook server?") from error

    def _show(self, frame: Frame) -> None:
        if frame.event == "event":
            self.seq = int(frame.id or 0)
            if self._json:
                self._write(frame.data)
            else:
                out.print(entry(frame.data, full=self._full), soft_wrap=True)
            return
        data: dict[str, Any] = msgspec.json.decode(frame.data, type=dict[str, Any])
        match frame.event:
            case "state" if self.through is None:
                self.through, self.seq = int(data["throughSeq"]), int(data["fromSeq"]) - 1
                title = data.get("title") or "without a title"
                _note(f"room {data['id']}: {title}, {data['phase']}, {self.through} entries")
            case "reset":
                _note(f"the log is another one or shorter than the position; going on behind entry {data['lastSeq']}")
            case "error":
                _note(f"the server had to stop the stream ({data.get('code')})")
            case "closed":
                _note(f"the stream is over ({data.get('reason')})")
            case _:
                pass

    def _write(self, data: str) -> None:
        shown = printable_json(data) if sys.stdout.isatty() else data
        sys.stdout.buffer.write(shown.encode() + b"\n")
        sys.stdout.buffer.flush()


def tail(
    room: Annotated[str, typer.Argument(metavar="ROOM", help="The room's id.")],
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    after: Annotated[
        int | None, typer.Option(help="Begin behind this seq; 0 shows the whole room.", show_default=False)
    ] = None,
    lines: Annotated[
        int | None, typer.Option("--tail", help=f"Begin with that many entries [default: {DEFAULT_TAIL}].")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Go on with what comes.")] = True,
    full: Annotated[bool, typer.Option("--full", help="Trim nothing.")] = False,
    json: Json = False,
) -> None:
    """Follow a room live; resumes by itself after every cut, and ends when the room is closed."""
    with guarded_call():
        room_id = room_of(room)
        if after is not None and lines is not None:
            fail("Give --after or --tail, not both.", USAGE)
        if after is not None and not 0 <= after <= 2**53:
            fail("--after must be a seq, 0 or more.", USAGE)
        if lines is not None and not 0 <= lines <= MAX_TAIL:
            fail(f"--tail must be 0 to {MAX_TAIL}; --after 0 shows the whole room.", USAGE)
        tokens = tokens_of(data_dir, token, token_file, principal, tenant)
        viewer = Viewer(json=json, full=full)
        start = (after, None) if after is not None else (None, DEFAULT_TAIL if lines is None else lines)
        try:
            asyncio.run(_tail(url, tokens, room_id, viewer, start, follow=follow))
        except StreamBroken as error:
            fail(str(error), FINDING)


def _note(words: str) -> None:
    remark(f"-- {words}")


async def _tail(
    url: str, tokens: TokenSource, room_id: str, viewer: Viewer, start: tuple[int | None, int | None], *, follow: bool
) -> None:
    async with client_of(url) as client:
        follower = Follower(client, tokens, room_id, after=start[0], tail=start[1], notice=_note)
        async with contextlib.aclosing(follower.frames()) as frames:
            async for frame in frames:
                viewer.show(frame)
                if not follow and viewer.through is not None and viewer.seq >= viewer.through:
                    return
