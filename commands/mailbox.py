"""One stream's commands, decided one after another and appended in rounds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic

import msgspec
import structlog

from ..domain.errors import Damaged, KeyReused, LeaseLost, MinutebookError, NotVisible, TimedOut, Unavailable
from ..domain.events import Recorded
from .ports import Append, EventRow, EventStore, Fence, Head, Key, Outcome, Snapshot, Watch
from .streams import PAGE, Kind, Loaded, S, catch_up, load

MAX_ROUND = 64
"""Commands of one stream that share an append."""

MAX_TRIES = 32
"""Times that a command is decided again because somebody else appended first. Beside a process that appends without a
pause, which has nothing to read between its rounds, a try wins about one time in four."""

RETRY_AFTER_MS = 200

REUSED = "This idempotency key was used with another request; use a new key."

log = structlog.get_logger(__name__)


class Decided(msgspec.Struct, frozen=True):
    """What a decision came to: rows to append, the same as events to fold, and the answer's own fields.

    refusal: what the caller is told instead, once the rows are stored. status: of the answer, where it depends on what
    was decided.
    """

    rows: Sequence[EventRow]
    events: Sequence[tuple[Any, Any]]
    seal: bool
    answer: dict[str, Any]
    refusal: MinutebookError | None = None
    status: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """What a caller gets: the HTTP-neutral status that the first answer had, its fields, whether it is a replay."""

    status: int
    body: dict[str, Any]
    is_replay: bool
    seq: int


class Request(msgspec.Struct, Generic[S]):
    """A command on its way. authorize and decide are pure; both may raise a domain error. deadline: loop time.

    is_alone: it shares no append, since one of its neighbours' values could not be stored.
    """

    authorize: Callable[[S, Head], None]
    decide: Callable[[S, Head], Decided]
    status: int
    deadline: float
    done: asyncio.Future[Answer]
    key: Key | None = None
    fence: Fence | None = None
    tries: int = 0
    is_alone: bool = False

    def answer(self, answer: Answer) -> None:
        """Hand the caller its answer, if it still waits."""
        if not self.done.done():
            self.done.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Hand the caller its refusal, if it still waits."""
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # a caller that went away retrieves nothing; that is no defect


class _Step(msgspec.Struct, Generic[S], frozen=True):
    """A decided command in a round: its item, the same as events, its answer's status and fields or refusal, and the
    state once stored."""

    request: Request[S]
    item: Append
    events: Sequence[tuple[Any, Any]]
    status: int
    fields: dict[str, Any]
    after: Loaded[S]
    refusal: MinutebookError | None


