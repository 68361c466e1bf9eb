"""Conversations over a real log without a server around them: commands, runners that can be ended, scripted models."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from appender_helpers import Pool
from conversation_scenes import RING
from minutebook.commands.conversations.encoding import Scribe
from minutebook.commands.conversations.handlers import Conversations, Means
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.conversations.means import RunnerMeans
from minutebook.commands.conversations.ports import (
    Agent,
    Delta,
    ModelPart,
    ModelProvider,
    ModelRequest,
    ToolResult,
    ToolSpec,
    Viewer,
)
from minutebook.commands.conversations.runner import Runner
from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.commands.mailbox import Answer
from minutebook.domain.conversations.commands import InterruptTurn, SendTurn, StartConversation
from minutebook.domain.conversations.counting import HeuristicCounter
from minutebook.domain.conversations.events import ReplyRecorded, UserRecorded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.models.scripted import ScriptedProvider
from minutebook.infra.postgres.appender import Appender
from minutebook.infra.postgres.conversation_log import PostgresConversationLog
from minutebook.infra.postgres.memories import PostgresMemories
from minutebook.infra.postgres.pool import make_pool
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.postgres.token_ceiling import PostgresTokenCeiling
from minutebook.infra.postgres.turn_seen import PostgresTurnSeen
from minutebook.infra.postgres.turn_work import PostgresTurnWork
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import shipped_rules
from ulid_transform import ulid_now

ALICE = Caller(Principal("human", "alice"), "acme", is_member=True)
BOB = Caller(Principal("human", "bob"), "acme", is_member=True)
REDACTOR = Redactor(shipped_rules())


def agent_of(provider: ModelProvider | None = None, **fields: Any) -> Agent:
    """An agent called `echo` with the scripted provider; `fields` win."""
    plain: dict[str, Any] = {
        "name": "echo",
        "provider": ScriptedProvider() if provider is None else provider,
        "system": "You are a test.",
        "tools": (),
        "counter": HeuristicCounter(),
        "context_window": 128_000,
        "reserve_output_tokens": 4096,
        "max_steps": 8,
        "summarizer": None,
        "tokens_per_turn": 200_000,
        "tokens_per_day": 0,
        "digest": "d",
    }
    return Agent(**{**plain, **fields})


class Sink:
    """A DeltaSink that keeps everything."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.begun: list[tuple[int, int, int]] = []
        self.over: list[int] = []
        self.heard = asyncio.Event()

    def put(self, delta: Delta) -> None:
        """See DeltaSink."""
        self.deltas.append(delta)
        self.heard.set()

    def began(self, stream_id: int, turn: int, attempt: int, epoch: int) -> None:
        """See DeltaSink."""
        self.begun.append((turn, attempt, epoch))

    async def ended(self, stream_id: int, turn: int) -> None:
        """See DeltaSink."""
        self.over.append(turn)

    def text(self, turn: int, attempt: int = 1) -> str:
        """What the viewers of an attempt have; raises AssertionError where an offset leaves a gap."""
        said = ""
        for delta in self.deltas:
            if (delta.turn, delta.attempt) == (turn, attempt):
                assert delta.offset == len(said)
                said += delta.text
        return said


class Numbers:
    """Notes that count."""

    def __init__(self) -> None:
        self.attempts = 0
        self.first_deltas: list[float] = []
        self.turns: list[str] = []

    def attempt(self) -> None:
        """See Notes."""
        self.attempts += 1

    def first_delta(self, seconds: float) -> None:
        """See Notes."""
        self.first_deltas.append(seconds)

    def turn(self, status: str, seconds: float) -> None:
        """See Notes."""
        self.turns.append(status)


class Policy:
    """A Clearance by name: labels that an actor has. asked: every viewer that it was asked for, with the class sets."""

    version = "p" * 16

    def __init__(self, labels: Mapping[str, set[str]]) -> None:
        self.of = {actor: frozenset(each) for actor, each in labels.items()}
        self.asked: list[tuple[Viewer, frozenset[frozenset[str]]]] = []

    def labels(self, viewer: Viewer) -> frozenset[str]:
        """See Clearance."""
        return self.of.get(viewer.identity.actor, frozenset())

    async def resolve(self, viewer: Viewer, class_sets: Iterable[Collection[str]]) -> Mapping[frozenset[str], bool]:
        """See Clearance."""
        sets = frozenset(frozenset(each) for each in class_sets)
        self.asked.append((viewer, sets))
        return {each: each <= self.labels(viewer) for each in sets if each}


