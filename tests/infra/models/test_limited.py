"""Limits in time that hold whatever a provider does, and the provider that a declaration asks for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from in_loop import in_loop
from minutebook.commands.conversations.ports import (
    Message,
    ModelError,
    ModelPart,
    ModelRequest,
    TextDelta,
    Usage,
)
from minutebook.infra.models import limited
from minutebook.infra.models.limited import MAX_WAITING_PARTS, LimitedProvider
from minutebook.infra.models.providers import provider_of
from minutebook.infra.models.scripted import ScriptedProvider
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_conversations import AgentSettings, ConversationSettings


def asked(text: str) -> ModelRequest:
    return ModelRequest("", (Message("user", text),), (), 100)


def provider(first_s: float = 5, idle_s: float = 5) -> LimitedProvider:
    return LimitedProvider(ScriptedProvider(), first_s, idle_s)


async def parts(of: LimitedProvider, text: str) -> list[ModelPart]:
    return [part async for part in of.stream(asked(text))]


@in_loop
async def test_an_answer_passes_as_it_is() -> None:
    found = await parts(provider(), "a b")
    assert found == [part async for part in ScriptedProvider().stream(asked("a b"))]
    assert isinstance(found[-1], Usage)


@in_loop
async def test_the_first_part_has_its_limit() -> None:
    with pytest.raises(ModelError, match="first part"):
        await parts(provider(first_s=0.05), "!hang")


@in_loop
async def test_every_next_part_has_its_limit() -> None:
    with pytest.raises(ModelError, match="next part"):
        await parts(provider(idle_s=0.05), "!slow 2 30000")


@in_loop
async def test_an_error_passes_as_it_is() -> None:
    with pytest.raises(ModelError) as caught:
        await parts(provider(), "!fail 503")
    assert caught.value.status == 503


class Stubborn:
    """A provider that goes on when it is cancelled, until the test lets it go."""

    name = "stubborn"

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.ended = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        yield TextDelta("one")
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()


@in_loop
async def test_a_provider_that_ignores_cancellation_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "GRACE_S", 0.05)
    stubborn = Stubborn()
    wrapped = LimitedProvider(stubborn, 5, 0.05)
    with pytest.raises(ModelError, match="next part"):
        await asyncio.wait_for(parts(wrapped, "x"), 5)
    assert len(wrapped._stray) == 1
    stubborn.let_go.set()
    await stubborn.ended.wait()


class Eager:
    """A provider that counts what it gave away."""

    name = "eager"

    def __init__(self) -> None:
        self.given = 0
        self.closed = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        try:
            while True:
                self.given += 1
                yield TextDelta("x")
        finally:
            self.closed.set()


@in_loop
async def test_what_is_not_wanted_yet_is_not_read_without_end_and_closing_ends_the_call() -> None:
    eager = Eager()
    async with aclosing(LimitedProvider(eager, 5, 5).stream(asked("x"))) as stream:
        assert await anext(stream) == TextDelta("x")
        for _ in range(10):
            await asyncio.sleep(0)
        assert eager.given <= MAX_WAITING_PARTS + 3
    assert eager.closed.is_set()


MODULE_OF = {"openai": "openai_chat", "anthropic": "anthropic_messages"}
LIMITS = ConversationSettings()


def declared(provider: Any, **more: Any) -> AgentSettings:
    return AgentSettings(provider=provider, model="m", api_key="k", base_url="http://127.0.0.1:9/v1", **more)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_missing_library_stops_the_start_with_what_to_install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "minutebook.infra.models." + MODULE_OF[name], raising=False)
    with pytest.raises(SettingsError, match=rf"^agents.ops.provider = .*minutebook\[{name}\]"):
        provider_of("agents.ops", declared(name), LIMITS)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
@in_loop
async def test_a_provider_of_a_service_has_something_to_close(name: str) -> None:
    made, closable = provider_of("agents.ops", declared(name), LIMITS)
    assert made.name == "m"
    assert closable is not None
    await closable.close()


def test_the_scripted_provider_needs_nothing() -> None:
    made, closable = provider_of("agents.ops", AgentSettings(provider="scripted"), LIMITS)
    assert (made.name, closable) == ("scripted", None)
