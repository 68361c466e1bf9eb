"""Guests: who speaks on a channel without a token behind them is nobody that a caller can name."""

from __future__ import annotations

import pytest
from minutebook.domain.errors import Invalid
from minutebook.domain.principals import Principal

KEY = "acct" * 6 + "aa"


def test_only_the_server_writes_of_a_guest() -> None:
    guest = Principal.guest(KEY)
    assert str(guest) == f"guest:{KEY}"
    assert Principal.own(str(guest)) == guest
    assert Principal.own("human:ann") == Principal("human", "ann")
    with pytest.raises(Invalid):
        Principal.parse(str(guest))


@pytest.mark.parametrize("key", ["", "ann", KEY.upper(), f"{KEY}a", "h:0123"])
def test_a_guest_is_an_isolation_key(key: str) -> None:
    with pytest.raises(Invalid):
        Principal.own(f"guest:{key}")
