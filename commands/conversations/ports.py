"""What conversations need of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import Struct

from ...domain.conversations.counting import Counter
from ...domain.conversations.identity import Identity
from ...domain.conversations.prompt import Message, ToolSpec
from ...domain.conversations.turn_events import WantedCall
from ..ports import StoredEvent

RUNNER_LEASE = "runner"
"""Purpose of the lease of whoever runs a conversation's turns, on its stream and on its turns' streams."""

LEASE_TTL_S = 15
LEASE_RENEW_S = 5.0
MAX_ATTEMPTS = 3
"""Times that a turn is taken up (conversations.md, Turns and barge-in)."""


class At(Struct, frozen=True):
    """A stored event with when the database recorded it (by its own clock, with a time zone)."""

    event: StoredEvent
    at: datetime


class Viewer(Struct, frozen=True):
    """Who looks, as the clearance policy knows them. claims: of their verified token, `groups` among them; of an asker
    those that the signed envelope carries, none where it is too old."""

    identity: Identity
    claims: Mapping[str, Sequence[str]] = {}


class Clearance(Protocol):
    """The clearance policy of the settings: what its viewers may see (conversations.md, Shared mode)."""

    version: str
    """Digest of the settings that it is made of: 16 hex digits."""

    def labels(self, viewer: Viewer) -> frozenset[str] | None:
        """The labels that viewer has; None where a callable decides, which has none."""
        ...

    async def resolve(self, viewer: Viewer, class_sets: Iterable[Collection[str]]) -> Mapping[frozenset[str], bool]:
        """For every distinct class set that is not empty, whether all of its classes are cleared.

        Each set is asked for once a call. Never raises: what fails, takes more than 250 ms or answers anything but
        True is a no.
        """
        ...


class ConversationLog(Protocol):
    """Reads of one conversation's stream, by stream id. Every method raises Unavailable."""

    async def first(
        self, stream: str, person: Identity | None
    ) -> tuple[int, str, StoredEvent, StoredEvent | None] | None:
        """The stream's id, its tenant, its first event, and the newest event about the part of a person in it, all in
        one point read; None where there is no such stream."""
        ...

    async def at(self, stream_id: int, seqs: Sequence[int]) -> list[At]:
        """The events with those seqs, ascending; one look-up by primary key each. At most 256 seqs."""
        ...

    async def by_ords(self, stream_id: int, ords: Sequence[int]) -> list[At]:
        """The records with those ords, ascending; one look-up by unique key each. At most 256 ords."""
        ...

    async def records(self, stream_id: int, after: int, limit: int) -> list[At]:
        """Records, removals and the close (user_recorded, reply_recorded, participant_removed, conversation_closed) and
        what names an erasure (erasing.NAMING) behind `after`, ascending, at most `limit` of them; for whoever follows a
        conversation, and so is near its end."""
        ...

    async def context_of(self, stream_id: int, turn: int) -> At | None:
        """The context_decided of a turn, by its unique key (events.CONTEXT_CLIENT)."""
        ...

    async def listed(
        self, owner: Identity, person: Identity | None, limit: int, before: str | None
    ) -> list[Listed] | None:
        """The conversations that the owner started, and the shared ones that the person takes part in, newest first,
        behind the one with the id `before`; as the tables beside the log say it, for the caller to verify.

        None where `before` is none of these, be it somebody else's or nobody's.
        """
        ...


class Listed(Struct, frozen=True):
    """A conversation in somebody's list. first: its conversation_started. newest: the newest event about the part that
    the person of the list has in it."""

    conversation_id: str
    stream_id: int
    first: At
    newest: StoredEvent | None
    is_closed: bool
    last_at: datetime


class Delta(Struct, frozen=True):
    """Some of a reply that is being generated. offset: code points of the redacted reply before it. epoch: of the
    runner's lease, so that a displaced runner's deltas reach nobody."""

    stream_id: int
    turn: int
    attempt: int
    offset: int
    text: str
    epoch: int


