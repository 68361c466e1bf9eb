"""`[timeouts]`: after which waits the server acts by itself (rooms.md, Driver token, Runs, Phases)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .settings_section import Section

MAX_S = 2_592_000
"""30 days."""


class TimeoutSettings(Section, frozen=True):
    """`[timeouts]`, all in seconds."""

    driver_away_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_S,
            description="A person who is not seen for so long loses the driver token to its system holder.",
        ),
    ] = 120
    driver_idle_seconds: Annotated[
        int, Meta(ge=1, le=MAX_S, description="Likewise a person who does nothing in the room for so long.")
    ] = 900
    run_lost_seconds: Annotated[
        int, Meta(ge=1, le=MAX_S, description="A running run whose bridge shows no life for so long is lost.")
    ] = 600
    run_never_joined_seconds: Annotated[
        int, Meta(ge=1, le=MAX_S, description="A requested run whose bridge says no hello for so long never joined.")
    ] = 600
    room_waiting_seconds: Annotated[
        int,
        Meta(ge=1, le=MAX_S, description="A room where a run runs without an event for so long waits for a human."),
    ] = 1800
    approval_attended_seconds: Annotated[
        int, Meta(ge=1, le=MAX_S, description="A request for approval expires after so long in an attended room.")
    ] = 1800
    approval_unattended_seconds: Annotated[
        int,
        Meta(ge=1, le=MAX_S, description="Likewise in an unattended room that was opened without a `ttl` of its own."),
    ] = 14_400
    presence_seconds: Annotated[
        int, Meta(ge=1, le=60, description="Between two notes that a person is in a room, at least.")
    ] = 30
