"""A server with channels and an identity provider, and a way to speak as an end of one of its channels."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from live_server import LiveServer
from minutebook.commands.linking.handling import Begun, Linking, Mechanism, Shown
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.linking.decide import End
from minutebook.domain.principals import Principal
from minutebook.infra.key_file import open_key
from minutebook.infra.link_hashes import KeyedLinkHashes
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.ends import PostgresEnds
from minutebook.infra.postgres.link_table import PostgresLinkTable
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.sign_ins import PostgresSnapshots
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.server_key import KEY_NAME
from msgspec import Struct
from oidc_provider import CLIENT_ID, CLIENT_SECRET, ISSUER, OidcProvider
from ulid_transform import ulid_now

CONFIG = """
[issuers.corp]
issuer = "{issuer}"
audience = "minutebook"
jwksUrl = "{provider}/jwks"
kind = "human"
tenants = ["acme", "umbrella"]
cliClients = ["cli"]
[issuers.corp.oidc]
clientId = "{client_id}"
clientSecret = "{client_secret}"
authorizeUrl = "{provider}/authorize"
tokenUrl = "{provider}/token"
redirectUrl = "http://127.0.0.1:1/v1/links/oidc/corp/callback"
allowLoopback = true
[agents.echo]
provider = "scripted"
[conversations]
key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
claims = ["email"]
[authorization]
allowlist = "open"
[channels.tg]
kind = "telegram"
tenant = "acme"
token = "12:abcdefgh"
inboundSecret = "telegram-secret-token"
botName = "minutes"
[channels.push]
kind = "webhook"
tenant = "acme"
url = "https://hook.example/in"
secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
[channels.page]
kind = "web"
tenant = "acme"
[channels.theirs]
kind = "telegram"
tenant = "umbrella"
token = "13:abcdefgh"
inboundSecret = "another-secret-token"
botName = "minutes"
"""

T = TypeVar("T")


def config(provider: OidcProvider) -> str:
    """The settings of the server."""
    return CONFIG.format(issuer=ISSUER, provider=provider.url, client_id=CLIENT_ID, client_secret=CLIENT_SECRET)


class Links(Struct, frozen=True):
    """Linking of a process beside the server, with what it knows."""

    linking: Linking
    ends: PostgresEnds
    snapshots: PostgresSnapshots


class LinkWorld:
    """A person has a page; another end speaks through Linking, as a channel's inbound message does."""

    def __init__(self, server: LiveServer, provider: OidcProvider) -> None:
        self.server = server
        self.provider = provider

    def person(self, name: str, tenant: str = "acme", **claims: Any) -> httpx.Client:
        """A client with a token of that person."""
        client = self.server.client()
        token = self.provider.token(sub=name, tenant=tenant, **claims)
        self.server.tokens.add(token)
        client.headers["authorization"] = f"Bearer {token}"
        return client

    def work(self, act: Callable[[Links], Awaitable[T]], ago: timedelta = timedelta()) -> T:
        """Something with a Linking of its own, as another process would; whose clock is behind by so much."""

        def now() -> datetime:
            return datetime.now(UTC) - ago

        async def run() -> T:
            key = open_key(self.server.data_dir / KEY_NAME, "dataDir")
            async with make_pool(
                self.server.database_url("app"), "app", max_size=2, statement_timeout_ms=10_000
            ) as pool:
                appender = Appender(pool, notify=False)
                appender.start()
                try:
                    linking = Linking(
                        PostgresStore(pool, appender),
                        PostgresLinkTable(pool, now),
                        KeyedLinkHashes(key),
                        LinkPolicy("allow_all"),
                        now,
                        ulid_now,
                        secrets.randbits,
                        url_of=lambda _tenant, link_id: f"/v1/links/oidc/corp/start?id={link_id}",
                        failing_s=0.0,
                    )
                    return await act(Links(linking, PostgresEnds(pool), PostgresSnapshots(pool)))
                finally:
                    await appender.close()

        return asyncio.run(run())

    def begin(
        self,
        chat: str,
        mechanism: Mechanism = "code",
        *,
        tenant: str = "acme",
        channel: str = "tg",
        ago: timedelta = timedelta(),
    ) -> Begun:
        """/link in a chat."""

        async def act(made: Links) -> Begun:
            end = await speak(made, tenant, channel, chat)
            return await made.linking.begin(end, guest(end), mechanism)

        return self.work(act, ago)

    def present(self, chat: str, code: str, tenant: str = "acme", *, is_group: bool = False) -> Shown:
        """/link CODE in a chat. Raises NotVisible."""

        async def act(made: Links) -> Shown:
            end = await speak(made, tenant, "tg", chat)
            return await made.linking.present(end, code, guest(end), is_group=is_group)

        return self.work(act)

    def confirm(self, chat: str, tenant: str = "acme") -> None:
        """/confirm in a chat, of the newest presentation."""

        async def act(made: Links) -> None:
            end = await speak(made, tenant, "tg", chat)
            shown = [each for each in await made.linking.begun_by(end) if each.presented is not None][-1]
            assert shown.presented is not None
            digest = shown.presented.consent_digest
            await made.linking.confirm(end, shown.link_id, digest, "replies", guest(end))

        self.work(act)

    def account(self, chat: str, tenant: str = "acme") -> str:
        """The isolation key that a chat has now."""

        async def act(made: Links) -> str:
            return (await made.linking.end_of(tenant, "tg", chat)).account

        return self.work(act)

    def claims(self, chat: str) -> dict[str, tuple[str, ...]]:
        """What is known of the person behind a chat."""

        async def act(made: Links) -> dict[str, tuple[str, ...]]:
            return dict(await made.snapshots.of("acme", (await made.linking.end_of("acme", "tg", chat)).account))

        return self.work(act)


class Browser:
    """A browser of somebody who signs in: it keeps the server's cookie, and follows the provider's page."""

    def __init__(self, world: LinkWorld) -> None:
        self.client = world.server.client()
        self.client.headers["accept"] = "text/html"
        self._provider = world.provider

    def start(self, url: str) -> httpx.Response:
        """Open the URL of a link."""
        parts = urlsplit(url)
        return self.client.get(f"{parts.path}?{parts.query}")

    def sign_in(self, sent: httpx.Response) -> str:
        """Sign in where the server has sent it; the path and query that the provider sends it back to."""
        assert sent.status_code == 303, sent.text
        back = httpx.get(sent.headers["location"])
        parts = urlsplit(back.headers["location"])
        return f"{parts.path}?{parts.query}"

    def go(self, url: str) -> httpx.Response:
        """All of it, up to the question whether the link is wanted; the first answer that is no redirect."""
        answer = self.client.get(self.sign_in(self.start(url)))
        return self.client.get(answer.headers["location"]) if answer.status_code == 303 else answer


async def speak(made: Links, tenant: str, channel: str, chat: str) -> End:
    """The proven end of a chat, which is known from now on."""
    end = await made.linking.end_of(tenant, channel, chat)
    own_key = made.linking.own_key(tenant, channel, chat)
    await made.ends.note(tenant, end.linked, own_key, Address(channel, chat, Place(chat)), f"@{chat}")
    return end


def guest(end: End) -> Principal:
    """As whom an end acts."""
    return Principal.guest(end.account)
