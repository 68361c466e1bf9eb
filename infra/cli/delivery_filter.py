"""Which deliveries: the options that a list and a plan share."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def wish(words: str) -> Any:
    """An option that may be left out."""
    return typer.Option(help=words, show_default=False)


ChannelName = Annotated[str | None, wish("The channel's name.")]
Destination = Annotated[str | None, wish("The hash that stands for the recipient.")]
Correlation = Annotated[str | None, wish("The id of the request that it began with.")]
RunId = Annotated[str | None, wish("The run's id.")]
ConversationId = Annotated[str | None, wish("The conversation's id.")]


def given(**wishes: str | None) -> dict[str, str]:
    """What was asked for, by the names of the API."""
    return {name: value for name, value in wishes.items() if value is not None}
