"""A provider that needs no model: for demos and tests, and it says so in its name (http.md, Conversations)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from ...commands.conversations.ports import (
    CallDelta,
    Message,
    ModelError,
    ModelPart,
    ModelRequest,
    TextDelta,
    Usage,
)
from ...domain.conversations.fence import unfenced
from ...domain.conversations.turn_events import WantedCall

MAX_WORDS = 100_000
"""Of `!slow`."""

MAX_PAUSE_MS = 60_000

_SLOW = re.compile(r"!slow +([0-9]{1,6}) +([0-9]{1,5})\s*", re.ASCII)
_FAIL = re.compile(r"!fail +([1-5][0-9]{2})\s*", re.ASCII)
_TOOL = re.compile(r"!tool +([A-Za-z0-9_.-]{1,128}) +(\{.*\})\s*", re.ASCII | re.DOTALL)
_HANG = re.compile(r"!hang\s*")
_WORD = re.compile(r"\s*\S+\s*")


class ScriptedProvider:
    """Answers `echo: ` and the user's words, one delta a word; no network, no chance, no clock but for `!slow`.

    A text that begins with `!slow <n> <ms>` gets n numbered words at that pace; `!fail <status>` fails as a service
    would with that status; `!tool <name> <json object>` calls a tool and answers with its result; `!hang` never ends.
    Anything else, also what only looks like one of these, is echoed. A token is a word.
    """

    def __init__(self, model: str | None = None) -> None:
        self.name = "scripted" if model is None else f"scripted {model}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        output = 0
        async for part in self._parts(request.messages):
            output += 1
            yield part
        yield Usage(input=_words_in(request), output=output)

    async def _parts(self, messages: tuple[Message, ...]) -> AsyncIterator[ModelPart]:
        if messages and messages[-1].role == "tool":
            for word in _words("\n".join(_results(messages))):
                yield TextDelta(word)
            return
        text = unfenced(next((each.text for each in reversed(messages) if each.role == "user"), ""))
        if (slow := _SLOW.fullmatch(text)) is not None and int(slow[1]) <= MAX_WORDS and int(slow[2]) <= MAX_PAUSE_MS:
            async for delta in _paced(int(slow[1]), int(slow[2]) / 1000):
                yield delta
        elif (fail := _FAIL.fullmatch(text)) is not None:
            raise ModelError("the script says so", int(fail[1]))
        elif _HANG.fullmatch(text) is not None:
            await asyncio.Event().wait()
        elif (call := _call(text, messages)) is not None:
            yield CallDelta(call)
        else:
            for word in _words(f"echo: {text}"):
                yield TextDelta(word)


async def _paced(count: int, pause_s: float) -> AsyncIterator[TextDelta]:
    for number in range(1, count + 1):
        if number > 1:
            await asyncio.sleep(pause_s)
        yield TextDelta(f"w{number}" if number == count else f"w{number} ")


def _call(text: str, messages: tuple[Message, ...]) -> WantedCall | None:
    if (wanted := _TOOL.fullmatch(text)) is None:
        return None
    try:
        arguments: Any = json.loads(wanted[2])
    except (ValueError, RecursionError):
        return None
    number = 1 + sum(len(each.calls) for each in messages)
    return WantedCall(f"call-{number}", wanted[1], cast("dict[str, Any]", arguments))


def _results(messages: tuple[Message, ...]) -> list[str]:
    """What the tools said that were called last, in the order of the calls."""
    results: list[str] = []
    for each in reversed(messages):
        if each.role != "tool":
            break
        results.append(each.text)
    return results[::-1]


def _words(text: str) -> Iterator[str]:
    """The text in pieces of a word each with the white space around it; together they are the text."""
    return (match[0] for match in _WORD.finditer(text)) if text.strip() else iter((text,) if text else ())


def _words_in(request: ModelRequest) -> int:
    return sum(len(text.split()) for text in (request.system, *(each.text for each in request.messages)))
