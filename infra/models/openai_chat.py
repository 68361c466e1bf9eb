"""Models behind the chat completions of OpenAI, and of every server that speaks them; by the official library."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import msgspec
import openai
from openai.types.chat import ChatCompletionChunk

from ...commands.conversations.ports import CallDelta, Message, ModelPart, ModelRequest, TextDelta, Usage
from .calling import Pace, with_retries
from .calls import Calls
from .estimate import estimated
from .service import Unended, failure_of, http_client, quiet
from .wellformed import Joiner

BASE_URL = "https://api.openai.com/v1"

NO_KEY = "none"
"""Sent to servers that want none."""


class OpenAiChat:
    """One model of one service. read_s: longest silence within an answer. Close it at the end."""

    def __init__(
        self, model: str, base_url: str | None, api_key: str | None, read_s: float, pace: Pace | None = None
    ) -> None:
        quiet("openai", "httpx2", "httpcore2")
        self.name = model
        self._is_theirs = base_url is None
        self._pace = pace or Pace()
        self._client = openai.AsyncOpenAI(
            api_key=api_key or NO_KEY,
            base_url=base_url or BASE_URL,
            max_retries=0,
            http_client=http_client(read_s),
        )

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        return with_retries(functools.partial(self._attempt, request), failure_of, self._pace)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelPart, None]:
        create = cast("Any", self._client.chat.completions.create)
        async with await create(**self._body(request)) as chunks:
            answer = _Answer(request)
            async for chunk in chunks:
                for part in answer.parts(chunk):
                    yield part
            for part in answer.end():
                yield part

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        # Their own newer models refuse the older name of the limit; most other servers know that one alone.
        limit = "max_completion_tokens" if self._is_theirs else "max_tokens"
        body: dict[str, Any] = {
            "model": self.name,
            "messages": _messages(request),
            limit: request.max_output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema},
                }
                for tool in request.tools
            ]
        return body


class _Answer:
    """An answer as its chunks come."""

    def __init__(self, request: ModelRequest) -> None:
        self._request = request
        self._text = Joiner()
        self._calls = Calls(request)
        self._chars = 0
        self._has_ended = False
        self._usage: Usage | None = None

    def parts(self, chunk: ChatCompletionChunk) -> list[ModelPart]:
        """What a chunk adds. Raises whatever a chunk of another shape makes it raise."""
        if chunk.usage is not None:
            self._usage = Usage(int(chunk.usage.prompt_tokens), int(chunk.usage.completion_tokens))
        found: list[ModelPart] = []
        for choice in (chunk.choices or ())[:1]:
            # A refusal is what the model says, too.
            piece = (choice.delta.content or "") + (choice.delta.refusal or "") if choice.delta else ""
            if text := self._text.feed(piece):
                found.append(TextDelta(text))
                self._chars += len(text)
            for call in (choice.delta.tool_calls or ()) if choice.delta else ():
                name, arguments = (call.function.name, call.function.arguments) if call.function else (None, None)
                self._calls.add(call.index, call.id, name, arguments)
            self._has_ended = self._has_ended or choice.finish_reason is not None
        return found

    def end(self) -> list[ModelPart]:
        """What is left when the stream ended. Raises Unended where the service did not say that this is all."""
        if not self._has_ended:
            raise Unended
        rest = self._text.rest()
        calls = [CallDelta(call) for call in self._calls.whole()]
        usage = self._usage or estimated(self._request, self._chars, calls)
        return [*((TextDelta(rest),) if rest else ()), *calls, usage]


def _messages(request: ModelRequest) -> list[dict[str, Any]]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return [*system, *(_message(each) for each in request.messages)]


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id or "", "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
        }
        for call in message.calls
    ]
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}
