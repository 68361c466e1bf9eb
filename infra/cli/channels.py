"""`minutebook channels`: what waits on the channels of a tenant, and a channel stopped for a while; for operators."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...commands.deliveries.operators import OPERATORS
from .online import Server, online_as, segment
from .render import remark
from .rooms import show_table

ALL = "/v1/ops/channels"

channels = typer.Typer(
    help="Channels of your tenant: what waits there, pause, resume; for operators.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel's name in the settings.")]
Why = Annotated[
    str, typer.Option("--reason", help="Why; the log holds a code such as maintenance, and no other words.")
]


@online_as(OPERATORS)
def list_(server: Server) -> None:
    """List channels: what waits, since when, and how many destinations are left alone because they failed."""
    found = server.get(ALL)

    def words() -> None:
        heads = ("CHANNEL", "WAITING", "OLDEST", "SHUT", "NEXT PROBE", "PAUSED")
        rows = (
            (
                each["name"],
                each["waiting"],
                each.get("oldest", "-")[:19],
                each["breaker"]["shut"],
                each["breaker"].get("retryAt", "-")[:19],
                _paused(each),
            )
            for each in found["channels"]
        )
        if found["channels"]:
            show_table(heads, rows)
        else:
            remark("No channel is configured for this tenant, and nothing waits.")

    server.answered(found, words)


@online_as(OPERATORS)
def pause(
    server: Server,
    channel: Name,
    reason: Why,
    until: Annotated[
        str | None, typer.Option(help="Until when, such as 2026-12-24T08:00:00Z; without it: until it is resumed.")
    ] = None,
) -> None:
    """Send nothing over a channel. What waits there waits, and expires as ever."""
    body = {"reason": reason} if until is None else {"reason": reason, "until": until}
    answer = server.tell("POST", _path(channel, "pause"), body)
    server.answered(answer, lambda: remark(f"{channel} is paused"))


@online_as(OPERATORS)
def resume(server: Server, channel: Name, reason: Why) -> None:
    """Send over a channel again."""
    answer = server.tell("POST", _path(channel, "resume"), {"reason": reason})
    server.answered(answer, lambda: remark(f"{channel} is sent to"))


def _paused(channel: dict[str, Any]) -> str:
    if not channel["paused"]:
        return "-"
    return f"{channel['reason']} until {channel['until'][:19]}" if "until" in channel else channel["reason"]


def _path(channel: str, act: str) -> str:
    return f"{ALL}/{segment(channel)}/{act}"


for _name, _verb in (("list", list_), ("pause", pause), ("resume", resume)):
    channels.command(_name)(_verb)
