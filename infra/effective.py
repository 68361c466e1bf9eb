"""What follows from the settings of channels: who may write, who may link with whom, how long things are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ..commands.channels.ends import TOKEN_CHANNEL
from ..domain.channels.link_policy import LinkPolicy, may_link, reachable, with_tier
from .link_policy import policy_of, token_tiers_of
from .settings import Settings
from .settings_channels import Allowlist, AllowRule, ChannelSettings
from .settings_check_channels import agent_of, effective_allowlist
from .settings_check_kept import BOUNDS
from .shown_settings import plain_value


class Receiving(msgspec.Struct, frozen=True, rename="camel"):
    """How a channel that receives takes messages. allowlist: the one that applies, inherit replaced."""

    agent: str | None
    allowlist: Any
    require_link: bool
    conversation_scope: str
    accept_in_group: str
    response_target: Any
    background: bool


class ChannelView(msgspec.Struct, frozen=True, rename="camel"):
    """A channel. receiving: None where nobody can write over it."""

    kind: str
    tenant: str
    tier: str | None
    clearance: list[str]
    receives: bool
    pushes: bool
    receiving: Receiving | None


class Reach(msgspec.Struct, frozen=True, rename="camel"):
    """What the policy lets somebody do who speaks on a channel of the tenant; `token` is everybody with a token.

    answered_on: where answers to them may be sent, as far as their links and consents go.
    """

    tenant: str
    channel: str
    tier: str | None
    may_link: list[str]
    answered_on: list[str]


class Links(msgspec.Struct, frozen=True, rename="camel"):
    """The link policy. is_set: it is named, and not what the tiers make of it."""

    policy: str
    is_set: bool
    reach: list[Reach]


class Effective(msgspec.Struct, frozen=True, rename="camel"):
    """ttls: by key, as they are set or by default."""

    channels: dict[str, ChannelView]
    linking: Links
    ttls: dict[str, str]


def effective(settings: Settings) -> Effective:
    """What the settings come to. The loader has checked them."""
    return Effective(
        {name: _channel(name, each, settings) for name, each in settings.channels.items()},
        _links(settings),
        dict(_ttls(settings)),
    )


def sentences(found: Effective) -> Iterator[str]:
    """The same as lines for people."""
    for name, channel in found.channels.items():
        can = [word for word, is_so in (("receives", channel.receives), ("pushes", channel.pushes)) if is_so]
        yield f"channel {name}: {channel.kind} of tenant {channel.tenant}; {' and '.join(can)}"
        labels = ", ".join(channel.clearance) or "unrestricted alone"
        yield f"  tier {channel.tier or 'none'}; carries {labels}"
        if channel.receiving is not None:
            yield from _receiving(channel.receiving)
    linking = found.linking
    yield f"link policy: {linking.policy}" + ("" if linking.is_set else ", since linking.policy is not set")
    for reach in linking.reach:
        links, answers = (", ".join(each) or "nothing" for each in (reach.may_link, reach.answered_on))
        tier = f" ({reach.tier})" if reach.tier else ""
        yield f"  {reach.tenant}: {reach.channel}{tier} may be linked with {links}; is answered on {answers}"
    yield "times:"
    for key, text in found.ttls.items():
        yield f"  {key} {text}"


def _receiving(how: Receiving) -> Iterator[str]:
    allowlist = how.allowlist if isinstance(how.allowlist, str) else msgspec.json.encode(how.allowlist).decode()
    linked = "linked ones only" if how.require_link else "linked or not"
    yield f"  agent {how.agent}; who may write: {allowlist}; {linked}"
    target = how.response_target
    target = target if isinstance(target, str) else msgspec.json.encode(target).decode()
    where = " in the background" if how.background else ""
    yield f"  conversations {how.conversation_scope}; in groups {how.accept_in_group}; answers{where} to {target}"


def _channel(name: str, channel: ChannelSettings, settings: Settings) -> ChannelView:
    receiving = None
    if channel.receives:
        receiving = Receiving(
            agent_of(name, settings),
            plain_value(_resolved(effective_allowlist(channel, settings), settings.authorization.allowlist)),
            channel.require_link,
            channel.conversation_scope,
            channel.accept_in_group,
            plain_value(channel.response_target),
            channel.background,
        )
    labels = list(channel.clearance)
    return ChannelView(channel.kind, channel.tenant, channel.tier, labels, channel.receives, channel.pushes, receiving)


def _resolved(allowlist: Allowlist, inherited: Allowlist | None) -> Allowlist:
    """Nothing that is inherited is inherit: the loader refuses it."""
    if isinstance(allowlist, str):
        return inherited if allowlist == "inherit" and inherited is not None else allowlist
    return replace(allowlist, any_of=_all(allowlist.any_of, inherited), all_of=_all(allowlist.all_of, inherited))


def _all(rules: tuple[str | AllowRule, ...] | None, inherited: Allowlist | None) -> tuple[str | AllowRule, ...] | None:
    return None if rules is None else tuple(_resolved(each, inherited) for each in rules)


def _links(settings: Settings) -> Links:
    policy, tiers = policy_of(settings), token_tiers_of(settings)
    tenants = dict.fromkeys(each.tenant for each in settings.channels.values())
    reach = [
        each
        for tenant in tenants
        for each in _reach(settings, tenant, with_tier(policy, TOKEN_CHANNEL, tiers.get(tenant)))
    ]
    return Links(policy.kind, settings.linking.policy is not None, reach)


def _reach(settings: Settings, tenant: str, policy: LinkPolicy) -> Iterator[Reach]:
    own = {name: each for name, each in settings.channels.items() if each.tenant == tenant}
    ends = [TOKEN_CHANNEL, *(name for name, each in own.items() if each.receives)]
    pushed = [name for name, each in own.items() if each.pushes]
    for end in ends:
        others = [other for other in ends if other != end and may_link(policy, end, other)]
        yield Reach(tenant, end, policy.tiers.get(end), others, reachable(policy, end, pushed))


def _ttls(settings: Settings) -> Iterator[tuple[str, str]]:
    for bound in BOUNDS:
        yield f"{bound.section}.{bound.key}", getattr(getattr(settings, bound.section), bound.name)
    for name, channel in settings.channels.items():
        yield f"channels.{name}.expiry", channel.expiry
    for name, issuer in settings.issuers.items():
        if issuer.oidc is not None:
            yield f"issuers.{name}.oidc.claimsTtl", issuer.oidc.claims_ttl
