"""The switch of the audit feed."""

from __future__ import annotations

import psycopg


def switch_feed(url: str, *, on: bool) -> None:
    """Turn the feed on, with everything stored so far in it, or off. `url` is the owner's; appends wait meanwhile."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT minutebook.feed_switch_v1(%s)", (on,))
