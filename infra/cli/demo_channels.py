"""The demo's channels: a person links two chats, asks in one, goes on in the other, and has the answer there, once."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from ..api_client import Api, refusal_of
from ..settings_load import CONFIG_NAME
from ..webhooks import signed_headers
from .demo_talk import ANSWER_S, TalkFailed

CHAT, PHONE = "demo-chat", "demo-phone"
"""Channels; both are webhooks, as a bridge to any messenger is one."""

PERSON = {CHAT: "ann", PHONE: "ann-on-the-phone"}
"""How each channel calls the same person."""

ASKED = "!slow 12 400"
"""Asks the scripted model for 12 words, one in 400 ms: long enough to go away."""

CONFIG = "demo.toml"
"""The settings file of the demo's server: the user's own, and the channels."""

MAX_BODY_BYTES = 1 << 20

_CODE = re.compile(r"\b[0-9A-Z]{4}-[0-9A-Z]{4}\b")
_CONFIRM = re.compile(r"/confirm \w+")


class Chats:
    """What both chats show: a server that takes what is sent to them, signed for each. `close` ends it.

    Place and secrets are those of the demo before, since the server that it left may still send.
    """

    def __init__(self, data_dir: Path) -> None:
        kept = _kept(data_dir / CONFIG)
        self._inbound = {name: str(kept.get(name, {}).get("inboundSecret") or _secret()) for name in PERSON}
        self._outbound = {name: str(kept.get(name, {}).get("secret") or _secret()) for name in PERSON}
        self._shown: dict[str, list[str]] = {name: [] for name in PERSON}
        self._keys: set[str] = set()
        self._server = self._bound(urlsplit(str(kept.get(CHAT, {}).get("url", ""))).port or 0)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Take nothing any more."""
        self._server.shutdown()
        self._server.server_close()

    def write_config(self, data_dir: Path) -> Path:
        """The settings file for the server, readable by its owner alone."""
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        own, path = data_dir / CONFIG_NAME, data_dir / CONFIG
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(f"{own.read_text('utf-8') if own.exists() else ''}\n{self._settings()}", "utf-8")
        return path

    def shown(self, name: str) -> list[str]:
        """The texts of a chat, in order."""
        return list(self._shown[name])

    async def wait(self, name: str, what: re.Pattern[str]) -> str:
        """What of the newest text matches, once it is there. Raises TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                for text in reversed(self._shown[name]):
                    if (found := what.search(text)) is not None:
                        return found[0]
                await asyncio.sleep(0.05)

    async def say(self, client: httpx.AsyncClient, name: str, text: str, **fields: Any) -> dict[str, Any]:
        """A message of the person over a channel, as its bridge would sign it. Raises Refused."""
        said = {"command": text} if text.startswith(("/link", "/confirm", "/unlink")) else {"text": text}
        message_id = secrets.token_hex(16)
        body = json.dumps({"from": PERSON[name], "messageId": message_id, **said, **fields}).encode()
        headers = signed_headers(Webhook(self._inbound[name]), message_id, datetime.now(UTC), body)
        response = await client.post(f"/v1/channels/{name}/inbound", content=body, headers=headers)
        if not response.is_success:
            raise refusal_of(response, response.content)
        return response.json()

    def _bound(self, port: int) -> ThreadingHTTPServer:
        try:
            return ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        except OSError:
            return ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    def _settings(self) -> str:
        host, port = self._server.server_address[:2]
        return "\n".join(
            f'[channels.{name}]\nkind = "webhook"\nagent = "echo"\nallowlist = "open"\nallowLoopback = true\n'
            f'url = "http://{host!s}:{port}/{name}"\nsecret = "{self._outbound[name]}"\n'
            f'inboundSecret = "{self._inbound[name]}"\n'
            for name in PERSON
        )

    def _take(self, name: str, headers: dict[str, str], body: bytes) -> int:
        try:
            document = Webhook(self._outbound[name]).verify(body, headers)
        except (KeyError, WebhookVerificationError):
            return 401
        key = headers["webhook-id"]
        if key not in self._keys:  # a second one of the same key would be the same message
            self._keys.add(key)
            self._shown[name].append(document["data"]["text"])
        return 204

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        chats = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = min(int(self.headers.get("content-length", "0")), MAX_BODY_BYTES)
                headers = {name.lower(): value for name, value in self.headers.items()}
                self.send_response(chats._take(self.path.strip("/"), headers, self.rfile.read(size)))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
                pass

        return Handler


async def deliver(client: httpx.AsyncClient, chats: Chats, operator: Api, say: Callable[[str], None]) -> None:
    """Link, ask, go away, be answered, part. operator: of the group of operators. Raises TalkFailed, TimeoutError,
    Refused, and as Api.call."""
    await chats.say(client, CHAT, "/link")
    code = await chats.wait(CHAT, _CODE)
    await chats.say(client, PHONE, f"/link {code}")
    confirm = await chats.wait(CHAT, _CONFIRM)
    await chats.say(client, CHAT, confirm)
    await chats.wait(CHAT, re.compile("linked now"))
    say(f"{CHAT} and {PHONE} belong to one person: /link {code}, {confirm}")
    asked = await chats.say(client, CHAT, ASKED, background=True, responseTarget={"kind": "active"})
    say(f"asked in {CHAT}: {ASKED}; its continuation expires {asked['continuation']['expiresAt']}")
    await chats.say(client, PHONE, "I am on the train now.")
    answer = await chats.wait(PHONE, re.compile(r"^w1 .* w12$"))
    say(f"answered on {PHONE}, where they were last: {answer}")
    rows = await _settled(operator, str(asked["id"]))
    for row in rows:
        say(f"an operator sees {row['channel']} {row['destination'][:12]}... {row['state']}, and no word of it")
    await chats.say(client, PHONE, "/unlink")
    await chats.wait(PHONE, re.compile("on its own again"))
    shown = chats.shown(PHONE).count(answer), chats.shown(CHAT).count(answer)
    if shown != (1, 0) or [(row["channel"], row["state"]) for row in rows] != [(PHONE, "accepted")]:
        raise TalkFailed(f"The answer was shown {shown[0]} times where it belongs and {shown[1]} times elsewhere.")


async def _settled(operator: Api, correlation_id: str) -> list[dict[str, Any]]:
    """The deliveries of one request once all have ended, or as they are after ANSWER_S."""
    until = time.monotonic() + ANSWER_S
    while True:
        found = await operator.call("GET", "/v1/ops/deliveries", params={"correlation": correlation_id})
        rows: list[dict[str, Any]] = found["deliveries"]
        if (
            all(row["state"] in ("accepted", "dead", "cancelled", "expired") for row in rows)
            or time.monotonic() > until
        ):
            return rows
        await asyncio.sleep(0.05)


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """The channels of the demo before; empty where there was none."""
    try:
        return tomllib.loads(path.read_text("utf-8"))["channels"]
    except (OSError, ValueError, KeyError):
        return {}


def _secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
