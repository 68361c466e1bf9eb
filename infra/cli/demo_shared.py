"""The demo's shared conversation: one asks about a secret, and the other one sees that something was asked."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import httpx

from ..api_client import Api
from ..conversation_client import ConversationFollower, entries, said
from .chat_view import prompt_of, withheld
from .demo_talk import AGENT, ANSWER_S, TalkFailed

SECRET = "secret"  # noqa: S105 - a label
"""A class that nobody of the demo has a label for: who asked sees it all the same."""

ASKED = (
    ("operator", "What is the combination of the vault?", (SECRET,)),
    ("viewer", "What did I miss?", ()),
)


async def share(client: httpx.AsyncClient, people: Api, viewer: Api, name: str, say: Callable[[str], None]) -> None:
    """Hold it, both ways of looking at it. name: the viewer's principal. Raises TalkFailed, TimeoutError, and as
    Api.call."""
    body = {"agent": AGENT, "mode": "shared"}
    answer = await people.call("POST", "/v1/conversations", body, key=secrets.token_hex(16))
    conversation_id = str(answer["id"])
    path = f"/v1/conversations/{conversation_id}"
    await people.call("PUT", f"{path}/participants/{name}", {}, key=secrets.token_hex(16))
    say(f"conversation {conversation_id}, shared with {name}")
    follower = ConversationFollower(client, viewer.token, conversation_id, tail=2 * len(ASKED))
    streamed: list[dict[str, Any]] = []
    async with asyncio.timeout(ANSWER_S), contextlib.aclosing(follower.frames()) as frames:
        for (_, text, classes), api in zip(ASKED, (people, viewer), strict=True):
            key = secrets.token_hex(16)
            await api.call("POST", f"{path}/turns", {"text": text, "messageId": key, "classes": classes}, key=key)
        async for frame in frames:
            if frame.event == "message":
                streamed.append(said(frame))
            if len(streamed) == 2 * len(ASKED):
                break
    mine, theirs = [[entry async for entry in entries(api, conversation_id)] for api in (people, viewer)]
    say("who asked reads:")
    _tell(mine, say)
    say("the other one reads, and was streamed:")
    _tell(streamed, say)
    statuses = [entry["status"] for entry in theirs]
    _check(streamed == theirs, "What was streamed is not what the history has.")
    _check(statuses == ["restricted", "restricted", "accepted", "completed"], f"The viewer's history says {statuses}.")
    _check(ASKED[0][1] not in repr(streamed), "The viewer got what they are not cleared for.")
    _check(ASKED[0][1] in mine[1]["text"], "Who asked did not get the answer.")


def _tell(found: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    for entry in found:
        words = withheld(entry)
        before = prompt_of(entry) if entry["role"] == "user" else ""
        say(f"  {words or before + entry['text']}")


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise TalkFailed(otherwise)
