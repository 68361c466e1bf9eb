"""Conversations as a client has them: start, say, follow, wait for what comes of it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import httpx
from live_server import Frame, Stream, until


def start(client: httpx.Client, agent: str = "echo", **fields: Any) -> str:
    """A new conversation's id."""
    answer = client.post("/v1/conversations", json={"agent": agent, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["id"]


def say(client: httpx.Client, talk: str, text: str, **fields: Any) -> dict[str, Any]:
    """Send a message; the answer of its 202."""
    answer = client.post(f"/v1/conversations/{talk}/turns", json={"text": text, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()


def status(client: httpx.Client, talk: str) -> dict[str, Any]:
    """How it stands."""
    answer = client.get(f"/v1/conversations/{talk}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def history(client: httpx.Client, talk: str, **query: Any) -> list[dict[str, Any]]:
    """A page of records, oldest first where nothing else is asked for."""
    answer = client.get(f"/v1/conversations/{talk}/history", params={"direction": "forward", "limit": 200, **query})
    assert answer.status_code == 200, answer.text
    return answer.json()["entries"]


def replies(client: httpx.Client, talk: str) -> list[dict[str, Any]]:
    """The last 200 records' replies, oldest first."""
    return [entry for entry in reversed(history(client, talk, direction="backward")) if entry["role"] == "assistant"]


def reply(client: httpx.Client, talk: str, turn: int, within_s: float = 15.0) -> dict[str, Any]:
    """The reply of that turn, once it is recorded."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = [entry for entry in replies(client, talk) if entry["turn"] == turn]
        return bool(found)

    until(is_there, within_s, f"the reply of turn {turn}")
    return found[0]


def ask(client: httpx.Client, talk: str, text: str) -> dict[str, Any]:
    """Say something and wait for the reply."""
    turn = status(client, talk)["turns"] + 1
    say(client, talk, text)
    return reply(client, talk, turn)


@contextlib.contextmanager
def listen(client: httpx.Client, talk: str, last_event_id: str | None = None, **query: Any) -> Generator[Stream]:
    """An open stream of a conversation."""
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    with client.stream("GET", f"/v1/conversations/{talk}/events", params=query, headers=headers) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        yield Stream(response)


def frame(stream: Stream, *events: str) -> Frame:
    """The next frame of one of these events; others are left out."""
    while True:
        found = stream.next()
        if found.event in events:
            return found


def words(stream: Stream, turn: int, text: str = "") -> tuple[str, Frame]:
    """What the frames of a running reply come to, and the record that ends it.

    Asserts that every delta follows on what there is, and that the record has what was streamed.
    """
    while True:
        found = frame(stream, "partial", "delta", "reset", "message")
        data = found.json
        if found.event == "message":
            if data["role"] == "assistant" and data["turn"] == turn:
                return text, found
            continue
        if data["turn"] != turn:
            continue
        if found.event == "reset":
            text = ""
        elif found.event == "partial":
            assert data["offset"] == len(data["text"])
            text = data["text"]
        else:
            assert data["offset"] == len(text), (data, text)
            text += data["text"]
