"""Platforms that call a server's channels with real signatures, where it sends to, and what it has stored."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import itertools
import json
import re
import time
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
from channel_scenes import whsec
from live_server import REQUEST_S, LiveServer, until
from outside import Outside, Reply, Request, serving
from standardwebhooks.webhooks import Webhook

HOOK, OTHER, TELEGRAM, SLACK, MAIL = (
    whsec("i"),
    whsec("j"),
    "telegram-secret-token",
    "slack-signing-secret",
    "relay-token",
)

CONFIG = f"""
[authorization]
allowlist = {{ nativeIds = ["7", "ann", "U7", "ann@acme.example"] }}

[channels.hook]
kind = "webhook"
tenant = "acme"
url = "{{url}}/hook"
secret = "{whsec("o")}"
inboundSecret = "{HOOK}"
allowLoopback = true
allowlist = "open"
agent = "echo"

[channels.other]
kind = "webhook"
tenant = "acme"
inboundSecret = "{OTHER}"
allowlist = "inherit"
agent = "echo"

[channels.tg]
kind = "telegram"
tenant = "acme"
token = "77:token"
inboundSecret = "{TELEGRAM}"
baseUrl = "{{url}}"
botName = "minute_bot"
allowLoopback = true
agent = "echo"

[channels.sl]
kind = "slack"
tenant = "acme"
token = "xoxb-1"
inboundSecret = "{SLACK}"
baseUrl = "{{url}}"
allowLoopback = true
agent = "echo"

[channels.mail]
kind = "email"
tenant = "acme"
inboundSecret = "{MAIL}"
authservId = "mx.example"
allowlist = {{ claim = "email", values = ["ann@acme.example"] }}
responseTarget = "none"
agent = "echo"

[channels.sealed]
kind = "webhook"
tenant = "acme"
url = "{{url}}/sealed"
secret = "{whsec("p")}"
allowLoopback = true
"""
"""sealed: nothing comes in over it."""

_numbers = itertools.count(1)


def fresh(prefix: str = "m") -> str:
    """An id that no other message has."""
    return f"{prefix}-{next(_numbers)}-{time.time_ns()}"


def number() -> int:
    """Likewise, as a number."""
    return time.time_ns() // 1000 + next(_numbers)


class Platforms(Outside):
    """Every platform's other end: takes all that is sent, and keeps it."""

    def __init__(self) -> None:
        super().__init__(lambda _: Reply(200, b'{"ok":true,"result":{"message_id":42},"ts":"1.2"}'))

    def texts(self, chat: str) -> list[str]:
        """What was sent to a chat or user, in order."""
        with self.lock:
            return [text for each in self.requests for to, text in [_sent(each)] if to == chat]

    def until_texts(self, chat: str, word: str, count: int) -> None:
        """Wait for so many texts with that word."""
        until(lambda: sum(word in text for text in self.texts(chat)) >= count, 20.0, f"{count} times {word!r}")

    def told(self, chat: str, word: str, within_s: float = 20.0) -> str:
        """The newest text with that word, once it is there."""
        until(lambda: any(word in text for text in self.texts(chat)), within_s, f"{word!r} for {chat}")
        return next(text for text in reversed(self.texts(chat)) if word in text)


def _sent(request: Request) -> tuple[str, str]:
    document = request.json
    if "data" in document:
        return document["data"]["to"].get("nativeId", ""), document["data"]["text"]
    return str(document.get("chat_id", document.get("channel"))), document["text"]


