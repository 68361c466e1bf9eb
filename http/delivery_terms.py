"""The terms of deliveries as the settings of their channels have them."""

from __future__ import annotations

from ..commands.deliveries.keeping import Keep
from ..commands.deliveries.planning import ChannelTerms, Terms
from ..domain.deliveries.retry import Policy
from ..infra.settings import Settings
from ..infra.settings_check_kept import DAY_S
from ..infra.settings_section import parse_duration


def terms_of(settings: Settings) -> Terms:
    """What the settings say of each channel's deliveries. A wait grows from the first to the last over the attempts."""
    order_s = parse_duration(settings.delivery.order_window)
    replay_s = parse_duration(settings.delivery.replay_window)
    days = parse_duration(settings.delivery.attempts_ttl) // DAY_S
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
            order_s=order_s,
            replay_s=replay_s,
        )
        made[name] = ChannelTerms(policy, channel.lanes, channel.rate_per_second, days)
    default = ChannelTerms(Policy(order_s=order_s, replay_s=replay_s), days=days)
    return lambda name: made.get(name, default)


def keep_of(settings: Settings) -> Keep:
    """How long what belongs to a delivery is kept."""
    delivery = settings.delivery
    return Keep(parse_duration(delivery.payload_ttl), parse_duration(delivery.dead_payload_ttl))
