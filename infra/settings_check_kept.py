"""How long things may be kept and waited for, alone and beside each other (delivery.md, Storage)."""

from __future__ import annotations

from typing import NamedTuple

from .settings import Settings, SettingsError
from .settings_section import parse_duration

DAY_S = 86_400


class Bound(NamedTuple):
    """A key that is a duration, its name in the file and in the types. in_days: kept by the day, so no part of one."""

    section: str
    key: str
    name: str
    least: str
    most: str
    in_days: bool = False

    def seconds(self, settings: Settings) -> int:
        """What is set. Raises ValueError for what is no duration."""
        return parse_duration(getattr(getattr(settings, self.section), self.name))


BOUNDS = (
    Bound("delivery", "continuationTtl", "continuation_ttl", "1s", "30d"),
    Bound("delivery", "inboxTtl", "inbox_ttl", "1m", "365d"),
    Bound("delivery", "payloadTtl", "payload_ttl", "1m", "30d"),
    Bound("delivery", "deadPayloadTtl", "dead_payload_ttl", "1m", "90d"),
    Bound("delivery", "attemptsTtl", "attempts_ttl", "1d", "3650d", in_days=True),
    Bound("delivery", "inboundTtl", "inbound_ttl", "7d", "365d", in_days=True),
    Bound("delivery", "replayWindow", "replay_window", "1m", "90d"),
    Bound("delivery", "orderWindow", "order_window", "1s", "24h"),
    Bound("linking", "challengeTtl", "challenge_ttl", "1m", "1h"),
    Bound("linking", "activeTtl", "active_ttl", "1d", "365d"),
    Bound("linking", "tombstoneTtl", "tombstone_ttl", "1d", "365d"),
    Bound("linking", "relinkWait", "relink_wait", "1h", "365d"),
)


def check_kept(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    for bound in BOUNDS:
        try:
            seconds = bound.seconds(settings)
            is_right = parse_duration(bound.least) <= seconds <= parse_duration(bound.most)
        except ValueError:
            seconds, is_right = 0, False
        key = f"{bound.section}.{bound.key}"
        if not is_right:
            raise SettingsError(f"{key} must be a duration from {bound.least} to {bound.most}, such as {bound.most}.")
        if bound.in_days and seconds % DAY_S:
            raise SettingsError(f"{key} must be whole days, such as {bound.most}.")
    delivery, linking = settings.delivery, settings.linking
    if parse_duration(delivery.dead_payload_ttl) < parse_duration(delivery.replay_window):
        raise SettingsError(
            "delivery.deadPayloadTtl must not be shorter than delivery.replayWindow: what is purged cannot be replayed."
        )
    if parse_duration(linking.tombstone_ttl) < parse_duration(linking.relink_wait):
        raise SettingsError(
            "linking.tombstoneTtl must not be shorter than linking.relinkWait: nobody would know for how long to wait."
        )
