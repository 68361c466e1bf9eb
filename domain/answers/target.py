"""`responseTarget` of a turn or a channel (http.md): where its answer is to go."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_TARGETS = 1000
"""Names in one target, before duplicates are folded; the fan-out has a bound of its own, in the settings."""

TargetKind = Literal["originating", "active", "channel", "channels", "identities", "all_linked", "none"]

_Name = Annotated[str, Meta(min_length=1, max_length=255)]


class TargetIdentity(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One destination of kind identities."""

    channel: _Name
    native_id: _Name


class ResponseTarget(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """kind says which of the others is set. echo_input: the question goes along, before the answer."""

    kind: TargetKind
    channel: _Name | UnsetType = UNSET
    channels: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=MAX_TARGETS)] | UnsetType = UNSET
    identities: Annotated[tuple[TargetIdentity, ...], Meta(min_length=1, max_length=MAX_TARGETS)] | UnsetType = UNSET
    echo_input: bool = False