class Desk:
    """A server with its platforms."""

    def __init__(self, server: LiveServer, platforms: Platforms) -> None:
        self.server = server
        self.platforms = platforms
        self.http = httpx.Client(base_url=server.url, timeout=REQUEST_S)

    def hook(
        self, text: str | None = "hello", sender: str = "ann", *, name: str = "hook", secret: str = HOOK, **fields: Any
    ) -> httpx.Response:
        """A message over a webhook, signed now."""
        document = {"from": sender, "messageId": fields.pop("messageId", None) or fresh(), **fields}
        return self.signed(document if text is None else {**document, "text": text}, name, secret)

    def signed(self, document: Any, name: str = "hook", secret: str = HOOK, to: str = "inbound") -> httpx.Response:
        """Any document, signed now."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.post(name, body, signature(secret, body), to)

    def post(self, name: str, body: bytes, headers: dict[str, str], to: str = "inbound") -> httpx.Response:
        """Bytes as they are."""
        return self.http.post(f"/v1/channels/{name}/{to}", content=body, headers=headers)

    def telegram(
        self, text: str = "hello", user: int = 7, chat: int | None = None, *, update: int | None = None, **fields: Any
    ) -> httpx.Response:
        """A message to the bot; in a group where another chat than the user's is named."""
        place = {"id": user, "type": "private"} if chat is None else {"id": chat, "type": "supergroup"}
        sender = {"id": user, "is_bot": False, "first_name": "Ann"}
        message = {"message_id": 1, "date": 1, "chat": place, "from": sender, "text": text, **fields}
        body = json.dumps({"update_id": update or number(), "message": message}).encode()
        return self.post("tg", body, {"x-telegram-bot-api-secret-token": TELEGRAM, "content-type": "application/json"})

    def slack(self, text: str = "hello", chat: str = "D7", user: str = "U7", **fields: Any) -> httpx.Response:
        """An event of the app."""
        event = {"type": "message", "user": user, "text": text, "ts": f"{number()}.1", "channel": chat, **fields}
        document = {"type": "event_callback", "team_id": "T1", "event_id": fresh("Ev"), "event": event}
        return self.slack_body(json.dumps(document).encode())

    def slack_body(self, body: bytes, kind: str = "application/json") -> httpx.Response:
        """Bytes as Slack signs them."""
        return self.post("sl", body, slack_signature(body, kind))

    def slack_command(self, command: str, text: str = "", chat: str = "D7", user: str = "U7") -> httpx.Response:
        """A slash command."""
        form = {"command": command, "text": text, "user_id": user, "channel_id": chat, "trigger_id": fresh()}
        return self.slack_body(urlencode(form).encode(), "application/x-www-form-urlencoded")

    def mail(
        self, text: str = "hello", author: str = "ann@acme.example", message_id: str | None = None
    ) -> httpx.Response:
        """A mail as the relay hands it over."""
        domain = author.rpartition("@")[2]
        lines = [
            f"Authentication-Results: mx.example; dmarc=pass header.from={domain}",
            f"From: {author}",
            f"Message-ID: <{message_id or fresh()}@{domain}>",
            "Content-Type: text/plain; charset=utf-8",
            "",
            text,
        ]
        headers = {"authorization": f"Bearer {MAIL}", "content-type": "message/rfc822"}
        return self.post("mail", "\r\n".join(lines).encode(), headers)

    def linked(self, person: str, sender: str) -> httpx.Client:
        """The page of a person, of whose account a webhook's sender is from now on."""
        page = self.server.client(f"human:{person}", "agents-member", tenant="acme")
        begun = page.post("/v1/links", json={"channel": "hook", "mechanism": "code"}).json()
        self.hook(None, sender=sender, command=f"link {begun['code']}")
        (pending,) = page.get("/v1/links").json()["pending"]
        consent = {"consentDigest": pending["consentDigest"], "push": "replies"}
        answer = page.post(f"/v1/links/{begun['id']}/confirm", json=consent)
        assert answer.status_code == 200, answer.text
        return page

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Of the database, as its superuser."""
        with self.server.sql() as connection:
            return connection.execute(query, values).fetchall()  # pyright: ignore[reportArgumentType]

    def decided(self, correlation_id: str) -> dict[str, Any]:
        """The event of a message, by the id that its sender was told."""
        ((payload,),) = self.rows(
            "SELECT payload FROM minutebook.events WHERE type = 'inbound_decided' AND payload ->> 'correlationId' = %s",
            correlation_id,
        )
        return payload

    def newest(self, channel: str) -> dict[str, Any]:
        """The event of the newest message of a channel."""
        return self.rows(
            "SELECT payload FROM minutebook.events WHERE type = 'inbound_decided' AND payload ->> 'channel' = %s"
            " ORDER BY ts DESC LIMIT 1",
            channel,
        )[0][0]

    def count(self) -> int:
        """Messages that were decided."""
        return self.rows("SELECT count(*) FROM minutebook.events WHERE type = 'inbound_decided'")[0][0]

    def asked(self, conversation_id: str) -> list[str]:
        """The questions of a conversation, once none of them waits."""
        until(lambda: not self._waiting(conversation_id), what="the turns of the conversation")
        return [
            row[0]
            for row in self.rows(
                "SELECT e.payload ->> 'text' FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
                " WHERE s.name = %s AND e.type = 'envelope_received' AND e.payload ->> 'kind' = 'user' ORDER BY e.seq",
                f"conversation:{conversation_id}",
            )
        ]

    def owner(self, conversation_id: str) -> str:
        """Whose it is."""
        ((payload,),) = self.rows(
            "SELECT e.payload FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
            " WHERE s.name = %s AND e.seq = 1",
            f"conversation:{conversation_id}",
        )
        return payload["owner"]["actor"]

    def _waiting(self, conversation_id: str) -> bool:
        ((asked, answered),) = self.rows(
            "SELECT count(*) FILTER (WHERE e.type = 'envelope_received' AND e.payload ->> 'kind' = 'user'),"
            " count(*) FILTER (WHERE e.type = 'reply_recorded')"
            " FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.name = %s",
            f"conversation:{conversation_id}",
        )
        return asked > answered


def signature(secret: str, body: bytes, *, at: float | None = None, message_id: str | None = None) -> dict[str, str]:
    """Headers of Standard Webhooks. at: Unix seconds, now where it is not given."""
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    name = message_id or fresh("msg")
    return {
        "webhook-id": name,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(secret).sign(name, moment, body.decode()),
        "content-type": "application/json",
    }


def slack_signature(
    body: bytes, kind: str = "application/json", *, at: float | None = None, secret: str = SLACK
) -> dict[str, str]:
    """Headers as Slack signs them. at: as in signature."""
    stamp = str(int(time.time() if at is None else at))
    mac = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mac}", "content-type": kind}


@contextlib.contextmanager
def inbound_desk(folder: Path, *, more: str = "", **options: Any) -> Generator[Desk]:
    """A server of its own. more: settings behind CONFIG, of its form."""
    with serving(Platforms()) as platforms:
        text = re.sub(r"\{url\}", platforms.url, (CONFIG + more).replace("{{", "{").replace("}}", "}"))
        with LiveServer(folder, config=text, **options) as server:
            desk = Desk(server, platforms)
            try:
                yield desk
            finally:
                desk.http.close()
