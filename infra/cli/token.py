"""`minutebook token`: a token of the data directory's development issuer."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ...domain.principals import DEFAULT_TENANT, Principal
from ..dev_issuer import DevelopmentIssuer
from ..settings import SettingsError, parse_duration
from .common import DataDir, guarded, settings_of


def token(
    principal: Annotated[str, typer.Option(help="human:<name>, agent:<runId> or system:<component>.")],
    data_dir: DataDir = None,
    group: Annotated[list[str] | None, typer.Option(help="A group of the person; may be repeated.")] = None,
    tenant: Annotated[str, typer.Option(help="The tenant that the token speaks for.")] = DEFAULT_TENANT,
    ttl: Annotated[str, typer.Option(help="Lifetime, at most 24h.")] = "1h",
    room: Annotated[str | None, typer.Option(help="agent only: the room of the run.")] = None,
    role: Annotated[str | None, typer.Option(help="agent only: the role of the run.")] = None,
    client: Annotated[
        str | None,
        typer.Option(help="A command-line client of that name, which may read, post, queue and fork only."),
    ] = None,
    act: Annotated[
        str | None,
        typer.Option(help="Who acts for the principal: the token of a delegation, for conversations only."),
    ] = None,
) -> None:
    """Print a token of this data directory's development issuer, on one line."""
    with guarded():
        settings = settings_of(data_dir)
        if not settings.is_development:
            raise SettingsError("development: is off here, so this server takes no tokens of the development issuer.")
        issuer = DevelopmentIssuer.open(settings.data_dir)
        typer.echo(
            issuer.issue(
                Principal.parse(principal, "--principal"),
                tenant,
                group or [],
                int(parse_duration(ttl)),
                now=time.time(),
                room=room,
                role=role,
                client=client,
                act=None if act is None else Principal.parse(act, "--act"),
            )
        )
