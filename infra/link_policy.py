"""The link policy as the settings have it."""

from __future__ import annotations

from collections.abc import Mapping

from ..domain.channels.link_policy import LinkPolicy, default_policy
from .settings import Settings


def policy_of(settings: Settings) -> LinkPolicy:
    """What may be linked with what, and where answers may go."""
    tiers = {name: each.tier for name, each in settings.channels.items() if each.tier}
    linking = settings.linking
    if linking.policy is None:
        return default_policy(tiers)
    pairs = frozenset((source, target) for source, targets in linking.pairs.items() for target in targets)
    return LinkPolicy(linking.policy, tiers, pairs)


def token_tiers_of(settings: Settings) -> Mapping[str, str]:
    """By tenant the tier of those who speak with a token: that of the tenant's channel of kind web."""
    return {each.tenant: each.tier for each in settings.channels.values() if each.kind == "web" and each.tier}
