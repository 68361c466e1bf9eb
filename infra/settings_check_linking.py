"""What cannot be in `[linking]`: a policy that says nothing, or silently lets nobody link."""

from __future__ import annotations

from ..commands.channels.ends import TOKEN_CHANNEL
from ..domain.channels.link_policy import may_link, with_tier
from .link_policy import policy_of, token_tiers_of
from .settings import Settings, SettingsError


def can_be_linked(name: str, settings: Settings, *, by_token: bool = False) -> bool:
    """Whether the policy lets a channel be linked with those who have a token or, unless by_token, with another channel
    of its tenant over which people write."""
    tenant = settings.channels[name].tenant
    policy = with_tier(policy_of(settings), TOKEN_CHANNEL, token_tiers_of(settings).get(tenant))
    others = [] if by_token else [other for other, each in settings.channels.items() if each.receives and other != name]
    same = [other for other in others if settings.channels[other].tenant == tenant]
    return any(may_link(policy, name, other) for other in (TOKEN_CHANNEL, *same))


def check_linking(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    linking = settings.linking
    tiers = {channel.tier for channel in settings.channels.values() if channel.tier}
    if linking.policy == "same_tier_only" and not tiers:
        raise SettingsError(
            "linking.policy is same_tier_only, and no channel has a tier: nobody could link; give channels a tier, or"
            " choose another policy."
        )
    if linking.policy == "pairs" and not linking.pairs:
        raise SettingsError(
            "linking.pairs is missing: with the policy pairs nobody could link; name the pairs, or set linking.policy"
            " to deny_all."
        )
    if linking.pairs and linking.policy != "pairs":
        raise SettingsError("linking.pairs is for linking.policy = pairs: set that, or remove linking.pairs.")
    for source, targets in linking.pairs.items():
        for name, tier in ((source, source), *((source, each) for each in targets)):
            if tier not in tiers:
                raise SettingsError(
                    f"linking.pairs.{name}: no channel has the tier {tier}; correct it, or give one that tier."
                )
        if not targets:
            raise SettingsError(f"linking.pairs.{source} is empty: name tiers, or remove it.")
    for name, channel in settings.channels.items():
        if channel.receives and channel.require_link and not can_be_linked(name, settings):
            raise SettingsError(
                f"channels.{name}.requireLink: linking.policy lets nobody link it with an account or another channel,"
                " so that nobody could write; correct the policy or the tiers, or remove this."
            )
