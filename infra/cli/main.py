"""The `minutebook` command."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import __version__
from . import (
    admin,
    bridge,
    channels,
    chat,
    config,
    conversations,
    deliveries,
    demo,
    doctor,
    erase,
    explain,
    export,
    play,
    rebuild,
    restored,
    retention,
    room_acts,
    serve,
    sql,
    tail,
    token,
    verify,
)

app = typer.Typer(
    name="minutebook",
    help="Rooms and conversations that people and AI agents share, on a log that nobody can rewrite.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)

VERBS = {
    "Server": (serve.serve, token.token, demo.demo),
    "Rooms": (tail.tail, play.play, bridge.bridge),
    "Conversations": (chat.chat, explain.explain),
    "Log": (verify.verify, export.export, rebuild.rebuild),
    "Operations": (
        doctor.doctor,
        config.config,
        retention.retention,
        erase.erase,
        admin.migrate,
        sql.sql,
        restored.restored,
    ),
}
"""Every verb, under the heading of the help that it stands in."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minutebook {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


for _heading, _verbs in VERBS.items():
    for _verb in _verbs:
        app.command(rich_help_panel=_heading)(_verb)
app.add_typer(room_acts.app, name="rooms", rich_help_panel="Rooms")

app.add_typer(conversations.conversations, name="conversations", rich_help_panel="Conversations")
app.add_typer(deliveries.deliveries, name="deliveries", rich_help_panel="Operations")
app.add_typer(channels.channels, name="channels", rich_help_panel="Operations")


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
