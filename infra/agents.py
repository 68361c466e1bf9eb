"""The agents of the settings, ready to work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from ..commands.conversations.ports import Agent, ModelProvider, Tool
from ..domain.conversations.counting import Counter
from .counters import counter_of
from .models.providers import Closable, provider_of
from .settings import Settings
from .settings_check_conversations import ECHO
from .settings_conversations import AgentSettings
from .tools.toolbox import Toolbox


class _Made(NamedTuple):
    """What an agent is made of once; its tools may change."""

    declared: AgentSettings
    provider: ModelProvider
    counter: Counter
    closable: Closable | None


class ReadyAgents(Mapping[str, Agent]):
    """The agents by name, each with the tools that there are now. `start` before the first turn, `close` at the end."""

    def __init__(self, made: Mapping[str, _Made], toolbox: Toolbox) -> None:
        self._made = made
        self._toolbox = toolbox
        self._agents: dict[str, Agent] = {}
        self._version = -1

    def __getitem__(self, name: str) -> Agent:
        if self._version != self._toolbox.version:
            self._version = self._toolbox.version
            self._agents = {each: _agent(each, of, self._toolbox) for each, of in self._made.items()}
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)

    async def start(self) -> None:
        """Open what the agents work with, bounded in time. What cannot be reached is opened when it can be."""
        await self._toolbox.start()

    async def close(self) -> None:
        """Close it."""
        await self._toolbox.close()
        for each in self._made.values():
            if each.closable is not None:
                await each.closable.close()


def agents_of(settings: Settings) -> ReadyAgents:
    """The declared agents; on a development server `echo` beside them, which may call every tool.

    Raises SettingsError, with the key, for what cannot be loaded.
    """
    declared = dict(settings.agents)
    if settings.is_development and ECHO not in declared:
        declared[ECHO] = AgentSettings(provider="scripted", tools=_open_to_all(settings))
    made = {name: _made(f"agents.{name}", each, settings) for name, each in declared.items()}
    return ReadyAgents(made, Toolbox(settings, (tool for each in declared.values() for tool in each.tools)))


def _open_to_all(settings: Settings) -> tuple[str, ...]:
    return tuple(name for name, tool in settings.tools.items() if tool.is_callable and tool.approval == "none")


def _made(key: str, declared: AgentSettings, settings: Settings) -> _Made:
    counter = counter_of(f"{key}.counter", declared.counter)
    provider, closable = provider_of(key, declared, settings.conversations)
    return _Made(declared, provider, counter, closable)


def _agent(name: str, made: _Made, toolbox: Toolbox) -> Agent:
    declared, tools = made.declared, toolbox.tools_of(made.declared.tools)
    return Agent(
        name=name,
        provider=made.provider,
        system=declared.system,
        tools=tools,
        counter=made.counter,
        context_window=declared.context_window,
        reserve_output_tokens=declared.reserved,
        max_steps=declared.max_steps,
        summarizer=declared.summarizer,
        tokens_per_turn=declared.turn_ceiling,
        tokens_per_day=declared.budget.tokens_per_day or 0,
        digest=_digest_of(declared, tools),
        memory="" if declared.memory is None else declared.memory.scope,
    )


def _digest_of(declared: AgentSettings, tools: tuple[Tool, ...]) -> str:
    """SHA-256, in hex, of all that the declaration says but its secret, and of the tools as a model is shown them."""
    said = {name: getattr(declared, name) for name in declared.__struct_fields__ if name != "api_key"}
    shown = sorted((each.spec.name, each.spec.description, each.spec.schema) for each in tools)
    return hashlib.sha256(msgspec.json.encode((said, shown), order="deterministic")).hexdigest()
