"""People's ends on a running server, put there as channels would: spoken, linked, muted, unlinked."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from live_server import LiveServer
from minutebook.commands.channels.ends import TOKEN_CHANNEL
from minutebook.commands.linking.handling import Linking
from minutebook.domain.channels.link_policy import LinkPolicy
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.linking.decide import End
from minutebook.domain.linking.events import Push
from minutebook.domain.principals import DEFAULT_TENANT, SERVER
from minutebook.infra.key_file import open_key
from minutebook.infra.link_hashes import KeyedLinkHashes
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.ends import PostgresEnds
from minutebook.infra.postgres.link_table import PostgresLinkTable
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.server_key import KEY_NAME
from ulid_transform import ulid_now

T = TypeVar("T")


class _Desk:
    """Linking and ends as one process has them."""

    def __init__(self, store: PostgresStore, table: PostgresLinkTable, ends: PostgresEnds, key: bytes) -> None:
        self.ends = ends
        self.linking = Linking(
            store, table, KeyedLinkHashes(key), LinkPolicy("allow_all"), _now, ulid_now, secrets.randbits
        )

    async def person(self, name: str) -> End:
        return await self.linking.end_of(DEFAULT_TENANT, TOKEN_CHANNEL, f"human:{name}", is_person=True)

    async def chat(self, channel: str, native_id: str) -> End:
        return await self.linking.end_of(DEFAULT_TENANT, channel, native_id)


class AnswerOffice:
    """What a test does to the ends of a server's people."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server

    def speak(self, channel: str, native_id: str) -> None:
        """Somebody says something to the agent, in private."""

        async def act(desk: _Desk) -> None:
            end = await desk.chat(channel, native_id)
            own = desk.linking.own_key(DEFAULT_TENANT, channel, native_id)
            await desk.ends.note(DEFAULT_TENANT, end.linked, own, address(channel, native_id), native_id)

        self._work(act)

    def link(self, person: str, channel: str, native_id: str, push: Push = "replies") -> str:
        """All three steps, and then a word on that channel; the link's id."""

        async def act(desk: _Desk) -> str:
            begun = await desk.linking.begin(await desk.person(person), SERVER)
            shown = await desk.linking.present(await desk.chat(channel, native_id), begun.code, SERVER)
            page, name = await desk.person(person), f"human:{person}"
            await desk.linking.confirm(page, shown.link_id, shown.consent_digest, push, SERVER)
            own = desk.linking.own_key(DEFAULT_TENANT, TOKEN_CHANNEL, name)
            at = Address(TOKEN_CHANNEL, name, Place(""))
            await desk.ends.note(DEFAULT_TENANT, page.linked, own, at, person, is_message=False)
            return shown.link_id

        link_id = self._work(act)
        self.speak(channel, native_id)
        return link_id

    def push(self, person: str, link_id: str, push: Push) -> None:
        """What may be sent there is something else."""

        async def act(desk: _Desk) -> None:
            await desk.linking.change_push(await desk.person(person), link_id, push, SERVER)

        self._work(act)

    def unlink(self, person: str, link_id: str) -> None:
        """The link goes; the process that follows accounts does the rest."""

        async def act(desk: _Desk) -> None:
            await desk.linking.unlink(await desk.person(person), link_id, SERVER)

        self._work(act)

    def _work(self, act: Callable[[_Desk], Awaitable[T]]) -> T:
        async def run() -> T:
            key = open_key(self._server.data_dir / KEY_NAME, "dataDir")
            url = self._server.database_url("app")
            async with make_pool(url, "app", max_size=2, statement_timeout_ms=10_000) as pool:
                appender = Appender(pool)
                appender.start()
                try:
                    store = PostgresStore(pool, appender)
                    return await act(_Desk(store, PostgresLinkTable(pool, _now), PostgresEnds(pool), key))
                finally:
                    await appender.close()

        return asyncio.run(run())


def address(channel: str, native_id: str) -> Address:
    """Where somebody is reached on a channel."""
    return Address(channel, native_id, Place(f"chat of {native_id}"))


def _now() -> datetime:
    return datetime.now(UTC)
