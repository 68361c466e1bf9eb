"""What a turn may ask of where its answer goes."""

from __future__ import annotations

import msgspec
import pytest
from minutebook.domain.answers.target import ResponseTarget, TargetIdentity, checked
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.errors import FanOutExceeded, Invalid, UnknownTarget

ONE = TargetIdentity("hook", "u1")

PAIRS: list[ResponseTarget] = [
    ResponseTarget("channel"),
    ResponseTarget("channels"),
    ResponseTarget("identities"),
    ResponseTarget("channel", channels=("hook",)),
    ResponseTarget("channel", channel="hook", channels=("hook",)),
    ResponseTarget("channels", channels=("hook",), identities=(ONE,)),
    *(
        ResponseTarget(kind, channel="hook")
        for kind in ("originating", "active", "all_linked", "none", "channels", "identities")
    ),
    ResponseTarget("none", identities=(ONE,)),
    ResponseTarget("all_linked", channels=("hook",)),
]


@pytest.mark.parametrize("target", PAIRS, ids=repr)
def test_its_members_are_those_of_its_kind(target: ResponseTarget) -> None:
    with pytest.raises(Invalid) as refused:
        checked(target, lambda _: True)
    assert refused.value.attributes["errors"][0]["path"].startswith("$.responseTarget.")


def test_duplicates_are_folded_in_their_order() -> None:
    channels = checked(ResponseTarget("channels", channels=("b", "a", "b", "a")), lambda _: True, 2)
    assert channels.channels == ("b", "a")
    two = (ONE, TargetIdentity("hook", "u2"))
    identities = checked(ResponseTarget("identities", identities=(*two, *two)), lambda _: True, 2)
    assert identities.identities == two


@pytest.mark.parametrize(
    "target",
    [
        ResponseTarget("channel", channel="other"),
        ResponseTarget("channels", channels=("hook", "other")),
        ResponseTarget("identities", identities=(ONE, TargetIdentity("other", "u1"))),
    ],
    ids=repr,
)
def test_a_channel_that_is_not_the_tenants_is_unknown(target: ResponseTarget) -> None:
    with pytest.raises(UnknownTarget) as refused:
        checked(target, lambda name: name == "hook")
    assert "other" not in refused.value.detail


def test_its_fan_out_is_bounded() -> None:
    target = ResponseTarget("channels", channels=tuple(f"c{n}" for n in range(26)))
    with pytest.raises(FanOutExceeded) as refused:
        checked(target, lambda _: True)
    assert refused.value.attributes == {"limit": 25}
    assert len(checked(target, lambda _: True, 26).channels or ()) == 26


def test_a_turn_that_says_nothing_of_it_is_the_request_that_it_was_before() -> None:
    """Fingerprints of keyed turns from before there were targets still fit."""
    sent = SendTurn("hello", message_id="m")
    assert msgspec.json.encode(sent, order="deterministic") == b'{"text":"hello","messageId":"m"}'
