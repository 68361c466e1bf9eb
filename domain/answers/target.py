"""`responseTarget` of a turn or a channel (http.md): where its answer is to go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from ..errors import FanOutExceeded, Invalid, UnknownTarget

MAX_TARGETS = 1000
"""Names in one target, before duplicates are folded; the fan-out has a bound of its own, in the settings."""

FAN_OUT = 25
"""Destinations of one answer, unless the settings say otherwise."""

TargetKind = Literal["originating", "active", "channel", "channels", "identities", "all_linked", "none"]

_Name = Annotated[str, Meta(min_length=1, max_length=255)]

_MEMBERS = ("channel", "channels", "identities")
"""Each goes with the kind of its name, and with no other."""


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

    @property
    def names(self) -> tuple[str, ...]:
        """The channels that it names, each once, in their order."""
        named = (
            *(() if self.channel is UNSET else (self.channel,)),
            *(() if self.channels is UNSET else self.channels),
            *(() if self.identities is UNSET else (each.channel for each in self.identities)),
        )
        return tuple(dict.fromkeys(named))


ORIGINATING = ResponseTarget("originating")


def checked(target: ResponseTarget, is_known: Callable[[str], bool], fan_out: int = FAN_OUT) -> ResponseTarget:
    """The target with its duplicates folded. is_known: whether the tenant has a channel of that name.

    Raises Invalid where its members are not exactly those of its kind, UnknownTarget with one body for what there is
    not and for what is another tenant's, FanOutExceeded.
    """
    for name in _MEMBERS:
        if (getattr(target, name) is not UNSET) != (target.kind == name):
            raise Invalid.at(f"$.responseTarget.{name}", f"goes with kind {name}, and that kind with it")
    if not all(is_known(name) for name in target.names):
        raise UnknownTarget("responseTarget names a channel that you do not have; GET /v1/channels lists yours.")
    folded = replace(
        target,
        channels=UNSET if target.channels is UNSET else tuple(dict.fromkeys(target.channels)),
        identities=UNSET if target.identities is UNSET else tuple(dict.fromkeys(target.identities)),
    )
    count = max(len(folded.channels or ()), len(folded.identities or ()))
    if count > fan_out:
        raise FanOutExceeded(f"An answer goes to at most {fan_out} destinations; name fewer.", limit=fan_out)
    return folded
