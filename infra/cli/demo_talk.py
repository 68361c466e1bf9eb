"""The demo's conversation: a person asks, sees the words come, stops an answer, and reads all of it again."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx

from ..api_client import Api
from ..conversation_client import ConversationFollower, entries, said

AGENT = "echo"
"""Always there on a development server; its scripted model needs no service."""

QUESTION = "Which release is the oldest one?"
LONG_QUESTION = "!slow 400 25"
"""Asks the scripted model for 400 words, one in 25 ms."""

ENOUGH_CHARS = 40
"""Of the long answer; then the person has read enough."""

ANSWER_S = 30.0
"""Longest wait for an answer."""


class TalkFailed(Exception):
    """The conversation was not what it must be."""


async def talk(client: httpx.AsyncClient, api: Api, say: Callable[[str], None]) -> str:
    """Hold the conversation; its id. Raises TalkFailed, TimeoutError, and as Api.call."""
    answer = await api.call("POST", "/v1/conversations", {"agent": AGENT}, key=secrets.token_hex(16))
    conversation_id = str(answer["id"])
    say(f"conversation {conversation_id} with the agent {AGENT}")
    path = f"/v1/conversations/{conversation_id}"
    follower = ConversationFollower(client, api.token, conversation_id)
    async with asyncio.timeout(ANSWER_S), contextlib.aclosing(follower.frames()) as frames:
        await _send(api, path, QUESTION)
        text, reply = await _answer(frames)
        _check(
            reply["status"] == "completed" and reply["text"].startswith(text), "The answer is not what was streamed."
        )
        say(f"> {QUESTION}")
        say(reply["text"])
        await _send(api, path, LONG_QUESTION)
        text, _ = await _answer(frames, ENOUGH_CHARS)
        await api.call("POST", f"{path}/interrupt", {"turn": 2, "seen": len(text)}, key=secrets.token_hex(16))
        _, reply = await _answer(frames)
        _check(reply["status"] == "interrupted" and reply["seen"] == len(text), "The answer was not stopped.")
        say(f"> {LONG_QUESTION}")
        say(f"{reply['text'][: reply['seen']]} ... stopped behind {reply['seen']} characters")
    history = [entry async for entry in entries(api, conversation_id)]
    statuses = [entry["status"] for entry in history]
    _check(statuses == ["accepted", "completed", "accepted", "interrupted"], f"The history says {statuses}.")
    say(f"its history has {len(history)} records: {', '.join(statuses)}")
    return conversation_id


async def _send(api: Api, path: str, text: str) -> None:
    message_id = secrets.token_hex(16)
    await api.call("POST", f"{path}/turns", {"text": text, "messageId": message_id}, key=message_id)


async def _answer(frames: AsyncGenerator[Any], enough: int | None = None) -> tuple[str, dict[str, Any]]:
    """What came of an answer word by word, and its record; without one where `enough` came before it."""
    text = ""
    async for frame in frames:
        data = said(frame)
        if frame.event in ("partial", "delta"):
            text = data["text"] if frame.event == "partial" else text + data["text"]
            if enough is not None and len(text) >= enough:
                return text, {}
        elif frame.event == "message" and data["role"] == "assistant":
            return text, data
    raise TalkFailed("The stream ended before the answer.")


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise TalkFailed(otherwise)
