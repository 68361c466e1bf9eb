"""`minutebook bridge LOG`: a harness's log, brought into a room as that run, and what the room says brought back."""

from __future__ import annotations

import asyncio
import math
import shlex
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from ...domain.ids import is_room_id
from ...domain.principals import DEFAULT_TENANT, Principal
from ...domain.rooms.commands import ClaimedReason
from ..api_client import Api, TokenSource
from ..bridge_client import Bridge
from ..bridge_commands import EachItsOwn, Handler, Nobody, OneForAll
from ..bridge_feed import RunOver
from ..bridge_socket import SocketBroken, callers
from ..harness_log import HarnessLog, LogBroken, Recording, Source
from ..swe_agent import TrajectoryError, read_run, with_run_id
from .access import (
    DEFAULT_URL,
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
from .common import FINDING, USAGE, DataDir, Json, fail, print_json, settings_of
from .play import end_reason
from .render import printable, remark, say

RECORDING = ".traj"


class Bridged(msgspec.Struct, frozen=True, rename="camel"):
    """What came of it. items: how many of the log the room has. reason: why the run ended."""

    room: str
    run_id: str
    items: int
    reason: str


def bridge(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="JSON lines of a harness, or a .traj recording.")],
    run_id: Annotated[str, typer.Option(help="The run's id; the same one goes on with a run that was cut off.")],
    data_dir: DataDir = None,
    room: Annotated[str | None, typer.Option(help="Without a token: the room of the run.", show_default=False)] = None,
    role: Annotated[str | None, typer.Option(help="Without a token: the run's role.", show_default=False)] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    tenant: Tenant = DEFAULT_TENANT,
    command: Annotated[
        str | None,
        typer.Option(help="Takes steering, interrupts and decisions: a line of JSON on its stdin.", show_default=False),
    ] = None,
    command_mode: Annotated[
        Literal["each", "one"], typer.Option(help="each: started for each delivery; one: kept running, answers each.")
    ] = "each",
    socket: Annotated[
        Path | None, typer.Option(help="Where local callers ask for approvals: a Unix socket.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for more at the end of the log.")] = True,
    json: Json = False,
) -> None:
    """Be a run's bridge until its log ends it; started again after any end, it goes on where the room stands."""
    with guarded_call():
        if not is_room_id(run_id):
            fail("--run-id must be 8 characters of a-z and 2-7.", USAGE)
        source = _source(log, run_id, follow=follow)
        tokens = _tokens(given_token(token, token_file), data_dir, tenant, run_id, room, role)
        try:
            done = asyncio.run(_bridge(url, tokens, run_id, source, _handler(command, command_mode), socket))
        except (RunOver, LogBroken, SocketBroken) as error:
            fail(printable(str(error)), FINDING)
        if json:
            print_json(done)
        else:
            say(f"{done.items} items are in room {done.room} as agent:{done.run_id}; the run ended: {done.reason}")


def _source(log: Path, run_id: str, *, follow: bool) -> Source:
    if log.suffix != RECORDING:
        if not follow and not log.is_file():
            fail(f"{log} is no file.", USAGE)
        return HarnessLog(log, follow=follow)
    try:
        run = read_run(log)
    except TrajectoryError as error:
        fail(printable(str(error)), USAGE)
    return Recording(with_run_id(run, run_id).items, end_reason(run), lambda _item: 0.0)


def _tokens(
    given: str | None, data_dir: Path | None, tenant: str, run_id: str, room: str | None, role: str | None
) -> TokenSource:
    if given is not None:
        return lambda: given
    if room is None:
        fail("Give --room, or a token of the run.", USAGE)
    issuer = development_issuer(settings_of(data_dir))
    return Issued(issuer, Principal("agent", run_id), tenant, (), room_of(room), role)


def _handler(command: str | None, mode: str) -> Handler:
    if command is None:
        return Nobody()
    try:
        words = shlex.split(command)
    except ValueError as error:
        fail(f"--command cannot be taken apart ({error}).", USAGE)
    if not words:
        fail("--command is empty.", USAGE)
    return OneForAll(words) if mode == "one" else EachItsOwn(words)


async def _bridge(
    url: str, tokens: TokenSource, run_id: str, source: Source, handler: Handler, socket: Path | None
) -> Bridged:
    async with client_of(url) as client:
        api = Api(client, tokens, give_up_s=math.inf)
        own = Bridge(api, run_id, source, handler=handler, asks=socket is not None, notice=remark)
        hello = await own.hello()
        remark(f"run {run_id} in room {hello.room_id}, behind item {hello.after_harness_seq}")
        async with callers(own, socket):
            await own.run()
        reason: ClaimedReason = source.reason
        await own.bye(reason)
        return Bridged(hello.room_id, run_id, own.pusher.cursors.after_harness_seq, reason)
