"""`minutebook play FILE`: a recorded run, pushed into a room as that run."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ...domain.ids import is_room_id, short_id
from ...domain.principals import DEFAULT_TENANT, Principal
from ...domain.rooms.commands import ClaimedReason
from ..api_client import Api, TokenSource
from ..bridge_client import Hello
from ..bridge_player import Played, Player
from ..swe_agent import Item, Run, TrajectoryError, read_run, with_run_id
from .access import (
    DEFAULT_URL,
    MEMBERS,
    OPERATOR,
    Issued,
    Tenant,
    Token,
    TokenFile,
    Url,
    client_of,
    development_issuer,
    given_token,
    guarded_call,
    room_of,
)
from .common import USAGE, DataDir, Json, fail, print_json, settings_of
from .progress import bar
from .render import printable, remark, say

MAX_PACE_S = 3600.0
MAX_SPEED = 1_000_000.0

_SPEED = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?)x?")

_ENDS: tuple[tuple[str, ClaimedReason], ...] = (
    ("submitted", "finished"),
    ("exit_command_timeout", "deadline"),
    ("exit_total_execution_time", "deadline"),
    ("exit_cost", "deadline"),
    ("exit_context", "stuck"),
    ("exit_format", "stuck"),
    ("exit_forfeit", "stuck"),
    ("early_exit", "stuck"),
)
"""What SWE-agent's exit statuses begin with, and why the room says that the run ended; any other is an error."""


class Pace(msgspec.Struct, frozen=True):
    """How fast items go: `seconds` before each, or the recorded times divided by `speed`."""

    seconds: float | None = None
    speed: float = 1.0

    def wait_s(self, item: Item) -> float:
        """How long to wait before an item."""
        return item.delay_s / self.speed if self.seconds is None else self.seconds

    @property
    def together(self) -> bool:
        """Whether items need not be told apart in time."""
        return self.seconds == 0


def pace_of(pace: float | None, speed: str | None) -> Pace:
    """The pace that the options mean; options that make no sense end the verb."""
    if pace is not None and speed is not None:
        fail("Give --pace or --speed, not both.", USAGE)
    if pace is not None:
        if not 0 <= pace <= MAX_PACE_S:
            fail(f"--pace must be 0 to {MAX_PACE_S:.0f} seconds.", USAGE)
        return Pace(pace)
    match = _SPEED.fullmatch(speed or "1")
    factor = float(match[1]) if match else 0.0
    if not 0 < factor <= MAX_SPEED:
        fail(f"--speed must be a factor above 0, such as 2x or 0.5; {printable(speed or '')!r} is none.", USAGE)
    return Pace(speed=factor)


def end_reason(run: Run) -> ClaimedReason:
    """Why the run ended, in the words of rooms.md: `finished` where the recording does not say."""
    statuses = [item.payload.get("status", "") for item in run.items if item.stream == "status"]
    if not statuses:
        return "finished"
    for begin, reason in _ENDS:
        if str(statuses[-1]).startswith(begin):
            return reason
    return "error"


async def open_room(api: Api, title: str) -> str:
    """A new room's id; a repeated try opens no second one."""
    body = {"dataClass": "internal"} | ({"title": title} if title else {})
    answer = await api.call("POST", "/v1/rooms", body, key=secrets.token_hex(16))
    return str(answer["id"])


def play(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording of SWE-agent (.traj).")],
    data_dir: DataDir = None,
    room: Annotated[
        str | None, typer.Option(help="The room; a new one is opened without it.", show_default=False)
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    tenant: Tenant = DEFAULT_TENANT,
    run_id: Annotated[
        str | None, typer.Option(help="The run's id: goes on with a run that was cut off. With a token: its run.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="The run's role [default: the recording's].")] = None,
    pace: Annotated[
        float | None, typer.Option(help="Seconds before each item; 0 is as fast as possible.", show_default=False)
    ] = None,
    speed: Annotated[str | None, typer.Option(help="Factor on the recorded times, such as 2x.")] = None,
    json: Json = False,
) -> None:
    """Push a recorded run into a room, at its recorded pace or another."""
    with guarded_call():
        wanted = pace_of(pace, speed)
        room_id = None if room is None else room_of(room)
        if run_id is not None and not is_room_id(run_id):
            fail("--run-id must be 8 characters of a-z and 2-7.", USAGE)
        given = given_token(token, token_file)
        if given is not None and run_id is None:
            fail("With a token, give --run-id as well: the run that the token is for.", USAGE)
        run = _read(file)
        run_id = run_id or short_id(secrets.randbits(40))
        sources = _given(given) if given is not None else _issued(data_dir, tenant, run_id, role or run.role)
        played = asyncio.run(_play(url, with_run_id(run, run_id), run_id, room_id, sources, wanted))
        if json:
            print_json(played)
        else:
            say(
                f"{played.items - played.already} of {played.items} items pushed into room {played.room} as"
                f" agent:{played.run_id}; the run ended: {played.reason}"
            )


class _Sources(msgspec.Struct, frozen=True):
    """Tokens of the run in a given room, and of a person who may open one; a given token cannot open any."""

    run_in: Callable[[str], TokenSource]
    person: TokenSource | None = None


def _given(token: str) -> _Sources:
    return _Sources(lambda _room: lambda: token)


def _issued(data_dir: Path | None, tenant: str, run_id: str, role: str) -> _Sources:
    issuer = development_issuer(settings_of(data_dir))
    return _Sources(
        lambda room_id: Issued(issuer, Principal("agent", run_id), tenant, (), room_id, role),
        Issued(issuer, Principal.parse(OPERATOR), tenant, (MEMBERS,)),
    )


def _read(file: Path) -> Run:
    try:
        return read_run(file)
    except TrajectoryError as error:
        fail(printable(str(error)), USAGE)


async def _play(url: str, run: Run, run_id: str, room_id: str | None, sources: _Sources, pace: Pace) -> Played:
    async with client_of(url) as client:
        if room_id is None and sources.person is not None:
            room_id = await open_room(Api(client, sources.person), run.title)
        api = Api(client, sources.run_in(room_id or ""))
        with bar("playing") as tell:
            player = Player(
                api,
                run_id,
                run.items,
                end_reason(run),
                wait_s=pace.wait_s,
                together=pace.together,
                told=lambda done, total: tell("playing", done, total),
            )
            hello = await player.hello()
            _check_room(hello, room_id)
            remark(f"run {run_id} in room {hello.room_id}")
            return await player.play(hello)


def _check_room(hello: Hello, room_id: str | None) -> None:
    if room_id is not None and hello.room_id != room_id:
        fail(f"The token is for room {printable(hello.room_id)}, not for {room_id}.", USAGE)
