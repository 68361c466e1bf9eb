"""Ends that have spoken, with the times of the settings."""

from __future__ import annotations

from ..infra.postgres.ends import PostgresEnds
from ..infra.postgres.pool import Pool
from ..infra.settings import Settings
from ..infra.settings_section import parse_duration


def ends_of(settings: Settings, pool: Pool) -> PostgresEnds:
    """Over a pool of the app role."""
    linking = settings.linking
    return PostgresEnds(pool, parse_duration(linking.active_ttl), parse_duration(linking.tombstone_ttl))
