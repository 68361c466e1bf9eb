"""The agents of the settings, ready to work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from ..commands.conversations.ports import Agent, ModelProvider, Tool
from .counters import counter_of
from .models.scripted import ScriptedProvider
from .settings import Settings, SettingsError
from .settings_check_conversations import ECHO
from .settings_conversations import AgentSettings


class ReadyAgents(Mapping[str, Agent]):
    """The agents by name. `start` before the first turn, `close` at the end."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = dict(agents)

    def __getitem__(self, name: str) -> Agent:
        return self._agents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._agents)

    def __len__(self) -> int:
        return len(self._agents)

    async def start(self) -> None:
        """Open what the agents work with. Never raises: what cannot be reached is opened when it can be."""

    async def close(self) -> None:
        """Close it."""


def agents_of(settings: Settings) -> ReadyAgents:
    """The declared agents; on a development server `echo` beside them, which may call every tool.

    Raises SettingsError, with the key, for what cannot be loaded.
    """
    declared = dict(settings.agents)
    if settings.is_development and ECHO not in declared:
        declared[ECHO] = AgentSettings(provider="scripted", tools=_open_to_all(settings))
    return ReadyAgents({name: _agent(name, each, ()) for name, each in declared.items()})


def _open_to_all(settings: Settings) -> tuple[str, ...]:
    return tuple(name for name, tool in settings.tools.items() if tool.is_callable and tool.approval == "none")


def _agent(name: str, declared: AgentSettings, tools: tuple[Tool, ...]) -> Agent:
    return Agent(
        name=name,
        provider=_provider(f"agents.{name}", declared),
        system=declared.system,
        tools=tools,
        counter=counter_of(f"agents.{name}.counter", declared.counter),
        context_window=declared.context_window,
        reserve_output_tokens=declared.reserved,
        max_steps=declared.max_steps,
        summarizer=declared.summarizer,
        tokens_per_turn=declared.turn_ceiling,
        tokens_per_day=declared.budget.tokens_per_day or 0,
        digest=digest_of(declared, tools),
    )


def _provider(key: str, declared: AgentSettings) -> ModelProvider:
    if declared.provider != "scripted":
        raise SettingsError(f"{key}.provider: {declared.provider} is not built yet.")
    return ScriptedProvider(declared.model)


def digest_of(declared: AgentSettings, tools: tuple[Tool, ...]) -> str:
    """SHA-256, in hex, of all that the declaration says but its secret, and of the tools as a model is shown them."""
    said = {name: getattr(declared, name) for name in declared.__struct_fields__ if name != "api_key"}
    shown = sorted((each.spec.name, each.spec.description, each.spec.schema) for each in tools)
    return hashlib.sha256(msgspec.json.encode((said, shown), order="deterministic")).hexdigest()
