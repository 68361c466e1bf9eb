"""A link from its beginning to its end: who may begin, present, confirm, and what everybody else is told (law 30)."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import Any

import pytest
from gwt import recorded
from linking_samples import ANYBODY, NOW, code_hash, end, key_of
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.errors import Full, Invalid, NotVisible, StaleConsent, TooManyPending
from minutebook.domain.linking.decide import (
    MAX_FAILURES,
    MAX_LINKS,
    MAX_PENDING,
    MAX_TENANT_PENDING,
    Around,
    End,
    Standing,
    begin,
    confirm,
    present,
)
from minutebook.domain.linking.events import (
    LinkBegun,
    LinkConfirmed,
    LinkFailed,
    LinkPresented,
    LinkVoided,
    Push,
    PushChanged,
    Unlinked,
)
from minutebook.domain.linking.operate import change_push, seen_in_group, unlink, withdraw
from minutebook.domain.linking.state import INITIAL, Account, evolve
from minutebook.domain.principals import SERVER

ADA = end("web", "ada", keeps=True)
BOB = end("web", "bob", keeps=True)
ADA_TELEGRAM = end("telegram", "ada")
ADA_SLACK = end("slack", "ada")
MALLORY = end("telegram", "mallory")
FIRST, SECOND = key_of("first"), key_of("second")
CODE = code_hash("ABCD2345")
WEEK = timedelta(days=7)


class Town:
    """The accounts of everybody, moved by decisions, with one clock."""

    def __init__(self) -> None:
        self.now = NOW
        self.events: dict[str, list[Any]] = {}

    def account(self, key: str) -> Account:
        return reduce(evolve, recorded(self.events.get(key, [])), INITIAL)

    def store(self, key: str, decision: Any) -> list[Any]:
        """What a decision adds; its refusal comes after it, as ever."""
        added = [new.event for new in decision.events]
        self.events.setdefault(key, []).extend(added)
        if decision.refusal is not None:
            raise decision.refusal
        return added

    def begin(self, by: End = ADA, link_id: str = FIRST, code: str = CODE, pending: int = 0) -> list[Any]:
        return self.store(by.account, begin(self.account(by.account), by, link_id, code, pending, self.now, SERVER))

    def present(
        self, by: End = ADA_TELEGRAM, began: End = ADA, around: Around = ANYBODY, code: str = CODE, group: bool = False
    ) -> list[Any]:
        one, own = self.account(began.account), self.account(by.account)
        return self.store(began.account, present(one, own, by, code, around, self.now, SERVER, is_group=group))

    def digest(self, began: End = ADA, link_id: str = FIRST) -> str:
        challenge = self.account(began.account).challenge(link_id)
        assert challenge is not None
        assert challenge.presented is not None
        return challenge.presented.consent_digest

    def confirm(
        self,
        by: End = ADA,
        link_id: str = FIRST,
        digest: str | None = None,
        around: Around = ANYBODY,
        home: str | None = None,
        push: Push = "replies",
        only_home: bool = False,
    ) -> None:
        key = home or by.account
        agreed = self.digest(by, link_id) if digest is None else digest
        one, other = self.account(by.account), self.account(key)
        confirmed = confirm(one, other, by, link_id, agreed, push, around, self.now, SERVER)
        self.store(key, confirmed.home)
        if not only_home:
            self.store(by.account, confirmed.began)

    def linked(self, by: End = ADA_TELEGRAM, link_id: str = FIRST, code: str = CODE) -> None:
        """All three steps, from Ada's page."""
        self.begin(ADA, link_id, code)
        self.present(by, code=code)
        self.confirm(ADA, link_id)

    def pass_time(self, **spans: float) -> None:
        self.now += timedelta(**spans)

    def last(self, key: str = ADA.account) -> Any:
        return self.events[key][-1]


@pytest.fixture
def town() -> Town:
    return Town()


