"""`minutebook rooms`: a server's rooms, looked at."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from .access import room_of
from .common import FINDING, USAGE, fail, out
from .export import stdout_sink, whole_file
from .online import Server, online
from .render import printable, remark, say

PAGE = 200
"""Rooms asked for at a time; the server takes no more."""

EVENTS_PAGE = 500

RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="The room's id.")]

app = typer.Typer(
    help="Rooms of a running server: look, post, queue, fork, invite, export, hold.",
    no_args_is_help=True,
    add_completion=False,
)


def path_of(room: str, *more: str) -> str:
    """The path of a room, or of something in it; what is no id of a room ends the verb."""
    return "/".join([f"/v1/rooms/{room_of(room)}", *more])


def show_table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Rows for people. Every cell is untrusted data."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in row))
    out.print(table)


@online
def list_rooms(
    server: Server,
    phase: Annotated[
        str | None, typer.Option(help="Only those: Open, Active, Idle, AwaitingHuman, Closed.", show_default=False)
    ] = None,
) -> None:
    """List the rooms that you may see."""
    query: dict[str, str | int] = {"limit": PAGE} | ({} if phase is None else {"phase": phase})
    pages = server.pages("/v1/rooms", query, "cursor", lambda page: page.get("nextCursor"))
    rooms = [room for page in pages for room in page["rooms"]]
    names = ("id", "phase", "role", "driver", "lastSeq", "updatedAt", "title")
    heads = ("ROOM", "PHASE", "YOU ARE", "DRIVER", "ENTRIES", "LAST ENTRY", "TITLE")
    server.answered({"rooms": rooms}, lambda: show_table(heads, ([room[name] for name in names] for room in rooms)))


@online
def show(server: Server, room: RoomArgument) -> None:
    """Show a room as it is, and what you may do in it."""
    found = server.get(path_of(room))
    server.answered(found, lambda: _show(found))


def _show(room: dict[str, Any]) -> None:
    say(f"{room['id']}  {room['title'] or 'without a title'}", "bold")
    run, pending = room.get("run"), room["approvals"].get("pending", 0)
    facts = [
        ("phase", room["phase"] + (", on legal hold" if room["hold"] else "")),
        ("owner", room["owner"]),
        ("driver", f"{room['driver']} (epoch {room['driverEpoch']})"),
        ("run", "none" if run is None else f"{run['runId']} ({run['role']})"),
        ("queue", len(room["queue"])),
        ("approvals", pending if isinstance(pending, int) else len(pending)),
        ("data class", f"{room['dataClass']}, kept {room['retention']} after its close"),
        ("entries", f"{room['throughSeq']}, chain {room['chain']}"),
        ("you", f"{room['you']['principal']}, {room['you']['role'] or 'no member'}"),
        ("you may", ", ".join(room["you"]["can"]) or "nothing"),
    ]
    for name, value in facts:
        say(f"  {name:<11} {value}")
    members = ([each["principal"], each["role"], "yes" if each["approver"] else ""] for each in room["members"])
    show_table(("MEMBER", "ROLE", "APPROVES"), members)


@online
def explain(
    server: Server,
    room: RoomArgument,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="Such as steer, decide, fork or export.")],
) -> None:
    """Say whether you may do something in a room, and why; exit code 1 if not."""
    found = server.get(path_of(room, "explain"), {"action": action})
    server.answered(found, lambda: say(f"{'yes' if found['allowed'] else 'no'}: {found['reason']}"))
    if not found["allowed"]:
        raise typer.Exit(FINDING)


@online
def queued(server: Server, room: RoomArgument) -> None:
    """List the messages that wait for the next run."""
    queue = server.get(path_of(room))["queue"]
    rows = ([each["ref"], each["author"], each["text"]] for each in queue)
    server.answered({"queue": queue}, lambda: show_table(("REF", "AUTHOR", "TEXT"), rows))


@online
def runs(server: Server, room: RoomArgument) -> None:
    """List the runs of a room, from its log."""
    query: dict[str, str | int] = {"type": "state_changed", "limit": EVENTS_PAGE}
    pages = server.pages(path_of(room, "events"), query, "afterSeq", lambda page: page.get("nextAfterSeq"))
    found = runs_of(event for page in pages for event in page["events"])
    names = ("runId", "role", "state", "reason", "since")
    rows = ([run.get(name) for name in names] for run in found)
    server.answered({"runs": found}, lambda: show_table(("RUN", "ROLE", "STATE", "REASON", "SINCE"), rows))


def runs_of(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that these envelopes speak of, in their order; those of the room that a fork was made from are not."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        payload = event["payload"]
        if payload.get("kind") == "forked_from":
            found.clear()
        if payload.get("kind") not in ("run_requested", "run_phase") or not isinstance(payload.get("runId"), str):
            continue
        run = found.setdefault(payload["runId"], {"runId": payload["runId"], "role": "", "state": "requested"})
        if event["origin"] == "harness":
            continue
        run["role"] = payload.get("role", run["role"])
        if payload.get("phase") in ("running", "ended"):
            run["state"] = payload["phase"]
        if "reason" in payload:
            run["reason"] = payload["reason"]
        run["since"] = event["ts"]
    return list(found.values())


class _LastLine(msgspec.Struct, rename="camel"):
    trailer: bool = False
    count: int = 0
    head: str = ""


@online
def export(
    server: Server,
    room: RoomArgument,
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; without it, or with -, stdout.", show_default=False)
    ] = None,
    after: Annotated[int, typer.Option(help="Only what follows this seq.")] = 0,
) -> None:
    """Take a room's log along, with its hashes; `minutebook verify FILE` checks it offline. Owners and auditors."""
    to_stdout = file is None or str(file) == "-"
    if server.is_json and to_stdout:
        fail("--json needs --out FILE: stdout is where the export goes.", USAGE)
    with stdout_sink() if file is None or to_stdout else whole_file(file) as sink:
        last = _last(server.download(path_of(room, "export"), sink, {"afterSeq": after}))
        if not last.trailer:
            fail("The export broke off before its end; try again.", FINDING)
    answer = {"events": last.count, "head": last.head, "file": str(file)}
    if to_stdout:
        remark(f"{last.count} events exported")
    else:
        server.answered(answer, lambda: remark(f"{last.count} events exported, head {last.head}"))


def _last(line: bytes) -> _LastLine:
    try:
        return msgspec.json.decode(line, type=_LastLine)
    except msgspec.MsgspecError:
        return _LastLine()


def words_of(text: str) -> str:
    """The words of an argument; `-` reads them from stdin."""
    words = sys.stdin.read().rstrip("\n") if text == "-" else text
    if not words:
        fail("There are no words to send.", USAGE)
    return words
