"""`minutebook rooms`: what one may do in them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .common import FINDING, fail
from .online import Server, online, segment
from .render import say
from .rooms import RoomArgument, app, explain, export, list_rooms, path_of, queued, runs, show, words_of

PersonArgument = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="human:<name>.")]
TextArgument = Annotated[str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.")]
RefArgument = Annotated[int, typer.Argument(metavar="REF", help="The message's seq, see `queued`.")]
Why = Annotated[str, typer.Option("--reason", help="Why, for the log.")]


def _done(server: Server, answer: dict[str, Any], words: str) -> None:
    server.answered(answer, lambda: say(f"{words} (entry {answer['seq']}, chain {answer['chain']})"))


@online
def open_room(
    server: Server,
    title: Annotated[str | None, typer.Option(help="What it is about.", show_default=False)] = None,
    data_class: Annotated[str, typer.Option(help="public or internal.")] = "internal",
    retention: Annotated[str, typer.Option(help="Days to keep it after its close.")] = "90d",
    repository: Annotated[str | None, typer.Option(help="The repository that it works on.", show_default=False)] = None,
) -> None:
    """Open a room, which you own and drive; prints its id."""
    body = {"dataClass": data_class, "retention": retention, "title": title, "repository": repository}
    made = server.tell("POST", "/v1/rooms", {name: value for name, value in body.items() if value is not None})
    server.answered(made, lambda: say(made["id"]))


@online
def invite(
    server: Server,
    room: RoomArgument,
    person: PersonArgument,
    role: Annotated[str, typer.Option(help="watcher, collaborator or owner.")] = "watcher",
    approver: Annotated[bool, typer.Option("--approver", help="May decide approvals.")] = False,
) -> None:
    """Invite a person, or change their role."""
    path = path_of(room, "members", segment(person))
    answer = server.tell("PUT", path, {"role": role, "approver": approver})
    _done(server, answer, f"{person} is a {role}{' and approves' if approver else ''}")


@online
def remove(server: Server, room: RoomArgument, person: PersonArgument) -> None:
    """Remove a member, or leave; their open streams end."""
    _done(server, server.tell("DELETE", path_of(room, "members", segment(person))), f"{person} is no member")


@online
def post(
    server: Server,
    room: RoomArgument,
    text: TextArgument,
    to: Annotated[list[str] | None, typer.Option(help="Whom it is meant for; may be repeated.")] = None,
) -> None:
    """Say something to the people of a room."""
    _done(server, server.tell("POST", path_of(room, "messages"), {"text": words_of(text), "to": to or []}), "posted")


@online
def queue(server: Server, room: RoomArgument, text: TextArgument) -> None:
    """Leave a message for the next run."""
    body = {"text": words_of(text), "delivery": "queued"}
    answer = server.tell("POST", path_of(room, "messages"), body)
    _done(server, answer, f"queued as {answer['seq']}")


@online
def unqueue(server: Server, room: RoomArgument, ref: RefArgument) -> None:
    """Take a message back that waits for the next run: its author may, and the driver."""
    _done(server, server.tell("DELETE", path_of(room, "queue", str(ref))), f"{ref} is not queued any more")


@online
def promote(server: Server, room: RoomArgument, ref: RefArgument) -> None:
    """Send a queued message into the running run now; for the driver."""
    epoch = server.get(path_of(room))["driverEpoch"]
    answer = server.tell("POST", path_of(room, "queue", str(ref), "promote"), {"driverEpoch": epoch})
    _done(server, answer, f"{ref} goes to the running run")


@online
def fork(
    server: Server,
    room: RoomArgument,
    seq: Annotated[
        int | None, typer.Option("--at", help="The last entry to copy [default: the last one].", show_default=False)
    ] = None,
    note: Annotated[str | None, typer.Option(help="Why, for the log.", show_default=False)] = None,
) -> None:
    """Make a new room from the first entries of this one; prints its id. You own and drive it."""
    at = server.get(path_of(room))["throughSeq"] if seq is None else seq
    if at < 1:
        fail("There is nothing to copy before entry 1.", FINDING)
    body: dict[str, Any] = {"seq": at} | ({} if note is None else {"note": note})
    made = server.tell("POST", path_of(room, "fork"), body)
    server.answered(made, lambda: say(made["id"]))


@online
def hold(server: Server, room: RoomArgument, reason: Why) -> None:
    """Put a room under legal hold: retention leaves it alone, be it closed or not."""
    _done(server, server.tell("POST", path_of(room, "hold"), {"reason": reason}), "on legal hold")


@online
def release(server: Server, room: RoomArgument, reason: Why) -> None:
    """Release the legal hold of a room."""
    _done(server, server.tell("POST", path_of(room, "release"), {"reason": reason}), "released")


@online
def close(
    server: Server,
    room: RoomArgument,
    reason: Annotated[str | None, typer.Option(help="Why, for the log.", show_default=False)] = None,
) -> None:
    """Close a room for good; its retention begins."""
    body = {} if reason is None else {"reason": reason}
    _done(server, server.tell("POST", path_of(room, "close"), body), "closed")


VERBS = {
    "Look": {"list": list_rooms, "show": show, "explain": explain, "queued": queued, "runs": runs, "export": export},
    "Say": {"post": post, "queue": queue, "unqueue": unqueue, "promote": promote, "fork": fork},
    "Keep": {
        "open": open_room,
        "invite": invite,
        "remove": remove,
        "hold": hold,
        "release": release,
        "close": close,
    },
}
"""Every verb under the heading of the help that it stands in."""

for _heading, _verbs in VERBS.items():
    for _name, _verb in _verbs.items():
        app.command(_name, rich_help_panel=_heading)(_verb)