def test_an_end_joins_the_account_that_began(town: Town) -> None:
    (begun,) = town.begin()
    assert begun == LinkBegun(FIRST, "acme", ADA.account, "web", ADA.native, True, CODE, "2026-11-30T12:10:00.000000Z")
    (shown,) = town.present()
    assert isinstance(shown, LinkPresented)
    assert (shown.native, shown.home) == (ADA_TELEGRAM.native, ADA.account)
    assert town.account(ADA.account).links == (), "nothing is linked before the beginner has confirmed"
    town.confirm()
    assert town.last() == LinkConfirmed(
        FIRST, "acme", ADA.account, "telegram", ADA_TELEGRAM.native, "replies", "2026-11-30T12:00:00.000000Z"
    )
    (link,) = town.account(ADA.account).links
    assert (link.end, link.push) == (ADA_TELEGRAM.linked, "replies")
    assert town.account(ADA.account).challenges == ()


def test_a_chat_that_begins_joins_the_account_of_who_presents_on_a_page(town: Town) -> None:
    town.begin(ADA_TELEGRAM)
    town.present(ADA, ADA_TELEGRAM)
    town.confirm(ADA_TELEGRAM, home=ADA.account)
    (link,) = town.account(ADA.account).links
    assert link.end == ADA_TELEGRAM.linked
    began = town.account(ADA_TELEGRAM.account)
    assert (began.links, began.challenges, began.key) == ((), (), ADA_TELEGRAM.account)


def test_a_confirmation_that_came_half_through_is_completed(town: Town) -> None:
    town.begin(ADA_TELEGRAM)
    town.present(ADA, ADA_TELEGRAM)
    digest = town.digest(ADA_TELEGRAM)
    town.confirm(ADA_TELEGRAM, home=ADA.account, only_home=True)
    town.pass_time(hours=2)
    town.confirm(ADA_TELEGRAM, digest=digest, home=ADA.account, push="all")
    assert len(town.account(ADA.account).links) == 1
    assert town.last(ADA_TELEGRAM.account) == town.last(ADA.account)
    assert town.account(ADA_TELEGRAM.account).challenges == ()


def test_two_chats_share_the_key_of_the_one_that_began(town: Town) -> None:
    town.begin(ADA_SLACK)
    town.present(ADA_TELEGRAM, ADA_SLACK)
    town.confirm(ADA_SLACK)
    assert [each.end for each in town.account(ADA_SLACK.account).links] == [ADA_TELEGRAM.linked]


def test_three_may_wait_and_not_four_until_one_has_expired(town: Town) -> None:
    for n in range(MAX_PENDING):
        town.begin(link_id=key_of(str(n)), code=code_hash(str(n)))
        town.pass_time(minutes=1)
    with pytest.raises(TooManyPending):
        town.begin()
    town.pass_time(minutes=7)
    assert town.begin() == [LinkVoided(key_of("0"), "expired"), town.last()]


def test_a_tenant_has_a_cap_that_reads_the_same(town: Town) -> None:
    town.begin(pending=MAX_TENANT_PENDING - 1)
    with pytest.raises(TooManyPending) as of_tenant:
        town.begin(BOB, SECOND, pending=MAX_TENANT_PENDING)
    town.begin(link_id=key_of("2"), code=code_hash("2"))
    town.begin(link_id=key_of("3"), code=code_hash("3"))
    with pytest.raises(TooManyPending) as of_account:
        town.begin(link_id=SECOND)
    assert str(of_tenant.value) == str(of_account.value), "nobody learns what others do"


def test_an_account_has_so_many_ends_and_no_more(town: Town) -> None:
    for n in range(MAX_LINKS):
        town.linked(end("telegram", str(n)), key_of(str(n)), code_hash(str(n)))
    with pytest.raises(Full):
        town.begin()


def test_an_account_that_is_full_takes_no_end_that_began_elsewhere(town: Town) -> None:
    for n in range(MAX_LINKS):
        town.linked(end("telegram", str(n)), key_of(str(n)), code_hash(str(n)))
    town.begin(ADA_SLACK)
    with pytest.raises(NotVisible):
        town.present(ADA, ADA_SLACK)
    assert town.last(ADA_SLACK.account).reason == "full"