class Position(Struct, frozen=True):
    """How far a reader has what there is of a running reply: what lies before it is not asked for again."""

    turn: int = 0
    attempt: int = 0
    offset: int = 0


class DeltaTable(Protocol):
    """Deltas of running replies for the viewers of other processes, and for those who come in mid-reply.

    An unlogged table beside the log; what is put is one transaction with one wake-up of the channel
    `minutebook_deltas`, which carries stream ids as the other one does. Every method raises Unavailable.
    """

    async def put(self, deltas: Sequence[Delta]) -> None:
        """Keep them; those whose epoch is not the newest of their stream's runner lease are left out.

        One without text, at offset 0, says that its attempt began, and takes the earlier attempts' rows along.
        """
        ...

    async def behind(self, positions: Mapping[int, Position]) -> list[Delta]:
        """Of each stream, by its id, the rows that end behind the position or belong to a later turn or attempt; by
        stream, turn, attempt and offset. One query, whatever the number of streams."""
        ...

    async def clear(self, stream_id: int, turn: int) -> None:
        """The rows of turns up to that one go."""
        ...


class DeltaSink(Protocol):
    """Where a runner's deltas go: to viewers here at once, to those of other processes in one batch a tick."""

    def put(self, delta: Delta) -> None:
        """Never blocks and never fails. Bounded: what is over the bound is coalesced; the reply supersedes all."""
        ...

    def began(self, stream_id: int, turn: int, attempt: int, epoch: int) -> None:
        """An attempt begins: viewers who saw another one of that turn get `reset`."""
        ...

    async def ended(self, stream_id: int, turn: int) -> None:
        """The turn's reply is in the log: its rows go. Raises nothing."""
        ...


class SeenBy(Protocol):
    """How much of a running reply its asker acknowledged, beside the log until the reply is recorded."""

    async def note(self, stream_id: int, turn: int, offset: int) -> None:
        """Monotonic. Raises Unavailable."""
        ...

    async def of(self, stream_id: int, turn: int) -> int | None:
        """The greatest offset that was acknowledged; None for none."""
        ...


class Work(Protocol):
    """Conversations whose newest envelope may wait for a runner. Every method raises Unavailable."""

    async def due(self, limit: int) -> list[tuple[int, str]]:
        """Id and name of streams with work and no living runner lease."""
        ...

    async def done(self, stream_id: int, through_seq: int) -> None:
        """Nothing up to that seq waits any more; a later envelope keeps the entry."""
        ...

    async def leave(self) -> None:
        """Call every process to what waits without a runner: this one has let its leases go."""
        ...


class Tokens(Protocol):
    """The ceiling of an asker's tokens a day and agent (rules.md, 26)."""

    async def reserve(self, execution: str, asker: Identity, agent: str, tokens: int, ceiling: int) -> bool:
        """Reserve, atomically, for a turn's execution; the same execution again changes nothing. False over it."""
        ...

    async def settle(self, execution: str, used: int) -> None:
        """Replace the reservation by what was used, once."""
        ...

    async def left(self, asker: Identity, agent: str, ceiling: int) -> int:
        """Tokens that may still be reserved today (UTC)."""
        ...


class ModelRequest(Struct, frozen=True):
    """system: the operator's words alone. max_output_tokens: of the answer."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    max_output_tokens: int


class TextDelta(Struct, frozen=True):
    """Some more of the answer's text, ill-formed Unicode repaired."""

    text: str


class CallDelta(Struct, frozen=True):
    """A whole tool call."""

    call: WantedCall


class Usage(Struct, frozen=True):
    """Tokens of the call; the last part of an answer."""

    input: int
    output: int


ModelPart = TextDelta | CallDelta | Usage


class ModelError(Exception):
    """A provider failed. The message is for the server's log alone. status: of HTTP, where there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelProvider(Protocol):
    """One model. Retries with jitter on 429 and 5xx before the first part only."""

    name: str
    """Of the model, as a viewer may know it."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """The answer as it comes. Raises ModelError. Closing the iterator ends the call."""
        ...


class ToolResult(Struct, frozen=True):
    """What a tool answered, as data for the model; output is text or compact JSON, not redacted yet. classes: of what
    the output was made of, beside the tool's own."""

    status: Literal["ok", "error"]
    output: str
    classes: tuple[str, ...] = ()


