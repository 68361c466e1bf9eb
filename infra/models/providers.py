"""The provider that an agent's declaration asks for, with its limits in time."""

from __future__ import annotations

from typing import Protocol

from ...commands.conversations.ports import ModelProvider
from ..settings import SettingsError
from ..settings_conversations import AgentSettings, ConversationSettings
from .limited import LimitedProvider
from .scripted import ScriptedProvider


class Closable(Protocol):
    """What has connections to close."""

    async def close(self) -> None:
        """Close them."""
        ...


def provider_of(
    key: str, declared: AgentSettings, limits: ConversationSettings
) -> tuple[ModelProvider, Closable | None]:
    """The provider, and what to close at the end. key: of the declaration, `agents.<name>`.

    The libraries of services are extras, and are imported here only. Raises SettingsError where one is missing.
    """
    provider: ModelProvider
    closable = None
    model, read_s = declared.model or "", float(limits.first_delta_seconds)
    try:
        if declared.provider == "scripted":
            provider = ScriptedProvider(declared.model)
        elif declared.provider == "openai":
            from .openai_chat import OpenAiChat  # noqa: PLC0415 - needs its extra

            provider = closable = OpenAiChat(model, declared.base_url, declared.api_key, read_s)
        else:
            from .anthropic_messages import AnthropicMessages  # noqa: PLC0415 - likewise

            provider = closable = AnthropicMessages(model, declared.base_url, declared.api_key or "", read_s)
    except ModuleNotFoundError as error:
        library = declared.provider
        if error.name != library:
            raise
        raise SettingsError(
            f'{key}.provider = "{library}" needs the library {library}: pip install "minutebook[{library}]".'
        ) from None
    return LimitedProvider(provider, limits.first_delta_seconds, limits.idle_seconds), closable