@pytest.mark.parametrize("minutes", [10, 11])
def test_a_code_is_good_for_ten_minutes(town: Town, minutes: int) -> None:
    town.begin()
    town.pass_time(minutes=minutes)
    with pytest.raises(NotVisible):
        town.present()
    assert len(town.events[ADA.account]) == 1


def test_what_was_presented_in_time_is_confirmed_in_time(town: Town) -> None:
    town.begin()
    town.pass_time(minutes=9.9)
    town.present()
    town.pass_time(minutes=0.1)
    with pytest.raises(NotVisible):
        town.confirm()
    assert town.last() == LinkVoided(FIRST, "expired")


@pytest.mark.parametrize("by", [MALLORY, ADA_TELEGRAM], ids=["another", "the same"])
def test_a_code_works_once(town: Town, by: End) -> None:
    town.begin()
    town.present()
    digest = town.digest()
    with pytest.raises(NotVisible):
        town.present(by)
    assert town.last() == LinkFailed(FIRST, "telegram", by.native, "used")
    town.confirm(digest=digest)
    assert [each.end for each in town.account(ADA.account).links] == [ADA_TELEGRAM.linked]
    with pytest.raises(NotVisible):
        town.present(by)


def test_only_the_end_that_began_confirms_and_once(town: Town) -> None:
    town.begin()
    town.present()
    digest = town.digest()
    for other in (BOB, ADA_TELEGRAM, end("telegram", "x", account=ADA.account)):
        one = town.account(ADA.account)
        with pytest.raises(NotVisible):
            confirm(one, one, other, FIRST, digest, "all", ANYBODY, town.now, SERVER)
    town.confirm(digest=digest)
    with pytest.raises(NotVisible):
        town.confirm(digest=digest)


def test_who_confirms_has_seen_the_other_end(town: Town) -> None:
    town.begin()
    with pytest.raises(StaleConsent):
        town.confirm(digest="")
    town.present()
    with pytest.raises(StaleConsent):
        town.confirm(digest="00" * 32)
    town.begin(link_id=SECOND, code=code_hash("2"))
    town.present(MALLORY, code=code_hash("2"))
    assert town.digest(link_id=SECOND) != town.digest()
    with pytest.raises(StaleConsent):
        town.confirm(link_id=SECOND, digest=town.digest())


def test_a_consent_ties_down_each_part_of_a_link(town: Town) -> None:
    digests: set[str] = set()
    for n, (began, by) in enumerate([(ADA, ADA_TELEGRAM), (BOB, ADA_TELEGRAM), (ADA, MALLORY), (ADA, ADA_TELEGRAM)]):
        town.begin(began, key_of(str(n)), code_hash(str(n)))
        town.present(by, began, code=code_hash(str(n)))
        digests.add(town.digest(began, key_of(str(n))))
    assert len(digests) == 4


def test_another_tenant_has_no_such_code_and_leaves_no_trace(town: Town) -> None:
    town.begin()
    elsewhere = end("telegram", "ada", tenant="umbrella")
    with pytest.raises(NotVisible):
        town.present(elsewhere)
    assert len(town.events[ADA.account]) == 1
    town.present()
    digest, one = town.digest(), town.account(ADA.account)
    thief = End("umbrella", "web", ADA.native, ADA.account, True)
    with pytest.raises(NotVisible):
        confirm(one, one, thief, FIRST, digest, "all", ANYBODY, town.now, SERVER)
    with pytest.raises(NotVisible):
        begin(one, thief, SECOND, CODE, 0, town.now, SERVER)


