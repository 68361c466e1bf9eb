"""The settings of receiving channels as rules that messages are judged by, and the callables of their allowlists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec

from ...commands.channels.inbound_ports import ChannelRules
from ...domain.channels.allowlist import (
    AllOf,
    Allowlist,
    AnyOf,
    Asked,
    Asks,
    ClaimValues,
    NativeIds,
    Open,
    callables,
)
from ..python_callable import named_callable
from ..questions import ANSWER_S, Questions
from ..settings import Settings, SettingsError
from ..settings_channels import Allowlist as AllowSetting
from ..settings_channels import AllowRule
from ..settings_check_channels import agent_of, effective_allowlist

PROGRAMS = frozenset({"webhook"})
"""Kinds of channels whose senders read what they are answered."""


def rules_of(settings: Settings) -> dict[str, ChannelRules]:
    """By name, for the channels that receive. The loader has checked that each says who may write and who answers."""
    made: dict[str, ChannelRules] = {}
    for name, channel in settings.channels.items():
        agent = agent_of(name, settings)
        if channel.receives and agent is not None:
            made[name] = ChannelRules(
                channel.tenant,
                agent,
                _allowlist(effective_allowlist(channel, settings), settings),
                channel.require_link,
                channel.accept_in_group,
                channel.conversation_scope,
                channel.kind in PROGRAMS,
                channel.background,
            )
    return made


class AllowCallables:
    """Callables of commands/channels/inbound_ports.py. One per process and loop.

    Each is asked with one mapping: tenant, channel, nativeId, attributes, claims; and answers allow, deny or abstain.
    """

    def __init__(self, rules: Mapping[str, ChannelRules], folder: Path | None, answer_s: float = ANSWER_S) -> None:
        """folder: where modules are found beside installed ones. Raises SettingsError for a callable that there is not,
        or that does not take one argument."""
        names = frozenset[str]().union(*(callables(each.allowlist) for each in rules.values()))
        self._functions = {name: _callable(name, folder) for name in names}
        self._questions = Questions("allowlist", answer_s)

    async def ask(self, allowlist: Allowlist, asked: Asked) -> Mapping[str, object]:
        """See Callables."""
        found: dict[str, object] = {}
        for name in sorted(callables(allowlist)):
            found[name] = await self._questions.ask(self._functions[name], lambda: (_shown(asked),))
        return found


def _callable(name: str, folder: Path | None) -> Callable[..., Any]:
    key = "the allowlist of a channel"
    found = named_callable(key, name, folder)
    try:
        signature(found).bind({})
    except (TypeError, ValueError):
        raise SettingsError(f"{key}: {name} must take one argument, who is asked for.") from None
    return found


def _shown(asked: Asked) -> dict[str, Any]:
    identity = asked.identity
    return {
        "tenant": identity.tenant,
        "channel": identity.channel,
        "nativeId": identity.native_id,
        "attributes": msgspec.to_builtins(identity.attributes),
        "claims": msgspec.to_builtins(asked.claims),
    }


def _allowlist(setting: AllowSetting, settings: Settings) -> Allowlist:
    if isinstance(setting, str):
        inherited = settings.authorization.allowlist
        # Nothing that is inherited is inherit: the loader refuses it.
        return Open() if setting == "open" or inherited is None else _allowlist(inherited, settings)
    return _rule(setting, settings)


def _rule(rule: AllowRule, settings: Settings) -> Allowlist:
    if rule.native_ids is not None:
        return NativeIds(frozenset(rule.native_ids))
    if rule.claim is not None:
        return ClaimValues(rule.claim, frozenset(rule.values or ()))
    if rule.any_of is not None:
        return AnyOf(tuple(_allowlist(each, settings) for each in rule.any_of))
    if rule.all_of is not None:
        return AllOf(tuple(_allowlist(each, settings) for each in rule.all_of))
    return Asks(rule.python or "")
