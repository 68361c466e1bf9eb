"""Authorization of channels: three answers, two phases, and what is said of a refusal (delivery.md, Authorization)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.domain.channels.allowlist import (
    AllOf,
    Allowlist,
    AnyOf,
    Asked,
    Asks,
    ClaimValues,
    NativeIds,
    Open,
    callables,
    claims_of,
    judge,
)
from minutebook.domain.channels.authorize import Allowed, Denied, LinkRequired, authorize, is_addressed
from minutebook.domain.channels.link_policy import LinkPolicy, default_policy, may_link, permits, reachable
from minutebook.domain.channels.messages import ChannelIdentity, Inbound, Place

ALICE = ChannelIdentity("acme", "chat", "u1")
VERDICTS = ("allow", "deny", "abstain")
THREE = st.sampled_from(VERDICTS)


def asks(*names: str) -> tuple[Allowlist, ...]:
    return tuple(Asks(name) for name in names)


@pytest.mark.parametrize(
    ("allowlist", "claims", "verdict"),
    [
        (Open(), {}, "allow"),
        (NativeIds(frozenset({"u1"})), {}, "allow"),
        (NativeIds(frozenset({"u2"})), {}, "deny"),
        (ClaimValues("email", frozenset({"a@x"})), {}, "abstain"),
        (ClaimValues("email", frozenset({"a@x"})), {"email": ("a@x",)}, "allow"),
        (ClaimValues("email", frozenset({"a@x"})), {"email": ("b@x",)}, "deny"),
        (ClaimValues("email", frozenset({"a@x"})), {"email": ()}, "deny"),
        (AnyOf((NativeIds(frozenset({"u2"})), ClaimValues("email", frozenset({"a@x"})))), {}, "abstain"),
        (AllOf((NativeIds(frozenset({"u1"})), ClaimValues("email", frozenset({"a@x"})))), {}, "abstain"),
        (AnyOf(()), {}, "abstain"),
        (AllOf(()), {}, "abstain"),
    ],
)
def test_native_ids_and_claims(allowlist: Allowlist, claims: dict[str, tuple[str, ...]], verdict: str) -> None:
    assert judge(allowlist, Asked(ALICE, claims), {}) == verdict


@pytest.mark.parametrize("answer", [None, True, 1, "ALLOW", "yes", object(), "deny"])
def test_what_is_not_one_of_the_words_denies(answer: object) -> None:
    assert judge(Asks("f"), Asked(ALICE), {"f": answer}) == "deny"
    assert judge(Asks("f"), Asked(ALICE), {}) == "deny"


@given(st.lists(THREE, min_size=1, max_size=4))
def test_any_of_and_all_of(answers: list[str]) -> None:
    called = {str(place): answer for place, answer in enumerate(answers)}
    any_of = judge(AnyOf(asks(*called)), Asked(ALICE), called)
    all_of = judge(AllOf(asks(*called)), Asked(ALICE), called)
    assert any_of == ("allow" if "allow" in answers else "deny" if set(answers) == {"deny"} else "abstain")
    assert all_of == ("deny" if "deny" in answers else "allow" if set(answers) == {"allow"} else "abstain")


def test_a_list_says_what_it_needs() -> None:
    nested = AnyOf((AllOf((Asks("f"), ClaimValues("email", frozenset()))), Asks("g"), NativeIds(frozenset())))
    assert callables(nested) == {"f", "g"}
    assert claims_of(nested) == {"email"}


@given(before=THREE, after=st.none() | THREE, require_link=st.booleans(), is_group=st.booleans())
def test_both_phases(before: str, after: str | None, require_link: bool, is_group: bool) -> None:
    outcome = authorize(before, after, require_link=require_link, is_group=is_group)  # type: ignore[arg-type]
    if "deny" in (before, after):
        assert isinstance(outcome, Denied)
    elif after is None and require_link:
        assert isinstance(outcome, LinkRequired)
    else:
        assert isinstance(outcome, Allowed if "allow" in (before, after) else Denied)
    if isinstance(outcome, Denied):
        assert not (is_group and outcome.public), "in a shared chat a denial is bland to the point of silence"
        assert before not in outcome.public


@pytest.mark.parametrize(
    ("accept", "mention", "command", "plain"),
    [
        ("all", True, True, True),
        ("mention_only", True, False, False),
        ("command_only", False, True, False),
        ("mention_or_command", True, True, False),
    ],
)
def test_who_is_addressed_in_a_group(accept: str, mention: bool, command: bool, plain: bool) -> None:
    group, alone = Place("g", is_group=True), Place("p")

    def heard(place: Place, **said: object) -> bool:
        return is_addressed(Inbound(ALICE, place, "1", "hi", **said), accept)  # type: ignore[arg-type]

    assert heard(group, is_mention=True) is mention
    assert heard(group, verb="link") is command
    assert heard(group) is plain
    assert heard(alone)


def test_b74_a_deletion_is_always_meant() -> None:
    said = Inbound(ALICE, Place("-1", is_group=True), "2", "", deletes="1")
    assert all(is_addressed(said, each) for each in ("mention_only", "command_only", "mention_or_command", "all"))


TIERS = {"a": "red", "b": "red", "c": "blue"}


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (LinkPolicy("allow_all", TIERS), {"a", "b", "c", "none"}),
        (LinkPolicy("deny_all", TIERS), {"a"}),
        (LinkPolicy("same_tier_only", TIERS), {"a", "b"}),
        (LinkPolicy("pairs", TIERS, frozenset({("red", "blue")})), {"a", "c"}),
        (default_policy(TIERS), {"a", "b"}),
        (default_policy({}), {"a", "b", "c", "none"}),
    ],
)
def test_link_policies(policy: LinkPolicy, allowed: set[str]) -> None:
    assert set(reachable(policy, "a", ["a", "b", "c", "none"])) == allowed


def test_a_pair_is_one_way_and_a_link_needs_both() -> None:
    policy = LinkPolicy("pairs", TIERS, frozenset({("red", "blue")}))
    assert permits(policy, "a", "c")
    assert not permits(policy, "c", "a")
    assert not may_link(policy, "a", "c")
    assert may_link(LinkPolicy("same_tier_only", TIERS), "a", "b")


def test_where_nothing_may_be_linked_two_ends_of_one_channel_may_not_either() -> None:
    policy = LinkPolicy("deny_all", TIERS)
    assert permits(policy, "a", "a"), "an answer goes back to where it was asked"
    assert not may_link(policy, "a", "a")
    assert may_link(LinkPolicy("same_tier_only", TIERS), "a", "a")


def test_two_channels_without_a_tier_do_not_have_the_same_one() -> None:
    assert not permits(LinkPolicy("same_tier_only", {"a": "red"}), "x", "y")