@pytest.mark.parametrize(
    ("around", "reason"),
    [
        (Around(LinkPolicy("allow_all"), presenter=Standing(holder=BOB.account)), "taken"),
        (Around(LinkPolicy("allow_all"), presenter=Standing(holder=ADA.account)), "taken"),
        (Around(LinkPolicy("allow_all"), presenter=Standing(leads=True)), "taken"),
        (Around(LinkPolicy("allow_all"), Standing(holder=BOB.account)), "taken"),
        (Around(LinkPolicy("deny_all")), "policy"),
        (Around(LinkPolicy("same_tier_only", {"web": "internal", "telegram": "public"})), "policy"),
        (Around(LinkPolicy("same_tier_only", {"web": "internal"})), "policy"),
        (
            Around(LinkPolicy("pairs", {"web": "a", "telegram": "b"}, frozenset({("a", "b")}))),
            "policy",
        ),
    ],
)
def test_what_may_not_be_linked_is_refused_like_any_other_code(town: Town, around: Around, reason: Any) -> None:
    town.begin()
    with pytest.raises(NotVisible) as refused:
        town.present(around=around)
    assert town.last() == LinkFailed(FIRST, "telegram", ADA_TELEGRAM.native, reason)
    with pytest.raises(NotVisible) as unknown:
        town.present(code=code_hash("nothing"))
    assert (str(refused.value), refused.value.attributes) == (str(unknown.value), unknown.value.attributes)
    town.present()
    with pytest.raises(NotVisible):
        town.confirm(around=around)
    assert town.last() == LinkVoided(FIRST, reason)
    assert town.account(ADA.account).links == ()


def test_pairs_that_allow_both_ways_allow_a_link(town: Town) -> None:
    policy = LinkPolicy("pairs", {"web": "a", "telegram": "b"}, frozenset({("a", "b"), ("b", "a")}))
    town.begin()
    town.present(around=Around(policy))
    town.confirm(around=Around(policy))
    assert len(town.account(ADA.account).links) == 1


def test_the_policy_is_asked_for_each_end_of_the_account(town: Town) -> None:
    """All of them share its conversations: a middle end that may meet both makes no bridge between the two."""
    tiers = {"web": "middle", "telegram": "low", "slack": "high"}
    both = frozenset({("middle", "low"), ("low", "middle"), ("middle", "high"), ("high", "middle")})
    town.linked(ADA_TELEGRAM)
    town.begin(ADA, SECOND, code_hash("2"))
    with pytest.raises(NotVisible):
        town.present(ADA_SLACK, code=code_hash("2"), around=Around(LinkPolicy("pairs", tiers, both)))
    assert town.last().reason == "policy"


def test_two_people_are_never_linked(town: Town) -> None:
    town.begin()
    with pytest.raises(NotVisible):
        town.present(BOB)
    assert town.last().reason == "taken"


def test_accounts_with_ends_of_their_own_are_not_merged(town: Town) -> None:
    town.begin(ADA_SLACK)
    town.present(ADA_TELEGRAM, ADA_SLACK)
    town.confirm(ADA_SLACK)
    town.begin(ADA, SECOND, code_hash("2"))
    with pytest.raises(NotVisible):
        town.present(ADA_SLACK, code=code_hash("2"))
    assert town.last().reason == "taken"


def test_nobody_is_linked_with_themselves(town: Town) -> None:
    town.begin()
    with pytest.raises(NotVisible):
        town.present(ADA)
    assert town.last().reason == "own"
    town.linked(ADA_TELEGRAM, SECOND, code_hash("2"))
    with pytest.raises(NotVisible):
        town.present(end("telegram", "ada", account=ADA.account))
    assert town.last().reason == "own"


def test_a_code_that_fails_five_times_is_void(town: Town) -> None:
    town.begin()
    for n in range(MAX_FAILURES):
        with pytest.raises(NotVisible):
            town.present(end("web", str(n), keeps=True))
    assert town.last() == LinkVoided(FIRST, "failures")
    with pytest.raises(NotVisible):
        town.present()


