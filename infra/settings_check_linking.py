"""What cannot be in `[linking]`: a policy that says nothing, or silently lets nobody link."""

from __future__ import annotations

from .settings import Settings, SettingsError


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