class Mailbox(Generic[S]):
    """Bounded; one task while there is work. The folded state is a cache: a stale one costs a conflict, no more."""

    def __init__(
        self,
        stream: str,
        kind: Kind[S],
        store: EventStore,
        *,
        max_length: int,
        snapshot_every: int,
        watch: Watch | None = None,
    ) -> None:
        self.stream = stream
        self._kind = kind
        self._store = store
        self._max_length = max_length
        self._snapshot_every = snapshot_every
        self._watch = watch
        self._waiting: deque[Request[S]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._loaded: Loaded[S] | None = None
        self._is_fresh = False

    @property
    def is_idle(self) -> bool:
        """Whether it may be dropped from the cache."""
        return self._task is None and not self._waiting

    def put(self, request: Request[S]) -> None:
        """Queue a command. Raises Unavailable where the mailbox is full."""
        if len(self._waiting) >= self._max_length:
            raise Unavailable("This room has too many commands waiting; try again.", retryAfterMs=RETRY_AFTER_MS)
        self._waiting.append(request)
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"mailbox {self.stream}")

    async def _work(self) -> None:
        try:
            while self._waiting:
                try:
                    await self._round()
                except Damaged as error:
                    await self._refuse_all(error)
                except Exception as error:  # noqa: BLE001 - whatever it is, everybody who waits must hear of it
                    self._loaded = None
                    while self._waiting:
                        self._waiting.popleft().fail(error)
        finally:
            self._task = None

    async def _refuse_all(self, damaged: Damaged) -> None:
        """The stream cannot be folded: tell those who may know that it exists, and nobody else (rules.md, law 13)."""
        self._loaded = None
        waiting, self._waiting = self._waiting, deque()
        try:
            seen = await load(self._store, self._kind, self.stream, passes_over_damage=True)
        except MinutebookError as error:
            for request in waiting:
                request.fail(error)
            return
        for request in waiting:
            try:
                if seen is None:
                    raise NotVisible
                request.authorize(seen.state, seen.head)
            except MinutebookError as refusal:
                request.fail(refusal)
            else:
                request.fail(damaged)

    async def _round(self) -> None:
        """Load if need be, decide what fits, append it in one go, answer."""
        loaded = self._loaded
        if loaded is None:
            loaded = self._loaded = await load(self._store, self._kind, self.stream)
            self._is_fresh = True
        if loaded is None:
            raise NotVisible
        steps: list[_Step[S]] = []
        while self._waiting and len(steps) < MAX_ROUND and await self._take(loaded, steps):
            pass
        if steps:
            await self._append(loaded, steps)
        elif self._waiting and not self._is_fresh:
            await self._refresh(loaded)

    async def _take(self, loaded: Loaded[S], steps: list[_Step[S]]) -> bool:
        """Decide the command that waits first and add it to the round; False where the round ends here."""
        request = self._waiting[0]
        if request.done.done() or asyncio.get_running_loop().time() > request.deadline:
            self._waiting.popleft().fail(TimedOut("The command waited too long and was not run; try again."))
            return True
        if steps and not _may_join(request, steps):
            return False
        # A refusal or a no-op is believed on the newest state only: nothing pending before it, nothing unread.
        is_settled = self._is_fresh and not steps
        at = steps[-1].after if steps else loaded
        try:
            request.authorize(at.state, at.head)
            decided = request.decide(at.state, at.head)
        except Exception as error:  # noqa: BLE001 - a defect in a decision is that command's answer alone
            if is_settled:
                self._waiting.popleft()
                await self._refuse(request, loaded, error)
            return False
        if not decided.rows and not is_settled:
            return False
        self._waiting.popleft()
        if not decided.rows and request.key is None and request.fence is None:
            self._is_fresh = False
            fields = {"seq": at.head.version, "chain": at.head.chain, **decided.answer}
            request.answer(Answer(request.status, fields, False, at.head.version))
            return False
        steps.append(self._step(request, decided, at))
        return True

    async def _refresh(self, loaded: Loaded[S]) -> None:
        """Read what other processes appended."""
        head = await self._store.head(self.stream)
        if head is None:
            self._loaded = None
        elif self._kind.checkpoint_type is not None and head.version - loaded.head.version > PAGE:
            # So far behind, a fold from the newest checkpoint is the shorter way.
            self._loaded = await load(self._store, self._kind, self.stream)
        else:
            self._loaded = await catch_up(self._store, self._kind, loaded, head)
        self._is_fresh = True

    def _step(self, request: Request[S], decided: Decided, at: Loaded[S]) -> _Step[S]:
        key = request.key if decided.refusal is None else None  # a refused command burns no key
        status = decided.status or request.status
        if key is not None:
            key = msgspec.structs.replace(key, status=status, answer={**key.answer, **decided.answer})
        item = Append(self.stream, at.head.version, decided.rows, seal=decided.seal, fence=request.fence, key=key)
        state, seq, size = at.state, at.head.version, at.head.bytes
        for row, (actor, event) in zip(decided.rows, decided.events, strict=True):
            seq += 1
            size += len(bytes(row.payload))
            run_id = row.run_id if isinstance(row.run_id, str) else None
            origin_key = row.origin_key if isinstance(row.origin_key, str) else None
            state = self._kind.evolve(state, Recorded(seq, actor, run_id, origin_key, event, tuple(row.classes)))
        head = msgspec.structs.replace(at.head, version=seq, bytes=size, sealed=at.head.sealed or decided.seal)
        return _Step(
            request, item, decided.events, status, decided.answer, Loaded(state, head, at.snapshot_seq), decided.refusal
        )

    async def _append(self, settled: Loaded[S], steps: list[_Step[S]]) -> None:
        self._is_fresh = False
        try:
            outcomes = await self._store.append([step.item for step in steps])
        except Exception as error:  # noqa: BLE001
            self._loaded = None
            if isinstance(error, Unavailable):
                # Who queued up meanwhile would wait for the database as long again.
                for request in (*(step.request for step in steps), *self._waiting):
                    request.fail(error)
                self._waiting.clear()
                return
            if len(steps) == 1:
                steps[0].request.fail(error)
                return
            # One value cannot be stored: the commands go again one by one, so that only its own is refused.
            for step in reversed(steps):
                step.request.is_alone = True
                self._waiting.appendleft(step.request)
            return
        again: list[Request[S]] = []
        is_settled = True
        for step, outcome in zip(steps, outcomes, strict=True):
            if outcome.kind == "appended" and is_settled:
                head = msgspec.structs.replace(step.after.head, bytes=outcome.bytes, chain=outcome.chain or "")
                settled = Loaded(step.after.state, head, settled.snapshot_seq)
                self._tell(step, outcome)
            else:
                is_settled = False
                if not _settle_other(step, outcome):
                    again.append(step.request)
        self._loaded = settled
        if not is_settled:
            self._waiting.extendleft(reversed(again))
            await self._refresh(settled)
        await self._snapshot()

    def _tell(self, step: _Step[S], outcome: Outcome) -> None:
        """Answer what was appended; with a refusal, where all that could be done was to say why."""
        if self._watch is not None:
            self._watch.appended(step.item.events, step.events)
        if step.refusal is None:
            step.request.answer(_first_answer(step, outcome))
        else:
            step.request.fail(step.refusal)

    async def _refuse(self, request: Request[S], loaded: Loaded[S], error: Exception) -> None:
        """A refusal stands, unless the same command was answered before: then its first answer does."""
        self._is_fresh = False
        if request.key is not None and isinstance(error, MinutebookError):
            try:
                request.authorize(loaded.state, loaded.head)
                stored = await self._store.find_answer(request.key.place)
                if stored is not None and stored.fingerprint == request.key.fingerprint:
                    request.answer(replay(stored.status, stored.body))
                    return
                if stored is not None:
                    error = KeyReused(REUSED)
            except Exception as other:  # noqa: BLE001
                error = other
        request.fail(error)

    async def _snapshot(self) -> None:
        loaded = self._loaded
        if loaded is None or loaded.head.version - loaded.snapshot_seq < self._snapshot_every:
            return
        if self._kind.checkpoint_type is not None:
            return
        state = msgspec.json.encode(loaded.state).decode()
        try:
            await self._store.save_snapshot(loaded.head.id, Snapshot(loaded.head.version, self._kind.schema, state))
        except MinutebookError:
            log.warning("snapshot not kept", kind=self._kind.name)
        self._loaded = Loaded(loaded.state, loaded.head, loaded.head.version)


