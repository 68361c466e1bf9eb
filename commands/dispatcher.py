"""Where commands come in: finds the stream's mailbox, waits for the answer within a deadline, drains at the end."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from ..domain.errors import KeyReused, TimedOut, Unavailable
from ..domain.principals import Caller
from .mailbox import RETRY_AFTER_MS, REUSED, Answer, Decided, Mailbox, Request, replay
from .ports import Append, Creation, EventRow, EventStore, Fence, Head, Key, Watch
from .streams import Kind, S


class Bounds(msgspec.Struct, frozen=True):
    """The limits of the dispatcher. deadline_s: longest that a caller waits for an answer."""

    mailbox_length: int = 256
    in_flight: int = 4096
    deadline_s: float = 10.0
    cached_streams: int = 1000
    snapshot_every: int = 200


class Fingerprints:
    """HMAC of the canonical request with the server's key: equal requests are told without keeping their words."""

    def __init__(self, server_key: bytes) -> None:
        self._key = server_key

    def of(self, command: Any) -> str:
        """Hex digest over the command's canonical JSON: member order and spacing make no difference."""
        return hmac.new(self._key, msgspec.json.encode(command, order="deterministic"), hashlib.sha256).hexdigest()


class Dispatcher:
    """One per process. Every method raises Unavailable with `retryAfterMs` when a bound is reached or it drains."""

    def __init__(
        self, store: EventStore, fingerprints: Fingerprints, bounds: Bounds, watch: Watch | None = None
    ) -> None:
        self._store = store
        self._watch = watch
        self._fingerprints = fingerprints
        self._bounds = bounds
        self._mailboxes: OrderedDict[str, Mailbox[Any]] = OrderedDict()
        self._in_flight: set[asyncio.Future[Answer]] = set()
        self._is_draining = False

    @property
    def in_flight(self) -> int:
        """Commands that wait for their answer."""
        return len(self._in_flight)

    def key(
        self,
        caller: Caller,
        operation: str,
        scope: str,
        key: str | None,
        command: Any,
        status: int,
        answer: dict[str, Any] | None = None,
    ) -> Key | None:
        """The idempotency key of a command, None where the caller sent none."""
        if key is None:
            return None
        fingerprint = self._fingerprints.of(command)
        return Key(caller.tenant, _who(caller), operation, scope, key, fingerprint, status, answer or {})

    async def run(
        self,
        kind: Kind[S],
        stream: str,
        authorize: Callable[[S, Head], None],
        decide: Callable[[S, Head], Decided],
        *,
        key: Key | None = None,
        fence: Fence | None = None,
        status: int = 200,
    ) -> Answer:
        """Decide a command on the stream's state, append, answer. A caller that goes away undoes nothing.

        Raises what authorize and decide raise; NotVisible where there is no such stream; KeyReused; LeaseLost; TimedOut
        where the answer is not there in time (the command may still land: retry it with the same key).
        """
        self._admit()
        loop = asyncio.get_running_loop()
        request = Request(
            authorize, decide, status, loop.time() + self._bounds.deadline_s, loop.create_future(), key, fence
        )
        self._mailbox(kind, stream).put(request)
        return await self._await(request.done)

    async def create(
        self, stream: str, creation: Creation, decided: Decided, *, key: Key | None, status: int
    ) -> Answer:
        """Begin a stream. The same key again answers the first creation, and begins nothing."""
        self._admit()
        item = Append(stream, 0, decided.rows, create=creation, key=key)
        return await self._await(asyncio.ensure_future(self._create(item, decided, status)))

    async def replayed(self, key: Key | None) -> Answer | None:
        """The first answer of a command that does not go through a mailbox. Raises KeyReused for another request's."""
        stored = None if key is None else await self._store.find_answer(key.place)
        if stored is None or key is None:
            return None
        if stored.fingerprint != key.fingerprint:
            raise KeyReused(REUSED)
        return replay(stored.status, stored.body)

    async def beside(self, work: Callable[[], Coroutine[Any, Any, Answer]], deadline_s: float) -> Answer:
        """Do what takes no mailbox, as one of the commands under way. Raises TimedOut after `deadline_s`; the work goes
        on."""
        self._admit()
        return await self._await(asyncio.ensure_future(work()), deadline_s)

    def appended(self, rows: Sequence[EventRow], events: Sequence[tuple[Any, Any]]) -> None:
        """For what did not go through a mailbox: tell whoever watches."""
        if self._watch is not None:
            self._watch.appended(rows, events)

    async def drain(self) -> None:
        """Refuse what comes from now on; return when everything under way is answered."""
        self._is_draining = True
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    async def _create(self, item: Append, decided: Decided, status: int) -> Answer:
        outcome = (await self._store.append([item]))[0]
        if outcome.kind == "appended":
            self.appended(decided.rows, decided.events)
        match outcome.kind:
            case "appended" if outcome.body is not None:
                return Answer(status, msgspec.json.decode(outcome.body), False, outcome.seq)
            case "appended":
                fields: dict[str, Any] = {"seq": outcome.seq, "id": outcome.event_id, "chain": outcome.chain}
                return Answer(status, {**fields, **decided.answer}, False, outcome.seq)
            case "duplicate":
                return replay(outcome.status, outcome.body)
            case "key_reused":
                raise KeyReused(REUSED)
            case _:
                raise Unavailable("The new id was taken; try again.", retryAfterMs=RETRY_AFTER_MS)

    def _admit(self) -> None:
        if self._is_draining:
            raise Unavailable("The server is stopping; try again.", retryAfterMs=RETRY_AFTER_MS)
        if len(self._in_flight) >= self._bounds.in_flight:
            raise Unavailable("The server has too many commands under way; try again.", retryAfterMs=RETRY_AFTER_MS)

    async def _await(self, done: asyncio.Future[Answer], deadline_s: float | None = None) -> Answer:
        self._in_flight.add(done)
        done.add_done_callback(self._in_flight.discard)
        try:
            async with asyncio.timeout(deadline_s or self._bounds.deadline_s + 0.5):
                return await asyncio.shield(done)
        except TimeoutError:
            done.add_done_callback(_retrieve)
            raise TimedOut("No answer in time; the command may still land. Retry it with the same key.") from None

    def _mailbox(self, kind: Kind[S], stream: str) -> Mailbox[S]:
        found = self._mailboxes.get(stream)
        if found is None:
            found = Mailbox(
                stream,
                kind,
                self._store,
                max_length=self._bounds.mailbox_length,
                snapshot_every=self._bounds.snapshot_every,
                watch=self._watch,
            )
            self._mailboxes[stream] = found
            self._evict()
        else:
            self._mailboxes.move_to_end(stream)
        return found

    def _evict(self) -> None:
        """Drop the least recently used idle mailboxes; busy ones are bounded by `in_flight`."""
        for stream in list(self._mailboxes)[: max(0, len(self._mailboxes) - self._bounds.cached_streams)]:
            if self._mailboxes[stream].is_idle:
                del self._mailboxes[stream]


def _who(caller: Caller) -> str:
    """Who has a key: somebody who acts for a person has keys of their own. No name holds the separator."""
    if caller.delegate is None:
        return str(caller.principal)
    return f"{caller.delegate}\x1f{caller.principal}"


def _retrieve(done: asyncio.Future[Answer]) -> None:
    if not done.cancelled():
        done.exception()