def test_a_code_that_is_presented_in_a_group_is_void(town: Town) -> None:
    town.begin()
    with pytest.raises(NotVisible):
        town.present(group=True)
    assert town.last() == LinkVoided(FIRST, "group")
    with pytest.raises(NotVisible):
        town.present()


@pytest.mark.parametrize("is_presented", [False, True])
def test_a_code_that_is_seen_in_a_group_is_void(town: Town, is_presented: bool) -> None:
    town.begin()
    digest = ""
    if is_presented:
        town.present()
        digest = town.digest()
    assert town.store(ADA.account, seen_in_group(town.account(ADA.account), code_hash("other"), SERVER)) == []
    seen = seen_in_group(town.account(ADA.account), CODE, SERVER)
    assert town.store(ADA.account, seen) == [LinkVoided(FIRST, "group")]
    with pytest.raises(NotVisible):
        town.confirm(digest=digest)


def test_an_end_that_was_unlinked_goes_elsewhere_after_a_week_and_back_at_once(town: Town) -> None:
    town.linked()
    (gone,) = town.store(ADA.account, unlink(town.account(ADA.account), FIRST, "person", town.now, SERVER))
    assert gone == Unlinked(FIRST, "telegram", ADA_TELEGRAM.native, "person", "2026-12-07T12:00:00.000000Z")
    left = Around(LinkPolicy("allow_all"), presenter=Standing(left=ADA.account, free_at=gone.free_at))
    town.begin(ADA, SECOND, code_hash("2"))
    town.present(code=code_hash("2"), around=left)
    town.begin(BOB, key_of("3"), code_hash("3"))
    with pytest.raises(NotVisible):
        town.present(began=BOB, code=code_hash("3"), around=left)
    assert town.last(BOB.account).reason == "taken"
    town.now += WEEK
    town.begin(BOB, key_of("4"), code_hash("4"))
    town.present(began=BOB, code=code_hash("4"), around=left)


def test_unlinking_ends_what_the_end_has_under_way(town: Town) -> None:
    town.linked()
    own = end("telegram", "ada", account=ADA.account)
    town.begin(own, SECOND, code_hash("2"))
    town.begin(ADA, key_of("3"), code_hash("3"))
    town.store(ADA.account, unlink(town.account(ADA.account), FIRST, "operator", town.now, SERVER))
    assert town.last() == LinkVoided(SECOND, "unlinked")
    assert [each.link_id for each in town.account(ADA.account).challenges] == [key_of("3")]
    assert town.account(ADA.account).links == ()
    with pytest.raises(NotVisible):
        unlink(town.account(ADA.account), FIRST, "person", town.now, SERVER)


def test_push_is_changed_and_the_same_again_is_nothing(town: Town) -> None:
    town.linked()

    def change(push: Push, link_id: str = FIRST) -> list[Any]:
        return town.store(ADA.account, change_push(town.account(ADA.account), link_id, push, SERVER))

    assert change("replies") == []
    assert change("off") == [PushChanged(FIRST, "off")]
    assert town.account(ADA.account).links[0].push == "off"
    assert change("off") == []
    with pytest.raises(NotVisible):
        change("all", SECOND)


def test_a_challenge_is_withdrawn(town: Town) -> None:
    town.begin()
    town.store(ADA.account, withdraw(town.account(ADA.account), FIRST, "withdrawn", SERVER))
    with pytest.raises(NotVisible):
        town.present()
    with pytest.raises(NotVisible):
        withdraw(town.account(ADA.account), FIRST, "operator", SERVER)


@pytest.mark.parametrize(
    ("by", "link_id", "code"),
    [
        (ADA, "short", CODE),
        (ADA, FIRST, "ABCD2345"),
        (End("acme", "web", "ada@example.org", ADA.account), FIRST, CODE),
        (End("acme", "web", ADA.native, "human:ada"), FIRST, CODE),
    ],
)
def test_no_code_and_no_name_gets_into_an_event(town: Town, by: End, link_id: str, code: str) -> None:
    with pytest.raises(Invalid):
        town.begin(by, link_id, code)