class Desk:
    """One process: its commands and its runner, over a store that others share."""

    def __init__(self, pool: Pool, appender: Appender, agents: Mapping[str, Agent], **fields: Any) -> None:
        self.pool = pool
        self.appender = appender
        self.store = PostgresStore(pool, appender)
        self.log = PostgresConversationLog(pool)
        self.dispatcher = Dispatcher(self.store, Fingerprints(b"k" * 32), Bounds())
        self.scribe = Scribe(RING, REDACTOR.value, ulid_now)
        self.sink = Sink()
        self.numbers = Numbers()
        self.agents = dict(agents)
        self.runner_means = RunnerMeans(
            **{
                "holder": ulid_now(),
                "dispatcher": self.dispatcher,
                "store": self.store,
                "leases": self.store,
                "scribe": self.scribe,
                "log": self.log,
                "work": PostgresTurnWork(pool),
                "tokens": PostgresTokenCeiling(pool),
                "seen_by": PostgresTurnSeen(pool),
                "agents": self.agents,
                "deltas": self.sink,
                "redactor": REDACTOR.stream,
                "new_id": ulid_now,
                "now": lambda: datetime.now(UTC),
                "retention_days": lambda _: 90,
                "notes": self.numbers,
                "clearance": Policy({}),
                "memories": PostgresMemories(pool, b"m" * 32),
                **fields,
            }
        )
        self.reopen()
        self.conversations = Conversations(self.handler_means())

    def reopen(self) -> None:
        """Another runner, as after a start."""
        self.runner = Runner(self.runner_means)

    def handler_means(self, **fields: Any) -> Means:
        """What the commands work with; `fields` win."""
        plain: dict[str, Any] = {
            "dispatcher": self.dispatcher,
            "scribe": self.scribe,
            "log": self.log,
            "tokens": self.runner_means.tokens,
            "seen_by": self.runner_means.seen_by,
            "agents": self.agents,
            "new_id": ulid_now,
            "entropy": lambda: secrets.randbits(130),
            "name_bits": lambda text: int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"),
            "now": self.runner_means.now,
            "retention_days": lambda _: 90,
            "admit": lambda _: lambda: None,
            "poke": lambda conversation_id: self.runner.poke(conversation_id),  # noqa: PLW0108 - there may be another
        }
        return Means(**{**plain, **fields})

    async def start(self, caller: Caller = ALICE, **fields: Any) -> str:
        """A new conversation's id."""
        answer = await self.conversations.start(caller, StartConversation("echo", **fields), None)
        return answer.body["id"]

    async def send(self, conversation: str, text: str, key: str | None = None, **fields: Any) -> Answer:
        """One message of alice's."""
        return await self.conversations.send(ALICE, conversation, SendTurn(text, **fields), key)

    async def interrupt(self, conversation: str, **fields: Any) -> Answer:
        """Alice's stop."""
        return await self.conversations.interrupt(ALICE, conversation, InterruptTurn(**fields), None)

    async def records(self, conversation: str) -> list[UserRecorded | ReplyRecorded]:
        """Every verified record of the log, in its order."""
        return [event for event in await self.events(conversation) if isinstance(event, UserRecorded | ReplyRecorded)]

    async def events(self, conversation: str) -> list[Any]:
        """Every event of the log, as it is read with the keys."""
        head = await self.store.head(stream_of(conversation))
        assert head is not None
        kind = conversation_kind(RING, conversation)
        stored = await self.store.read_for_fold(head.id, 0, 100_000)
        return [kind.verifier.decode(event) for event in stored]

    async def done(self, within_s: float = 20.0) -> None:
        """Returns once this process works at nothing."""
        async with asyncio.timeout(within_s):
            await self.runner.idle()


@contextlib.asynccontextmanager
async def desk(
    url: str, agents: Mapping[str, Agent] | None = None, *, connections: int = 6, **fields: Any
) -> AsyncGenerator[Desk]:
    """A process over the database; at the end it lets everything go. No sweep runs but those that a test makes."""
    pool = make_pool(url, "app", max_size=connections, statement_timeout_ms=20_000)
    await pool.open(wait=True, timeout=20)
    appender = Appender(pool, writers=1)
    appender.start()
    made = Desk(pool, appender, {"echo": agent_of()} if agents is None else agents, **fields)
    try:
        yield made
    finally:
        if not pool.closed:
            await made.runner.close()
            await appender.close()
            await pool.close()


class Killed:
    """A point at which a process stops for ever, or with `once` until `go_on` is set, the first time: `reached` once it
    is there. passes: how often it goes by before."""

    def __init__(self, name: str, passes: int = 0) -> None:
        self.name = name
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._passes = passes

    async def __call__(self, name: str) -> None:
        """See RunnerMeans.point."""
        if name == self.name:
            if self._passes == 0:
                self.reached.set()
                await asyncio.Event().wait()
            self._passes -= 1

    async def once(self, name: str) -> None:
        """See RunnerMeans.point."""
        if name == self.name and not self.reached.is_set():
            self.reached.set()
            await self.go_on.wait()


async def kill(made: Desk) -> None:
    """End a process where it is: nothing more of it reaches the database, and its lease is not let go."""
    await made.appender.abort()
    await made.pool.close(timeout=0)
    await made.runner.close()


def lapse(database: Any) -> None:
    """Let every lease lapse: what the tests change is the stored moment, never the clock."""
    with database.connect("postgres") as superuser:
        superuser.execute("UPDATE minutebook.leases SET seen_at = seen_at - interval '20 seconds'")


class Counted:
    """A tool that counts its calls."""

    spec = ToolSpec("count", "Counts.", {"type": "object"})
    data_class = "counted"
    groups: frozenset[str] = frozenset()

    def __init__(self, *, is_idempotent: bool) -> None:
        self.is_idempotent = is_idempotent
        self.calls = 0

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        return None

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """See Tool."""
        self.calls += 1
        return ToolResult("ok", f"called {self.calls}")


class Mortal:
    """Leases of a process that may die: then it lets none go, and everybody else waits for them to lapse."""

    def __init__(self, store: PostgresStore) -> None:
        self.is_dead = False
        self._store = store

    async def take(self, stream: str, purpose: str, holder: str, ttl_s: int) -> tuple[int, str]:
        """See Leases."""
        return await self._store.take(stream, purpose, holder, ttl_s)

    async def drop(self, stream: str, purpose: str, holder: str, epoch: int) -> None:
        """See Leases."""
        if not self.is_dead:
            await self._store.drop(stream, purpose, holder, epoch)


class Script:
    """A provider of a test's own: `answer` gives the parts of a request; `asked` holds all requests."""

    name = "script"

    def __init__(self, answer: Callable[[ModelRequest], AsyncIterator[ModelPart]]) -> None:
        self._answer = answer
        self.asked: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """See ModelProvider."""
        self.asked.append(request)
        async for part in self._answer(request):
            yield part
