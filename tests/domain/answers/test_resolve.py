"""Where an answer goes, as things stand at its turn's end: destinations, skips and their reasons."""

from __future__ import annotations

from typing import Any

import pytest
from answer_samples import KEY, TALK
from hypothesis import given
from hypothesis import strategies as st
from linking_samples import key_of, keyed
from minutebook.domain.answers.events import AnswerRequested, NamedEnd
from minutebook.domain.answers.resolve import Around, ChannelFacts, Destination, Reachable, Resolution, resolve
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.linking.events import Push
from msgspec import UNSET
from msgspec.structs import replace

OTHER = key_of("other")
CHANNELS = {
    "chat": ChannelFacts("acme", True),
    "mail": ChannelFacts("acme", True, labels=frozenset({"secret"})),
    "hook": ChannelFacts("acme", True, is_own=True),
    "inbox": ChannelFacts("acme", True, is_inbox=True, labels=frozenset({"secret"})),
    "deaf": ChannelFacts("acme", False),
}
OPEN = LinkPolicy("allow_all")
HERE = keyed("here")


def end(channel: str, who: str = "me", account: str = KEY, push: Push = "replies", **fields: Any) -> Reachable:
    """An end that has spoken."""
    return Reachable(channel, keyed(channel + who), account, keyed(f"at {channel}{who}"), push, **fields)


CHAT, MAIL = end("chat"), end("mail")
OWN = {"hook": keyed("own hook")}
INBOX = end("inbox", push="all")


def asked(kind: Any, *channels: str, **fields: Any) -> AnswerRequested:
    """A turn of the API."""
    return AnswerRequested("a" * 26, "acme", TALK, "ab" * 32, "c", KEY, kind, "token", channels=channels, **fields)


def said(kind: Any = "originating", *channels: str, **fields: Any) -> AnswerRequested:
    """A turn that was said in the person's chat."""
    base = asked(kind, *channels, **fields)
    return replace(base, source="chat", native=CHAT.native, destination=CHAT.destination)


def around(*ends: Reachable, **fields: Any) -> Around:
    """How things stand, with those ends of the account."""
    return Around(CHANNELS, fields.pop("policy", OPEN), ends, own=OWN, inboxes={"inbox": INBOX}, **fields)


def brief(resolution: Resolution) -> tuple[list[str], list[tuple[str, str]]]:
    """Channels that get it, and those that do not."""
    assert len({each.destination for each in resolution.intended}) == len(resolution.intended)
    return [each.channel for each in resolution.intended], [(each.channel, each.reason) for each in resolution.skipped]


TIERS = {"chat": "internal", "mail": "internal", "hook": "public", "inbox": "internal"}
SAME = LinkPolicy("same_tier_only", TIERS)
NAMED = NamedEnd("mail", keyed("mailyou"))
YOU = end("mail", "you", OTHER, "all")

