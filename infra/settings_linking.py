"""`[linking]`: which channels may be linked with each other, and how long what linking knows is kept (delivery.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from .settings_section import Section

PolicyKind = Literal["allow_all", "same_tier_only", "pairs", "deny_all"]


class LinkingSettings(Section, frozen=True):
    """`[linking]`"""

    policy: Annotated[
        PolicyKind | None,
        Meta(
            description="Which channels may be linked and answer to each other; unset: same_tier_only as soon as a"
            " channel has a tier, else allow_all."
        ),
    ] = None
    pairs: Annotated[
        dict[str, tuple[str, ...]],
        Meta(description="Of policy pairs: a tier to those that its words may go to; a link needs both ways."),
    ] = {}
    challenge_ttl: Annotated[
        str, Meta(description="From the beginning of a link to its confirmation, at most; 1m to 1h.")
    ] = "10m"
    active_ttl: Annotated[
        str,
        Meta(
            description="For how long the chat that somebody used last is the active one; one that is linked with"
            " nothing is forgotten then; 1d to 365d."
        ),
    ] = "30d"
    tombstone_ttl: Annotated[
        str, Meta(description="How long it is known whose an unlinked identity was; 1d to 365d.")
    ] = "30d"
    relink_wait: Annotated[
        str, Meta(description="After so long an unlinked identity may belong to another account; 1h to 365d.")
    ] = "7d"
