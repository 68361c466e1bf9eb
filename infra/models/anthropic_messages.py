"""Models behind the messages of Anthropic, by the official library."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import anthropic
import msgspec

from ...commands.conversations.ports import CallDelta, Message, ModelPart, ModelRequest, TextDelta, Usage
from .calling import Pace, with_retries
from .calls import Calls
from .service import Unended, failure_of, http_client, quiet
from .wellformed import Joiner

BASE_URL = "https://api.anthropic.com"


class AnthropicMessages:
    """One model of one service. read_s: longest silence within an answer. Close it at the end."""

    def __init__(self, model: str, base_url: str | None, api_key: str, read_s: float, pace: Pace | None = None) -> None:
        quiet("anthropic", "httpx2", "httpcore2")
        self.name = model
        self._pace = pace or Pace()
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=base_url or BASE_URL,
            max_retries=0,
            http_client=http_client(read_s),
            open_telemetry=False,
        )

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        return with_retries(functools.partial(self._attempt, request), failure_of, self._pace)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        create = cast("Any", self._client.messages.create)
        async with await create(**self._body(request)) as events:
            answer = _Answer(request)
            async for event in events:
                for part in answer.parts(event):
                    yield part
            yield answer.end()

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": _messages(request.messages),
            "max_tokens": request.max_output_tokens,
            "stream": True,
        }
        if request.system:
            body["system"] = request.system
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in request.tools
            ]
        return body


class _Answer:
    """An answer as its events come."""

    def __init__(self, request: ModelRequest) -> None:
        self._text = Joiner()
        self._calls = Calls(request)
        self._input = self._output = 0
        self._has_ended = False

    def parts(self, event: Any) -> list[ModelPart]:
        """What an event adds. Raises whatever an event of another shape makes it raise."""
        match event.type:
            case "message_start":
                self._count(event.message.usage)
            case "content_block_start" if event.content_block.type == "tool_use":
                block = event.content_block
                given = msgspec.json.encode(block.input).decode() if block.input else None
                self._calls.add(event.index, block.id, block.name, given)
            case "content_block_start" if event.content_block.type == "text":
                return self._said(event.content_block.text or "")
            case "content_block_delta" if event.delta.type == "text_delta":
                return self._said(event.delta.text)
            case "content_block_delta" if event.delta.type == "input_json_delta":
                self._calls.add(event.index, None, None, event.delta.partial_json)
            case "content_block_stop":
                rest = self._text.rest()
                return [*((TextDelta(rest),) if rest else ()), *(CallDelta(call) for call in self._calls.whole())]
            case "message_delta":
                self._count(event.usage)
            case "message_stop":
                self._has_ended = True
            case _:
                pass  # thoughts, citations, and what services will add
        return []

    def end(self) -> Usage:
        """When the stream ended. Raises Unended where the service did not say that this is all."""
        if not self._has_ended:
            raise Unended
        return Usage(self._input, self._output)

    def _said(self, piece: str) -> list[ModelPart]:
        text = self._text.feed(piece)
        return [TextDelta(text)] if text else []

    def _count(self, usage: Any) -> None:
        """Tokens so far: the counts are running totals, and those that a cache spared are of the prompt too."""
        if usage is None:
            return
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        self._input = max(self._input, sum(int(getattr(usage, name, None) or 0) for name in names))
        self._output = max(self._output, int(usage.output_tokens or 0))


def _messages(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """As this service wants them: results of tools are a user's message, and those of one answer are one message."""
    found: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if found and found[-1]["role"] == role:
            found[-1]["content"] += _blocks(message)
        else:
            found.append({"role": role, "content": _blocks(message)})
    return found


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        block = {"type": "tool_result", "tool_use_id": message.call_id or ""}
        return [block | ({"content": message.text} if message.text else {})]
    # A text of white space alone is refused there.
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    return [
        *text,
        *(
            {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
            for call in message.calls
        ),
    ]