class Tool(Protocol):
    """One tool of the settings."""

    spec: ToolSpec
    data_class: str
    is_idempotent: bool
    groups: frozenset[str]
    """The asker needs one of these groups; none where it is empty."""

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments, for the model; None where they fit the schema."""
        ...

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """Bounded by the tool's timeout. Never raises but for cancellation: an error is data for the model."""
        ...


MEMORY_KEY_CHARS = 128
MEMORY_TEXT_BYTES = 4096
"""Of a note, as UTF-8 and without secrets: what stands for one may be longer than it."""

_MEMORY_KEY = {"type": "string", "minLength": 1, "maxLength": MEMORY_KEY_CHARS}
MEMORY_READ = ToolSpec(
    "memory_read",
    "Reads what you noted with memory_write in earlier conversations: the note with that key or, without a key, all.",
    {"type": "object", "properties": {"key": _MEMORY_KEY}, "additionalProperties": False},
)
MEMORY_WRITE = ToolSpec(
    "memory_write",
    f"Notes a text of at most {MEMORY_TEXT_BYTES} bytes under a key for later conversations; it replaces the note that"
    " has the key, and an empty text removes it.",
    {
        "type": "object",
        "properties": {"key": _MEMORY_KEY, "text": {"type": "string"}},
        "required": ["key", "text"],
        "additionalProperties": False,
    },
)
MEMORY_SPECS = (MEMORY_READ, MEMORY_WRITE)
"""The tools of an agent with a memory."""

CONSTANT_MEMORY = "constant:"
"""Begins the scope of a memory that all who ask an agent share."""

MemoryWritten = Literal["written", "removed", "full", "fenced"]
"""What became of an entry. full: the scope has 256 others. fenced: another runner has the conversation."""


class MemoryEntry(Struct, frozen=True):
    """One note. writer: label of who asked the turn that wrote it. classes: of all that had fed that turn."""

    key: str
    text: str
    writer: str
    classes: tuple[str, ...] = ()


class Memories(Protocol):
    """What agents remember, by tenant and scope; gone with the conversation that it was written in, and 365 days after
    it was last written. Every method but label raises Unavailable."""

    def label(self, agent: str, asker: Identity) -> str:
        """Of an agent's memory of an asker: 16 hex digits, from which nobody without the server's key gets either."""
        ...

    async def write(self, stream_id: int, epoch: int, tenant: str, scope: str, entry: MemoryEntry) -> MemoryWritten:
        """Keep an entry, written in that conversation by the runner with that epoch; an empty text removes it."""
        ...

    async def read(self, tenant: str, scope: str) -> list[MemoryEntry]:
        """All of a scope, the newest first."""
        ...


class Agent(Struct, frozen=True):
    """An agent of the settings, ready to work. tokens_per_day: 0 for no ceiling. digest: of its declaration, so that a
    change shows in the context ledger. memory: whose notes it keeps: `asker`, each asker's own; CONSTANT_MEMORY and a
    name, one of all who ask it; empty for none."""

    name: str
    provider: ModelProvider
    system: str
    tools: tuple[Tool, ...]
    counter: Counter
    context_window: int
    reserve_output_tokens: int
    max_steps: int
    summarizer: str | None
    tokens_per_turn: int
    tokens_per_day: int
    digest: str
    memory: str = ""

    @property
    def shares(self) -> bool:
        """Whether it may be in shared conversations: one memory of all askers would carry words between them."""
        return not self.memory.startswith(CONSTANT_MEMORY)

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """Every tool that its model is shown."""
        return (*(tool.spec for tool in self.tools), *(MEMORY_SPECS if self.memory else ()))


Agents = Mapping[str, Agent]
"""By name; an agent that is gone from the settings is absent, and its turns fail."""

Wait = Callable[[float], Awaitable[None]]
"""asyncio.sleep, or a test's own."""
