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

    async def first(self, stream: str, person: str | None) -> tuple[int, str, StoredEvent, StoredEvent | None] | None:
        """The stream's id, its tenant, its first event, and the newest event about the part of a person (identity_key;
        None for nobody) in it, all in one point read; None where there is no such stream."""
        ...

    async def at(self, stream_id: int, seqs: Sequence[int]) -> list[At]:
        """The events with those seqs, ascending; one look-up by primary key each. At most 256 seqs."""
        ...

    async def by_ords(self, stream_id: int, ords: Sequence[int]) -> list[At]:
        """The records with those ords, ascending; one look-up by unique key each. At most 256 ords."""
        ...

    async def records(self, stream_id: int, after: int, limit: int) -> list[At]:
        """Records, removals and the close (user_recorded, reply_recorded, participant_removed, conversation_closed)
        behind `after`, ascending, at most `limit` of them; for whoever follows a conversation, and so is near its
        end."""
        ...

    async def context_of(self, stream_id: int, turn: int) -> At | None:
        """The context_decided of a turn, by its unique key (events.CONTEXT_CLIENT)."""
        ...

    async def owned(self, owner: Identity, limit: int, before: str | None) -> list[Owned] | None:
        """The conversations that the owner started, newest first, behind the one with the id `before`.

        None where `before` is none of theirs, be it somebody else's or nobody's.
        """
        ...


class Owned(Struct, frozen=True):
    """A conversation in its owner's list. first: its conversation_started."""

    conversation_id: str
    stream_id: int
    first: At
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
    """What a tool answered, as data for the model; output is text or compact JSON, not redacted yet."""

    status: Literal["ok", "error"]
    output: str


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


class Agent(Struct, frozen=True):
    """An agent of the settings, ready to work. tokens_per_day: 0 for no ceiling. digest: of its declaration, so that a
    change shows in the context ledger."""

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


Agents = Mapping[str, Agent]
"""By name; an agent that is gone from the settings is absent, and its turns fail."""

Wait = Callable[[float], Awaitable[None]]
"""asyncio.sleep, or a test's own."""
