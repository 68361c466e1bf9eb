"""The terms of answers as the settings have them."""

from __future__ import annotations

from msgspec import UNSET

from ..commands.answers.ports import AnswerTerms
from ..domain.answers.resolve import ChannelFacts
from ..domain.answers.target import ResponseTarget, TargetIdentity
from ..infra.link_policy import policy_of, token_tiers_of
from ..infra.settings import Settings
from ..infra.settings_channels import ChannelSettings, TargetRule


def answer_terms(settings: Settings) -> AnswerTerms:
    """What the settings say of answers and of the channels that they go over."""
    channels = {name: _facts(each) for name, each in settings.channels.items()}
    delivery = settings.delivery
    return AnswerTerms(
        channels, policy_of(settings), delivery.fan_out, delivery.pushes_per_hour, token_tiers_of(settings)
    )


def _facts(channel: ChannelSettings) -> ChannelFacts:
    return ChannelFacts(
        channel.tenant,
        channel.pushes,
        is_own=channel.kind == "webhook" and channel.url is not None,
        is_inbox=channel.kind == "web",
        labels=frozenset(channel.clearance),
        tier=channel.tier or UNSET,
        target=_target(channel.response_target),
        is_background=channel.background,
    )


def _target(said: str | TargetRule) -> ResponseTarget:
    """As a turn would say it; the loader has checked its members."""
    if isinstance(said, str):
        return ResponseTarget(said)  # pyright: ignore[reportArgumentType] - the loader takes no other word
    return ResponseTarget(
        said.kind,
        said.channel or UNSET,
        said.channels or UNSET,
        tuple(TargetIdentity(each.channel, each.native_id) for each in said.identities or ()) or UNSET,
        said.echo_input,
    )
