"""People, chats and a thief in any order, over two tenants: what law 30 promises holds after every step.

The machine keeps the table of identities that a store keeps: who is linked where, and whom they left until when.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from typing import Any, NamedTuple, get_args

import msgspec
from gwt import recorded
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from linking_samples import NOW, code_hash, end, key_of
from minutebook.domain.channels.link_policy import LinkPolicy, may_link
from minutebook.domain.errors import MinutebookError, NotVisible
from minutebook.domain.linking.decide import MAX_PENDING, Around, End, Standing, begin, confirm, present
from minutebook.domain.linking.events import (
    ACCOUNT_EVENTS,
    LinkBegun,
    LinkConfirmed,
    LinkedEnd,
    LinkPresented,
    Push,
    Unlinked,
)
from minutebook.domain.linking.operate import change_push, seen_in_group, unlink, withdraw
from minutebook.domain.linking.state import INITIAL, Account, evolve
from minutebook.domain.principals import SERVER

PEOPLE = [
    *(end("web", who, keeps=True) for who in ("ada", "bob")),
    *(end("telegram", who) for who in ("ada", "mallory")),
    end("slack", "ada"),
    end("web", "eve", keeps=True, tenant="umbrella"),
    end("telegram", "eve", tenant="umbrella"),
]
POLICIES = [LinkPolicy("allow_all"), LinkPolicy("same_tier_only", {"web": "a", "telegram": "a", "slack": "b"})]
ends = st.sampled_from(PEOPLE)
groups = st.sampled_from([False, False, False, True])
spans = st.sampled_from([1, 60, 601, 3600, 7 * 86_400])


class Begun(NamedTuple):
    """A link as the outside world knows it: by whom, in whose stream, and under which code."""

    by: End
    key: str
    code: str


class LinkingMachine(RuleBasedStateMachine):
    """Accounts by their key, and the table of identities."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.accounts: dict[str, Account] = {}
        self.events: dict[str, list[Any]] = {}
        self.begun: dict[str, Begun] = {}
        self.held: dict[LinkedEnd, str] = {}
        self.left: dict[LinkedEnd, tuple[str, str]] = {}
        self.policy = POLICIES[0]

    def as_now(self, who: End) -> End:
        """An end with the key that it has at this moment."""
        return msgspec.structs.replace(who, account=self.held.get(who.linked, who.account))

    def standing(self, who: End) -> Standing:
        left, free_at = self.left.get(who.linked, ("", ""))
        return Standing(self.held.get(who.linked, ""), left, free_at, bool(self.account(who.account).links))

    def account(self, key: str) -> Account:
        return self.accounts.get(key, INITIAL)

    def around(self, one: End, other: End) -> Around:
        return Around(self.policy, self.standing(one), self.standing(other))

    def store(self, key: str, decision: Any) -> None:
        events = self.events.setdefault(key, [])
        for each in recorded([new.event for new in decision.events], len(events)):
            events.append(each.event)
            self.accounts[key] = evolve(self.account(key), each)
            match each.event:
                case LinkConfirmed(home=home, channel=channel, native=native) if home == key:
                    self._take(LinkedEnd(channel, native), home)
                case Unlinked(channel=channel, native=native, free_at=free_at):
                    del self.held[LinkedEnd(channel, native)]
                    self.left[LinkedEnd(channel, native)] = (key, free_at)
                case _:
                    pass
        if decision.refusal is not None:
            assert type(decision.refusal) is NotVisible

    def _take(self, joining: LinkedEnd, home: str) -> None:
        assert joining not in self.held, "an identity has at most one account"
        left, free_at = self.left.get(joining, (home, ""))
        assert left == home or free_at <= self.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "elsewhere after a week only"
        self.held[joining] = home

    @rule(who=ends)
    def begin(self, who: End) -> None:
        by = self.as_now(who)
        link_id = key_of(f"link {len(self.begun)}")
        code = code_hash(link_id)
        try:
            self.store(by.account, begin(self.account(by.account), by, link_id, code, 0, self.now, SERVER))
        except MinutebookError:
            return
        self.begun[link_id] = Begun(who, by.account, code)

    @rule(who=ends, group=groups, data=st.data())
    def present(self, who: End, group: bool, data: st.DataObject) -> None:
        begun = self._any(data)
        if begun is None:
            return
        _, (began_by, key, code) = begun
        by = self.as_now(who)
        around = self.around(began_by, who)
        one, own = self.account(key), self.account(by.account)
        try:
            self.store(key, present(one, own, by, code, around, self.now, SERVER, is_group=group))
        except NotVisible:  # every failure of presenting is the same
            return

    @rule(
        who=ends,
        push=st.sampled_from(get_args(Push)),
        agrees=st.sampled_from([True, True, True, False]),
        data=st.data(),
    )
    def confirm_as(self, who: End, push: Push, agrees: bool, data: st.DataObject) -> None:
        begun = self._any(data)
        if begun is not None:
            self._confirm(begun[0], who, push, agrees)

    @rule(data=st.data())
    def confirm_by_the_beginner(self, data: st.DataObject) -> None:
        begun = self._any(data)
        if begun is not None:
            self._confirm(begun[0], begun[1].by, "replies", True)

    def _confirm(self, link_id: str, who: End, push: Push, agrees: bool) -> None:
        began_by, key, _ = self.begun[link_id]
        challenge = self.account(key).challenge(link_id)
        shown = None if challenge is None else challenge.presented
        home = key if shown is None else shown.home
        other = next((each for each in PEOPLE if shown is not None and each.linked == shown.end), who)
        digest = shown.consent_digest if shown is not None and agrees else "00" * 32
        around, one = self.around(began_by, other), self.account(key)
        try:
            done = confirm(one, self.account(home), self.as_now(who), link_id, digest, push, around, self.now, SERVER)
        except MinutebookError:
            return
        if done.home.events:
            assert who == began_by, "only the end that began confirms"
            assert agrees
            assert may_link(self.policy, began_by.channel, other.channel)
            assert began_by.tenant == other.tenant
        self.store(home, done.home)
        self.store(key, done.began)

    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        linked = [(key, each.link_id) for key, account in self.accounts.items() for each in account.links]
        if linked:
            key, link_id = data.draw(st.sampled_from(linked))
            self.store(key, unlink(self.account(key), link_id, "person", self.now, SERVER))

    @rule(push=st.sampled_from(get_args(Push)), data=st.data())
    def mute(self, push: Push, data: st.DataObject) -> None:
        linked = [(key, each.link_id) for key, account in self.accounts.items() for each in account.links]
        if linked:
            key, link_id = data.draw(st.sampled_from(linked))
            self.store(key, change_push(self.account(key), link_id, push, SERVER))

    @rule(shown=st.booleans(), data=st.data())
    def void(self, shown: bool, data: st.DataObject) -> None:
        begun = self._any(data)
        if begun is None:
            return
        link_id, (_, key, code) = begun
        account = self.account(key)
        if shown:
            self.store(key, seen_in_group(account, code, SERVER))
        elif account.challenge(link_id) is not None:
            self.store(key, withdraw(account, link_id, "withdrawn", SERVER))

    @rule(span=spans)
    def wait(self, span: int) -> None:
        self.now += timedelta(seconds=span)

    @rule(policy=st.sampled_from(POLICIES))
    def reconfigure(self, policy: LinkPolicy) -> None:
        self.policy = policy

    def _any(self, data: st.DataObject) -> tuple[str, Begun] | None:
        newest = sorted(self.begun.items(), key=lambda each: each[0])
        return data.draw(st.sampled_from(newest)) if newest else None

    @invariant()
    def each_link_went_all_three_steps_once(self) -> None:
        for key, events in self.events.items():
            steps: dict[str, list[type[Any]]] = {}
            for each in events:
                if isinstance(each, LinkBegun | LinkPresented | LinkConfirmed):
                    steps.setdefault(each.link_id, []).append(type(each))
            for link_id, taken in steps.items():
                whole = [LinkBegun, LinkPresented, LinkConfirmed]
                assert taken == (whole[: len(taken)] if self.begun[link_id].key == key else [LinkConfirmed])

    @invariant()
    def accounts_and_identities_agree(self) -> None:
        linked = {link.end: key for key, account in self.accounts.items() for link in account.links}
        assert linked == self.held
        assert len(linked) == sum(len(account.links) for account in self.accounts.values())

    @invariant()
    def an_account_is_of_one_tenant_and_bounded(self) -> None:
        tenant_of = {each.linked: each.tenant for each in PEOPLE}
        for account in self.accounts.values():
            assert {tenant_of[link.end] for link in account.links} <= {account.tenant}
            now = self.now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            assert sum(each.expires_at > now for each in account.challenges) <= MAX_PENDING

    def teardown(self) -> None:
        """What was stored is read back as it was, and folds to the same."""
        for key, events in self.events.items():
            stored = [ACCOUNT_EVENTS.decode(e.type, e.version, msgspec.json.encode(e.payload())) for e in events]
            assert stored == events
            assert reduce(evolve, recorded(stored), INITIAL) == self.account(key)


LinkingMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestLinking = LinkingMachine.TestCase
