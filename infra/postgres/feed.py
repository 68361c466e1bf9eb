"""The switch of the audit feed."""

from __future__ import annotations

import psycopg


def switch_feed(url: str, *, on: bool) -> None:
    """Turn the feed on, with everything stored so far in it, or off. `url` is the owner's; appends wait meanwhile.

    Where it is so already nothing is locked: every process calls this when it starts, and a lock that waits for an
    append held open would hold up all others behind it (law 2).
    """
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT l.audit_feed FROM minutebook.log l").fetchone() != (on,):
            connection.execute("SELECT minutebook.feed_switch_v1(%s)", (on,))
