"""The terms of deliveries as the settings of their channels have them."""

from __future__ import annotations

from ..commands.deliveries.planning import ChannelTerms, Terms
from ..domain.deliveries.retry import Policy
from ..infra.settings import Settings


def terms_of(settings: Settings) -> Terms:
    """What the settings say of each channel's deliveries. A wait grows from the first to the last over the attempts."""
    made: dict[str, ChannelTerms] = {}
    for name, channel in settings.channels.items():
        retry = channel.retry
        steps = max(1, retry.attempts - 2)
        growth = max(1.0, (retry.last_s / retry.first_s) ** (1 / steps))
        policy = Policy(
            attempts=retry.attempts,
            first_s=retry.first_s,
            growth=growth,
            cap_s=retry.last_s,
            timeout_s=channel.attempt_timeout_s,
            expiry_s=channel.expiry_s,
        )
        made[name] = ChannelTerms(policy, channel.lanes, channel.rate_per_second)
    default = ChannelTerms()
    return lambda name: made.get(name, default)
