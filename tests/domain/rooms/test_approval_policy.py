"""What each class of action comes to in a room: the table of rooms.md, written out once more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from minutebook.domain.errors import Invalid
from minutebook.domain.rooms.approval_policy import (
    ACTION_CLASSES,
    EFFECTS,
    STRICTEST,
    ActionClass,
    ApprovalPolicy,
    Effect,
    Profile,
    checked_policy,
    policy_of,
    ttl_of,
)
from minutebook.domain.rooms.context import Timeouts

TABLE: dict[ActionClass, tuple[Effect, Effect]] = {
    #              attended  unattended
    "forge.push": ("allow", "allow"),
    "forge.pr": ("human", "allow"),
    "forge.other": ("human", "deny"),
    "mcp.write": ("human", "deny"),
    "shell.high": ("allow", "allow"),
}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def policy(**fields: Any) -> ApprovalPolicy:
    """As a body of POST /v1/rooms has it."""
    return msgspec.convert(fields, ApprovalPolicy)


def test_the_table_has_a_cell_for_every_class_and_profile() -> None:
    assert set(EFFECTS) == set(get_args(Profile))
    assert all(tuple(row) == ACTION_CLASSES for row in EFFECTS.values())


@pytest.mark.parametrize("action_class", TABLE)
@pytest.mark.parametrize("profile", get_args(Profile))
def test_the_table(action_class: ActionClass, profile: Profile) -> None:
    expected = TABLE[action_class][profile == "unattended"]
    assert policy(profile=profile).effect(action_class) == expected
    assert policy(profile=profile).effects()[action_class] == expected


@pytest.mark.parametrize("effect", get_args(Effect))
def test_an_override_wins_for_its_class_alone(effect: Effect) -> None:
    changed = policy(profile="unattended", overrides={"forge.other": effect})
    assert changed.effects() == {**EFFECTS["unattended"], "forge.other": effect}


@pytest.mark.parametrize(
    "fields",
    [
        {"profile": "strict"},
        {"overrides": {"forge.everything": "allow"}},
        {"overrides": {"forge.pr": "maybe"}},
        {"ttl": "0h"},
        {"ttl": "4"},
        {"ttl": "4h\n"},
        {"ttl": "4 h"},
        {"ttl": 4},
        {"fourEyes": "yes"},
        {"approvers": []},
    ],
    ids=str,
)
def test_what_is_no_policy_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        policy(**fields)
    assert policy_of(fields) == STRICTEST


def test_a_policy_that_cannot_be_read_lets_nothing_through() -> None:
    assert set(STRICTEST.effects().values()) == {"human"}
    assert STRICTEST.four_eyes


@pytest.mark.parametrize("ttl", ["31d", "721h", "9999999d", "2592001s"])
def test_a_request_waits_for_30_days_at_most(ttl: str) -> None:
    with pytest.raises(Invalid) as caught:
        checked_policy(policy(profile="unattended", ttl=ttl), Timeouts())
    assert caught.value.attributes["errors"][0]["path"] == "$.approvals.ttl"
    assert policy_of({"ttl": ttl}) == STRICTEST


@pytest.mark.parametrize(
    ("fields", "span"),
    [
        ({}, timedelta(minutes=30)),
        ({"ttl": "7h"}, timedelta(minutes=30)),
        ({"profile": "unattended"}, timedelta(hours=4)),
        ({"profile": "unattended", "ttl": "90s"}, timedelta(seconds=90)),
        ({"profile": "unattended", "ttl": "5m"}, timedelta(minutes=5)),
        ({"profile": "unattended", "ttl": "30d"}, timedelta(days=30)),
    ],
    ids=str,
)
def test_a_request_expires_by_its_profile(fields: dict[str, Any], span: timedelta) -> None:
    assert policy(**fields).expiry(NOON, Timeouts()) == NOON + span


def test_the_settings_say_how_long_where_the_room_does_not() -> None:
    set_so = Timeouts(attended_s=60, unattended_s=5400)
    assert policy(ttl="7h").expiry(NOON, set_so) == NOON + timedelta(minutes=1)
    assert policy_of(checked_policy(policy(profile="unattended"), set_so)).ttl == "90m"
    own = policy_of(checked_policy(policy(profile="unattended", ttl="2h"), set_so))
    assert own.expiry(NOON, set_so) == NOON + timedelta(hours=2)
    stored = policy_of(checked_policy(policy(profile="unattended"), set_so))
    assert stored.expiry(NOON, Timeouts()) == NOON + timedelta(minutes=90), "later settings change no room"


@pytest.mark.parametrize(("seconds", "ttl"), [(14_400, "4h"), (90, "90s"), (300, "5m"), (172_800, "2d"), (1, "1s")])
def test_a_wait_of_the_settings_as_a_room_has_it(seconds: int, ttl: str) -> None:
    assert ttl_of(seconds) == ttl
    assert policy(ttl=ttl).ttl == ttl


def test_what_is_stored_is_read_back_whole() -> None:
    given = policy(profile="unattended", overrides={"mcp.write": "human"}, ttl="2h", fourEyes=True)
    stored = checked_policy(given, Timeouts())
    assert stored == {"profile": "unattended", "overrides": {"mcp.write": "human"}, "ttl": "2h", "fourEyes": True}
    assert policy_of(stored) == given
    assert policy_of({}) == ApprovalPolicy(ttl="4h")