def _may_join(request: Request[Any], steps: Sequence[_Step[Any]]) -> bool:
    """Whether the command may share the round: nobody must be alone, and no step has its key, whose answer it needs."""
    if request.is_alone or steps[0].request.is_alone:
        return False
    key = request.key
    return key is None or all(step.item.key is None or step.item.key.place != key.place for step in steps)


def replay(status: int | None, body: str | None) -> Answer:
    """The stored first answer of a keyed command."""
    fields = msgspec.json.decode(body or "{}")
    return Answer(status or 200, fields, True, fields.get("seq", 0))


def _settle_other(step: _Step[Any], outcome: Outcome) -> bool:
    """Answer what was not appended; False where the command must be decided again."""
    request = step.request
    match outcome.kind:
        case "key_reused":
            request.fail(KeyReused(REUSED))
        case "fenced":
            request.fail(LeaseLost("Another holder has the lease now; say hello again."))
        case "duplicate" if outcome.seq == step.item.expected:
            # The caller was authorized on the newest state, so the stored answer may be shown.
            request.answer(replay(outcome.status, outcome.body))
        case _:
            request.tries += 1
            if request.tries < MAX_TRIES:
                return False
            request.fail(Unavailable("Others keep changing this room; try again.", retryAfterMs=RETRY_AFTER_MS))
    return True


def _first_answer(step: _Step[Any], outcome: Outcome) -> Answer:
    if outcome.body is not None:
        return Answer(step.status, msgspec.json.decode(outcome.body), False, outcome.seq)
    fields: dict[str, Any] = {"seq": outcome.seq, "chain": outcome.chain}
    if outcome.event_id is not None:
        fields["id"] = outcome.event_id
    return Answer(step.status, {**fields, **step.fields}, False, outcome.seq)
