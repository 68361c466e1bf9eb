"""What an operator should know of the channels of the settings, though nothing of it stops the start."""

from __future__ import annotations

from collections import Counter

from ...domain.channels.link_policy import LinkPolicy
from ..link_policy import policy_of
from ..settings import Settings
from ..settings_channels import rules_in
from ..settings_check_channels import effective_allowlist


def advice(settings: Settings) -> list[str]:
    """Sentences for `minutebook doctor`; empty where there is nothing to say."""
    found: list[str] = []
    for name, channel in settings.channels.items():
        if channel.receives and "open" in rules_in(effective_allowlist(channel, settings)) and not channel.require_link:
            found.append(f"channels.{name} is open: whoever can write to it talks to its agent")
        if channel.kind == "slack" and channel.receives and channel.workspace is None:
            found.append(f"channels.{name}.workspace is not set: events of every workspace that has the app count")
    found += _of_policy(settings, policy_of(settings))
    if settings.delivery.payload_key is None and any(channel.pushes for channel in settings.channels.values()):
        found.append("delivery.payloadKey is not set: payloads are kept in the clear until they are purged")
    return found


def _of_policy(settings: Settings, policy: LinkPolicy) -> list[str]:
    """Who has one channel only has nothing to keep apart; who says allow_all hears of it nevertheless."""
    largest = max(Counter(channel.tenant for channel in settings.channels.values()).values(), default=0)
    if policy.kind == "allow_all" and (settings.linking.policy is not None or largest > 1):
        return ["linking.policy is allow_all: any two channels of a tenant may be linked and answer to each other"]
    if policy.kind == "pairs" and not any((target, source) in policy.pairs for source, target in policy.pairs):
        return ["linking.pairs has no pair in both directions: nobody can link two channels"]
    return []
