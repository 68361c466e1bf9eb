"""Conversations of thousands of turns, written through the store as the runner would, without running any."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from live_server import LiveServer
from minutebook.commands.conversations.encoding import Scribe
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.ports import Append, EventRow, no_redaction
from minutebook.commands.streams import load
from minutebook.domain.conversations.commands import SendTurn
from minutebook.domain.conversations.decide import Received, send_turn
from minutebook.domain.conversations.evolve import evolve
from minutebook.domain.conversations.fit import Fitted
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.judge import Good
from minutebook.domain.conversations.state import Conversation
from minutebook.domain.conversations.turns import Outcome, Shown, accept, end_turn, is_rotation_due, rotate
from minutebook.domain.decisions import Decision
from minutebook.domain.events import Recorded
from minutebook.domain.principals import DEFAULT_TENANT, Principal
from minutebook.infra.conversation_keys import conversation_keys
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.settings import Settings
from ulid_transform import ulid_now

BATCH = 400
"""Rows of one append."""

FITTED = Fitted((), (), (), {}, 50, {"system": 10, "prompt": 40})
SHOWN = Shown(FITTED, 4096, 0, "0" * 64, "0" * 64, "0" * 64, "scripted")


def prolong(server: LiveServer, talk: str, person: str, turns: int) -> None:
    """Add so many finished turns to a conversation of `human:<person>` that runs none."""
    asyncio.run(_prolong(server, talk, Principal("human", person), turns))


class _Writer:
    """Folds what it decides, and keeps the rows for the next append."""

    def __init__(self, scribe: Scribe, stream: str, state: Conversation, version: int) -> None:
        self.state = state
        self.version = version
        self.rows: list[EventRow] = []
        self._scribe = scribe
        self._stream = stream

    def add(self, decision: Decision) -> Any:
        """The last event of the decision, signed."""
        decided = self._scribe.encode(self._stream, self.version, decision)
        for row, (actor, event) in zip(decided.rows, decided.events, strict=True):
            self.version += 1
            self.state = evolve(self.state, Recorded(self.version, actor, None, None, event))
            self.rows.append(row)
        return decided.events[-1][1]


async def _prolong(server: LiveServer, talk: str, who: Principal, turns: int) -> None:
    keys, stream = conversation_keys(Settings(data_dir=server.data_dir)), stream_of(talk)
    pool = make_pool(server.database_url("app"), "app", max_size=2, statement_timeout_ms=60_000)
    await pool.open(wait=True)
    appender = Appender(pool, writers=1)
    appender.start()
    store = PostgresStore(pool, appender)
    try:
        loaded = await load(store, conversation_kind(keys, talk), stream)
        assert loaded is not None
        writer = _Writer(Scribe(keys, no_redaction, ulid_now), stream, loaded.state, loaded.head.version)
        identity = Identity(str(who), DEFAULT_TENANT)
        for number in range(turns):
            received = Received(identity, who, datetime.now(UTC), {}, ulid_now())
            envelope = writer.add(send_turn(writer.state, SendTurn(f"question {number}"), received))
            writer.add(accept(writer.state, Good(writer.version, envelope), SHOWN))
            turn = writer.state.turns
            writer.add(end_turn(writer.state, turn, Outcome("completed", f"answer {number}")))
            if is_rotation_due(writer.state):
                writer.add(rotate(writer.state))
            if len(writer.rows) >= BATCH or number == turns - 1:
                await _append(store, stream, writer)
    finally:
        await appender.close()
        await pool.close()


async def _append(store: PostgresStore, stream: str, writer: _Writer) -> None:
    outcome = (await store.append([Append(stream, writer.version - len(writer.rows), writer.rows)]))[0]
    assert outcome.kind == "appended", outcome
    writer.rows = []
