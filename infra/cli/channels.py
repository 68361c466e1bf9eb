"""`minutebook channels`: what waits on the channels of a tenant; for operators."""

from __future__ import annotations

import typer

from ...commands.deliveries.operators import OPERATORS
from .online import Server, online_as
from .render import remark
from .rooms import show_table

channels = typer.Typer(help="Channels of your tenant: what waits there; for operators.", no_args_is_help=True)


@channels.callback()
def root() -> None:
    """A name for what follows, however few verbs there are."""


@online_as(OPERATORS)
def list_(server: Server) -> None:
    """List channels: what waits, since when, and how many destinations are left alone because they failed."""
    found = server.get("/v1/ops/channels")

    def words() -> None:
        heads = ("CHANNEL", "WAITING", "OLDEST", "SHUT", "NEXT PROBE")
        rows = (
            (
                each["name"],
                each["waiting"],
                each.get("oldest", "-")[:19],
                each["breaker"]["shut"],
                each["breaker"].get("retryAt", "-")[:19],
            )
            for each in found["channels"]
        )
        if found["channels"]:
            show_table(heads, rows)
        else:
            remark("No channel is configured for this tenant, and nothing waits.")

    server.answered(found, words)


channels.command("list")(list_)
