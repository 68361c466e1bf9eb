"""The agents of the settings, ready to work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..commands.conversations.ports import Agent, ModelProvider, Tool
from .counters import counter_of
from .models.providers import Closable, provider_of
from .settings import Settings
from .settings_check_conversations import ECHO
from .settings_conversations import AgentSettings


class ReadyAgents(Mapping[str, Agent]):
    """The agents by name. `start` before the first turn, `close` at the end."""

    def __init__(self, agents: Mapping[str, Agent], closables: Sequence[Closable]) -> None:
        self._agents = dict(agents)
        self._closables = closables

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
        for each in self._closables:
            await each.close()


def agents_of(settings: Settings) -> ReadyAgents:
    """The declared agents; on a development server `echo` beside them, which may call every tool.

    Raises SettingsError, with the key, for what cannot be loaded.
    """
    declared = dict(settings.agents)
    if settings.is_development and ECHO not in declared:
        declared[ECHO] = AgentSettings(provider="scripted", tools=_open_to_all(settings))
    made = {name: provider_of(f"agents.{name}", each, settings.conversations) for name, each in declared.items()}
    agents = {name: _agent(name, each, made[name][0], ()) for name, each in declared.items()}
    return ReadyAgents(agents, [closable for _, closable in made.values() if closable is not None])


def _open_to_all(settings: Settings) -> tuple[str, ...]:
    return tuple(name for name, tool in settings.tools.items() if tool.is_callable and tool.approval == "none")


def _agent(name: str, declared: AgentSettings, provider: ModelProvider, tools: tuple[Tool, ...]) -> Agent:
    return Agent(
        name=name,
        provider=provider,
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


def digest_of(declared: AgentSettings, tools: tuple[Tool, ...]) -> str:
    """SHA-256, in hex, of all that the declaration says but its secret, and of the tools as a model is shown them."""
    said = {name: getattr(declared, name) for name in declared.__struct_fields__ if name != "api_key"}
    shown = sorted((each.spec.name, each.spec.description, each.spec.schema) for each in tools)
    return hashlib.sha256(msgspec.json.encode((said, shown), order="deterministic")).hexdigest()
