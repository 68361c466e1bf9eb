"""Where an answer goes, from what was asked for and how things stand when its turn has ended (delivery.md, Routing).

A destination that may not get it is skipped, and no other takes its place: the set only ever becomes smaller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from msgspec import UNSET, Struct, UnsetType

from ..channels.link_policy import LinkPolicy, permits
from ..linking.events import Push
from .events import AnswerRequested, Form, NamedEnd, SkippedTarget, SkipReason
from .target import FAN_OUT, ORIGINATING, ResponseTarget

FROM_API = "api"
"""The label of what was asked with a token and not on a channel."""


class ChannelFacts(Struct, frozen=True):
    """What answers must know of a channel of the settings. is_own: it has a destination of its own, declared by the
    operator. is_inbox: this server's own inbox. labels: what it may carry, beside what is not restricted. target,
    is_background: of the turns that come over it, unless they say otherwise."""

    tenant: str
    can_push: bool
    is_own: bool = False
    is_inbox: bool = False
    labels: frozenset[str] = frozenset()
    tier: str | UnsetType = UNSET
    target: ResponseTarget = ORIGINATING
    is_background: bool = False


class Reachable(Struct, frozen=True):
    """An end as it is now. account: the isolation key that it belongs to. destination: keyed hash of its address.
    cleared: whether its person may see the classes of this answer; their own answers they may."""

    channel: str
    native: str
    account: str
    destination: str
    push: Push
    is_active: bool = True
    is_cleared: bool = False


class Around(Struct, frozen=True):
    """How things stand. channels: of the tenant. ends: of the account that asked, the one that spoke last first.
    origin: the end that it was asked on, None where nothing is known of it. named: those of the target's identities
    that have spoken. own: destinations of channels that have one of their own, by channel; inboxes: likewise, of the
    person's inbox, by channel. classes: of the answer. is_out: the asker takes no part in the conversation any more."""

    channels: Mapping[str, ChannelFacts]
    policy: LinkPolicy
    ends: tuple[Reachable, ...] = ()
    origin: Reachable | None = None
    named: Mapping[NamedEnd, Reachable] = {}
    own: Mapping[str, str] = {}
    inboxes: Mapping[str, Reachable] = {}
    classes: frozenset[str] = frozenset()
    is_out: bool = False
    fan_out: int = FAN_OUT


class Destination(Struct, frozen=True):
    """One that gets a delivery; see IntendedTarget. recipient, account: UNSET of a channel's own destination."""

    channel: str
    destination: str
    form: Form
    recipient: str | UnsetType = UNSET
    account: str | UnsetType = UNSET
    is_pushed: bool = False
    label: str | UnsetType = UNSET


class Resolution(Struct, frozen=True):
    """Each destination once, in the order in which they were named."""

    intended: tuple[Destination, ...]
    skipped: tuple[SkippedTarget, ...]


class _Wish(Struct, frozen=True):
    """A destination that was asked for. end: None where there is nobody. destination: UNSET likewise. is_shared: others
    read there."""

    channel: str
    end: Reachable | None
    destination: str | UnsetType
    is_shared: bool = False


def resolve(requested: AnswerRequested, around: Around) -> Resolution:
    """Who gets the answer, and who does not and why."""
    intended: dict[str, Destination] = {}
    skipped: dict[SkippedTarget, None] = {}
    for wish in _wishes(requested, around):
        found = _judged(requested, around, wish)
        if not isinstance(found, Destination):
            skipped[SkippedTarget(wish.channel, found)] = None
        elif found.destination in intended or len(intended) < around.fan_out:
            intended.setdefault(found.destination, found)
        else:
            skipped[SkippedTarget(wish.channel, "fan_out")] = None
    return Resolution(tuple(intended.values()), tuple(skipped))


def may_carry(facts: ChannelFacts, classes: Collection[str]) -> bool:
    """Whether a channel may carry what has those classes."""
    return facts.labels.issuperset(classes)


def consents(push: Push, *, is_own: bool) -> bool:
    """Whether a person wants an answer on that end: to what they asked, or to what somebody else did."""
    return push == "all" or (is_own and push == "replies")


def _wishes(requested: AnswerRequested, around: Around) -> Iterator[_Wish]:
    match requested.kind:
        case "originating" if requested.destination is not UNSET:
            yield _Wish(requested.source, around.origin, requested.destination, requested.is_group)
        case "active":
            active = (end for end in _pushable(around) if end.is_active)
            yield from (_to(end.channel, end) for end in islice(active, 1))
        case "channel" | "channels":
            yield from (_on(name, around) for name in requested.channels)
        case "identities":
            yield from (_to(each.channel, around.named.get(each)) for each in requested.identities)
        case "all_linked":
            yield from (_to(end.channel, end) for end in _pushable(around))
        case _:
            return


def _pushable(around: Around) -> Iterator[Reachable]:
    """The account's ends on channels of the settings: that of a token is on none."""
    return (end for end in around.ends if end.channel in around.channels)


def _to(channel: str, end: Reachable | None) -> _Wish:
    return _Wish(channel, end, UNSET if end is None else end.destination)


def _on(name: str, around: Around) -> _Wish:
    """The person's end on that channel that spoke last; else the channel's own destination, where it has one."""
    end = next((each for each in around.ends if each.channel == name), around.inboxes.get(name))
    if end is not None:
        return _to(name, end)
    return _Wish(name, None, around.own.get(name, UNSET), is_shared=name in around.own)


def _judged(requested: AnswerRequested, around: Around, wish: _Wish) -> Destination | SkipReason:
    refused = _refused(requested, around, wish)
    if refused is not None or wish.destination is UNSET:
        return refused or "not_linked"
    end, is_here = wish.end, wish.destination == requested.destination
    form = _form(around, wish, is_mine=_is_mine(requested, wish), is_here=is_here)
    if form is None:
        return "audience"
    crosses = wish.is_shared and not is_here and not requested.is_group
    native, account = (requested.native, requested.account) if is_here else (UNSET, UNSET)
    return Destination(
        wish.channel,
        wish.destination,
        form,
        native if end is None else end.native,
        account if end is None else end.account,
        is_pushed=not is_here,
        label=_label(requested, around) if crosses else UNSET,
    )


def _refused(requested: AnswerRequested, around: Around, wish: _Wish) -> SkipReason | None:
    """What stands against a destination, whatever the answer says."""
    facts, is_mine = around.channels.get(wish.channel), _is_mine(requested, wish)
    if around.is_out:
        return "not_authorized"
    if facts is None or not facts.can_push:
        return "no_push"
    if wish.destination is UNSET or (wish.destination == requested.destination and not is_mine):
        return "not_linked"
    if not permits(around.policy, requested.source, wish.channel):
        return "link_policy"
    wants = wish.end is None or facts.is_inbox or consents(wish.end.push, is_own=is_mine)
    return None if wants else "muted"


def _is_mine(requested: AnswerRequested, wish: _Wish) -> bool:
    return wish.end is None or wish.end.account == requested.account


def _form(around: Around, wish: _Wish, *, is_mine: bool, is_here: bool) -> Form | None:
    """What goes there; None for nothing. A pointer is for the asker alone, or for the chat where they asked: to nobody
    else it is of any use."""
    if not around.classes:
        return "reply"
    is_cleared = is_mine or (wish.end is not None and wish.end.is_cleared)
    if is_cleared and may_carry(around.channels[wish.channel], around.classes):
        return "reply"
    return "pointer" if is_here or (is_mine and not wish.is_shared) else None


def _label(requested: AnswerRequested, around: Around) -> str:
    return requested.source if requested.source in around.channels else FROM_API
