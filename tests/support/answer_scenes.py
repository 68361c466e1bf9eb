"""Turns whose answers go over channels, on a running server; a receiver stands behind all of its channels."""

from __future__ import annotations

import itertools
import json
from typing import Any, NamedTuple

import httpx
from answer_office import AnswerOffice
from delivery_desk import SECRET, Receiver
from inbound_scenes import HOOK as INBOUND
from inbound_scenes import signature
from live_server import LiveServer, until
from talks import say, start

HOOKS = 26
"""Channels with a destination of their own, h1 to h26: one more than an answer may go to."""

_numbers = itertools.count(1)

_CHANNEL = """
[channels.{name}]
kind = "webhook"
url = "{url}/{name}"
secret = "{secret}"
allowLoopback = true
retry = {{ attempts = 3, from = "1s", to = "1s" }}
"""

_OTHER = """
[channels.theirs]
kind = "webhook"
tenant = "elsewhere"
url = "{url}/theirs"
secret = "{secret}"
allowLoopback = true
[channels.cleared]
kind = "webhook"
url = "{url}/cleared"
secret = "{secret}"
allowLoopback = true
clearance = ["secret"]
[channels.talkative]
kind = "webhook"
url = "{url}/talkative"
secret = "{secret}"
inboundSecret = "{inbound}"
allowlist = "open"
allowLoopback = true
[channels.tg]
kind = "telegram"
token = "123:abc"
baseUrl = "{url}"
allowLoopback = true
[channels.box]
kind = "web"
[channels.broken]
kind = "webhook"
url = "http://127.0.0.1:9/nobody"
secret = "{secret}"
allowLoopback = true
retry = {{ attempts = 2, from = "1s", to = "1s" }}
[delivery]
pushesPerHour = 5
"""
"""box: this server's own inbox. broken: nobody ever listens there."""


def config(url: str) -> str:
    """The settings: hooks, and chats of people."""
    names = [*(f"h{n}" for n in range(1, HOOKS + 1)), "chat", "mail"]
    channels = "".join(_CHANNEL.format(name=name, url=url, secret=SECRET) for name in names)
    return channels + _OTHER.format(url=url, secret=SECRET, inbound=INBOUND)


class Routes(NamedTuple):
    """What a test of routing has."""

    server: LiveServer
    receiver: Receiver
    office: AnswerOffice

    def turn(self, client: httpx.Client, text: str, target: dict[str, Any] | None, **fields: Any) -> str:
        """Say something in a conversation of its own, whose id it answers."""
        talk = start(client)
        if target is not None:
            fields["responseTarget"] = target
        say(client, talk, text, **fields)
        return talk

    def write(self, sender: str, text: str, **fields: Any) -> str:
        """Somebody writes on the channel that takes messages; the message's id."""
        message_id = f"m-{next(_numbers)}"
        document = {"from": sender, "messageId": message_id, "text": text, **fields}
        body = json.dumps(document).encode()
        answer = httpx.post(
            f"{self.server.url}/v1/channels/talkative/inbound", content=body, headers=signature(INBOUND, body)
        )
        assert answer.status_code == 202, answer.text
        assert answer.json()["outcome"] == "accepted", answer.text
        return message_id

    def settled(self, client: httpx.Client, talk: str, count: int, turn: int = 1) -> dict[str, Any]:
        """The targets of a turn once so many of its deliveries have ended."""
        found: dict[str, Any] = {}

        def is_done() -> bool:
            found.update(targets(client, talk, turn))
            ended = [each for each in found["intended"] if each["state"] in ("accepted", "dead", "cancelled")]
            return len(ended) == count

        until(is_done, 20, f"{count} deliveries", every_s=0.1)
        return found

    def got(self, marker: str) -> list[tuple[str, str, str]]:
        """What came of an answer with that word in it: channel, whom it was to, text; each part once."""
        seen: dict[str, tuple[str, str, str]] = {}
        for request in self.receiver.requests:
            data = request.json["data"]
            if marker in data["text"]:
                to = data["to"].get("nativeId", "")
                seen[request.headers["webhook-id"]] = (request.path.strip("/"), to, data["text"])
        return sorted(seen.values())


def targets(client: httpx.Client, talk: str, turn: int = 1) -> dict[str, Any]:
    """GET .../targets; empty while the turn has not begun."""
    answer = client.get(f"/v1/conversations/{talk}/turns/{turn}/targets")
    if answer.status_code == 404:
        return {"intended": [], "skipped": []}
    assert answer.status_code == 200, answer.text
    return answer.json()