TABLE: list[tuple[str, AnswerRequested, Around, list[str], list[tuple[str, str]]]] = [
    ("the API's own", asked("originating"), around(CHAT), [], []),
    ("none", said("none"), around(CHAT), [], []),
    ("originating", said(), around(CHAT, MAIL, origin=CHAT), ["chat"], []),
    ("originating, unknown", said(), around(), ["chat"], []),
    ("originating, muted", said(), around(origin=end("chat", push="off")), [], [("chat", "muted")]),
    ("originating, unlinked", said(), around(origin=end("chat", account=OTHER)), [], [("chat", "not_linked")]),
    ("originating, same tier", said(), around(origin=CHAT, policy=LinkPolicy("deny_all")), ["chat"], []),
    ("active", said("active"), around(MAIL, CHAT), ["mail"], []),
    ("active, the newest that is", said("active"), around(end("mail", is_active=False), CHAT), ["chat"], []),
    ("active, nobody", asked("active"), around(end("mail", is_active=False)), [], []),
    ("active never widens", asked("active"), around(end("mail", push="off"), CHAT), [], [("mail", "muted")]),
    ("a token is no channel", asked("active"), around(end("token"), MAIL), ["mail"], []),
    ("channel", asked("channel", "mail"), around(CHAT, MAIL), ["mail"], []),
    ("channel, not linked", asked("channel", "mail"), around(CHAT), [], [("mail", "not_linked")]),
    ("channel, no push", asked("channel", "deaf"), around(end("deaf")), [], [("deaf", "no_push")]),
    ("channel, gone", asked("channel", "gone"), around(), [], [("gone", "no_push")]),
    ("channel of its own", asked("channel", "hook"), around(CHAT), ["hook"], []),
    ("the person's end first", asked("channel", "hook"), around(end("hook", push="off")), [], [("hook", "muted")]),
    ("inbox", asked("channel", "inbox"), around(), ["inbox"], []),
    (
        "channels", asked("channels", "hook", "mail", "chat"), around(CHAT), ["hook", "chat"],
        [("mail", "not_linked")],
    ),
    (
        "policy", said("channels", "mail", "hook"), around(MAIL, policy=SAME), ["mail"], [("hook", "link_policy")],
    ),
    ("no tier is nobody's", asked("channel", "mail"), around(MAIL, policy=SAME), [], [("mail", "link_policy")]),
    ("all linked", said("all_linked"), around(MAIL, CHAT), ["mail", "chat"], []),
    (
        "all linked, some muted", said("all_linked"), around(MAIL, end("chat", "two", push="off"), CHAT),
        ["mail", "chat"], [("chat", "muted")],
    ),
    ("identities", asked("identities", identities=(NAMED,)), around(named={NAMED: YOU}), ["mail"], []),
    (
        "identities, only replies", asked("identities", identities=(NAMED,)),
        around(named={NAMED: replace(YOU, push="replies")}), [], [("mail", "muted")],
    ),
    (
        "identities, nobody", asked("identities", identities=(NAMED,)), around(), [], [("mail", "not_linked")],
    ),
    (
        "removed", said("all_linked"), around(MAIL, CHAT, is_out=True), [],
        [("mail", "not_authorized"), ("chat", "not_authorized")],
    ),
    (
        "bounded", asked("all_linked"), around(*(end("chat", str(n)) for n in range(5)), fan_out=3),
        ["chat"] * 3, [("chat", "fan_out")],
    ),
    (
        "bounded, and one of them twice", asked("all_linked"),
        around(CHAT, end("chat", "two"), replace(CHAT, native=keyed("twin")), fan_out=2), ["chat"] * 2, [],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "how", "intended", "skipped"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_who_gets_it(
    requested: AnswerRequested, how: Around, intended: list[str], skipped: list[tuple[str, str]]
) -> None:
    assert brief(resolve(requested, how)) == (intended, skipped)


SECRET = frozenset({"secret"})
AUDIENCE: list[tuple[str, AnswerRequested, Around, list[tuple[str, str]], list[tuple[str, str]]]] = [
    ("a private chat", said(), around(origin=CHAT, classes=SECRET), [("chat", "pointer")], []),
    (
        "a group", replace(said(), is_group=True), around(origin=CHAT, classes=SECRET), [("chat", "pointer")], [],
    ),
    ("a cleared channel", said("channel", "mail"), around(MAIL, classes=SECRET), [("mail", "reply")], []),
    ("the operator's own", asked("channel", "hook"), around(classes=SECRET), [], [("hook", "audience")]),
    ("one class too many", said("channel", "mail"), around(MAIL, classes=SECRET | {"x"}), [("mail", "pointer")], []),
    (
        "somebody else", asked("identities", identities=(NAMED,)), around(named={NAMED: YOU}, classes=SECRET), [],
        [("mail", "audience")],
    ),
    (
        "somebody else who is cleared", asked("identities", identities=(NAMED,)),
        around(named={NAMED: replace(YOU, is_cleared=True)}, classes=SECRET), [("mail", "reply")], [],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "how", "intended", "skipped"), [row[1:] for row in AUDIENCE], ids=[row[0] for row in AUDIENCE]
)
def test_what_they_get(
    requested: AnswerRequested, how: Around, intended: list[tuple[str, str]], skipped: list[tuple[str, str]]
) -> None:
    found = resolve(requested, how)
    assert [(each.channel, each.form) for each in found.intended] == intended
    assert [(each.channel, each.reason) for each in found.skipped] == skipped


def test_a_private_answer_is_labelled_where_others_read_it() -> None:
    (from_chat,) = resolve(said("channel", "hook"), around(CHAT)).intended
    (from_api,) = resolve(asked("channel", "hook"), around()).intended
    (private,) = resolve(said("channel", "mail"), around(MAIL)).intended
    (from_group,) = resolve(replace(said("channel", "hook"), is_group=True), around(CHAT)).intended
    assert [each.label for each in (from_chat, from_api, private, from_group)] == ["chat", "api", UNSET, UNSET]


def test_what_goes_where_it_was_asked_is_no_push() -> None:
    here, there = (each for each in resolve(said("all_linked"), around(CHAT, MAIL)).intended)
    assert (here.is_pushed, there.is_pushed) == (False, True)
    (unknown,) = resolve(said(), around()).intended
    assert unknown == Destination("chat", CHAT.destination, "reply", CHAT.native, KEY)


def test_one_address_that_is_named_twice_gets_it_once() -> None:
    twin = replace(CHAT, native=keyed("twin"))
    assert brief(resolve(asked("all_linked"), around(CHAT, twin))) == (["chat"], [])


ENDS = st.builds(
    end,
    st.sampled_from([*CHANNELS, "token", "gone"]),
    st.sampled_from("abc"),
    st.sampled_from([KEY, OTHER]),
    st.sampled_from(["off", "replies", "all"]),
    is_active=st.booleans(),
    is_cleared=st.booleans(),
)
POLICIES = [OPEN, SAME, LinkPolicy("deny_all", TIERS), LinkPolicy("pairs", TIERS, frozenset({("internal", "public")}))]
AROUNDS = st.builds(
    Around,
    st.just(CHANNELS),
    st.sampled_from(
        [OPEN, SAME, LinkPolicy("deny_all", TIERS), LinkPolicy("pairs", TIERS, frozenset({("internal",) * 2}))]
    ),
    st.lists(ENDS, max_size=6).map(tuple),
    st.none() | ENDS,
    st.dictionaries(st.just(NAMED), ENDS),
    st.just(OWN),
    st.just({"inbox": INBOX}),
    st.sets(st.sampled_from(["secret", "x"])).map(frozenset),
    st.booleans(),
    st.integers(1, 4),
)
REQUESTS = st.builds(
    lambda make, kind, channels, is_group: replace(
        make(kind, *channels, identities=(NAMED,) if kind == "identities" else ()), is_group=is_group
    ),
    st.sampled_from([asked, said]),
    st.sampled_from(["originating", "active", "channel", "channels", "identities", "all_linked", "none"]),
    st.lists(st.sampled_from([*CHANNELS, "gone"]), max_size=5, unique=True),
    st.booleans(),
)


@given(requested=REQUESTS, how=AROUNDS)
def test_it_never_widens(requested: AnswerRequested, how: Around) -> None:
    found = resolve(requested, how)
    brief(found)
    assert len(found.intended) <= how.fan_out
    known = {each.destination for each in (*how.ends, *how.named.values())}
    known |= {*how.own.values(), INBOX.destination, requested.destination}
    for each in found.intended:
        facts = how.channels[each.channel]
        assert facts.can_push
        assert not how.is_out
        assert each.destination in known
        assert each.form == "pointer" or facts.labels >= how.classes
        assert each.form == "reply" or each.account == KEY
    looser = resolve(requested, replace(how, policy=OPEN, classes=frozenset(), is_out=False, fan_out=1000))
    assert {each.destination for each in found.intended} <= {each.destination for each in looser.intended}
