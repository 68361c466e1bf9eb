"""What works at conversations in a serving process: their commands, the runner of their turns, and the deltas."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import AsyncGenerator, Callable

import msgspec
from ulid_transform import ulid_now

from ..commands.beside import Admit
from ..commands.conversations.encoding import Scribe
from ..commands.conversations.handlers import Conversations, Means
from ..commands.conversations.means import RunnerMeans
from ..commands.conversations.model_call import Limits
from ..commands.conversations.ports import Agents, Clearance
from ..commands.conversations.runner import Runner
from ..commands.dispatcher import Dispatcher
from ..infra.agents import agents_of
from ..infra.conversation_keys import conversation_keys
from ..infra.deltas import Deltas
from ..infra.postgres.conversation_log import PostgresConversationLog
from ..infra.postgres.deltas_table import PostgresDeltaTable
from ..infra.postgres.memories import PostgresMemories
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.postgres.token_ceiling import PostgresTokenCeiling
from ..infra.postgres.turn_seen import PostgresTurnSeen
from ..infra.postgres.turn_work import PostgresTurnWork
from ..infra.redaction.engine import Redactor
from ..infra.settings import Settings
from .bounds import now
from .conversation_numbers import ConversationNumbers
from .metrics import Metrics

ID_BITS = 130
"""Of a conversation's id."""


class ConversationWork(msgspec.Struct, frozen=True):
    """Made once per process; the runner is started by whoever made it."""

    conversations: Conversations
    runner: Runner
    deltas: Deltas
    table: PostgresDeltaTable
    log: PostgresConversationLog
    scribe: Scribe
    agents: Agents


@contextlib.asynccontextmanager
async def conversation_work(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    dispatcher: Dispatcher,
    redactor: Redactor,
    server_key: bytes,
    admit: Admit,
    metrics: Metrics,
    clearance: Clearance,
) -> AsyncGenerator[ConversationWork]:
    """Everything, with its agents open; at the end the runner lets its leases go first. Raises SettingsError."""
    scribe = Scribe(conversation_keys(settings), redactor.value, ulid_now)
    log, tokens, seen_by = PostgresConversationLog(pool), PostgresTokenCeiling(pool), PostgresTurnSeen(pool)
    table = PostgresDeltaTable(pool)
    agents, deltas = agents_of(settings), Deltas(table)
    conversations, numbers = settings.conversations, ConversationNumbers(metrics.registry)
    runner = Runner(
        RunnerMeans(
            holder=f"runner-{ulid_now()}",
            dispatcher=dispatcher,
            store=store,
            leases=store,
            scribe=scribe,
            log=log,
            work=PostgresTurnWork(pool),
            tokens=tokens,
            seen_by=seen_by,
            agents=agents,
            deltas=deltas,
            redactor=redactor.stream,
            new_id=ulid_now,
            now=now,
            retention_days=conversations.retention_of,
            notes=numbers,
            clearance=clearance,
            memories=PostgresMemories(pool, server_key),
            limits=Limits(conversations.first_delta_seconds, conversations.idle_seconds, conversations.turn_seconds),
        )
    )
    handlers = Conversations(
        Means(
            dispatcher=dispatcher,
            scribe=scribe,
            log=log,
            tokens=tokens,
            seen_by=seen_by,
            agents=agents,
            new_id=ulid_now,
            entropy=lambda: secrets.randbits(ID_BITS),
            name_bits=lambda text: _name_bits(server_key, text),
            now=now,
            retention_days=conversations.retention_of,
            admit=admit,
            poke=runner.poke,
            waiting_turns=conversations.waiting_turns,
            mapped=conversations.mapped,
        )
    )
    metrics.gauges(_figures(runner, deltas))
    await agents.start()
    deltas.start()
    try:
        yield ConversationWork(handlers, runner, deltas, table, log, scribe, agents)
    finally:
        await runner.close()
        await deltas.close()
        await agents.close()


def _figures(runner: Runner, deltas: Deltas) -> dict[str, tuple[str, Callable[[], float]]]:
    return {
        "turns_running": ("Turns that run here.", lambda: runner.running),
        "conversations_at_work": ("Conversations whose runner is here.", lambda: runner.workers),
        "deltas_dropped": ("Deltas that only viewers of this process got.", lambda: deltas.dropped),
    }


def _name_bits(server_key: bytes, text: str) -> int:
    """Bits of a handle's id: the same for ever, and nobody without the key can tell whose they are."""
    digest = hmac.new(server_key, b"minutebook conversation handle\0" + text.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest, "big") & ((1 << ID_BITS) - 1)
