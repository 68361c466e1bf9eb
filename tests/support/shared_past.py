"""A shared conversation over a real log whose events a test writes itself: who takes part, and what was said."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from conversation_desk import Desk
from conversation_scenes import RING
from minutebook.commands.conversations.clearances import Clearances
from minutebook.commands.conversations.handlers import Conversations, Looked
from minutebook.commands.conversations.inspecting import Inspections, InspectMeans
from minutebook.commands.conversations.kind import conversation_kind, stream_of
from minutebook.commands.conversations.past import Viewpoint
from minutebook.commands.conversations.ports import Viewer
from minutebook.commands.ports import Append, Creation
from minutebook.domain.conversations.events import (
    ConversationClosed,
    ConversationStarted,
    ParticipantAdded,
    ParticipantRemoved,
    ReplyRecorded,
    UserRecorded,
)
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.events import Event
from minutebook.domain.ids import long_id
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.postgres.conversation_past import PostgresPast

ANN, BEN, CLEO = (Identity(f"human:{name}", "acme") for name in ("ann", "ben", "cleo"))
AUDITOR = Caller(Principal("human", "audrey"), "acme", is_auditor=True)
RUNNER = Principal("system", "conversations")


class Policy:
    """A Clearance whose labels a test sets by actor. is_asked: as a callable would be, class by class."""

    def __init__(self, *, is_asked: bool = False) -> None:
        self.version = "0" * 16
        self.granted: dict[str, frozenset[str]] = {}
        self.is_asked = is_asked
        self.asked: list[frozenset[str]] = []

    def labels(self, viewer: Viewer) -> frozenset[str] | None:
        """See Clearance."""
        return None if self.is_asked else self.granted.get(viewer.identity.actor, frozenset())

    async def resolve(self, viewer: Viewer, class_sets: Iterable[Collection[str]]) -> Mapping[frozenset[str], bool]:
        """See Clearance."""
        asked = [frozenset(each) for each in class_sets]
        self.asked += asked
        return {each: each <= self.granted.get(viewer.identity.actor, frozenset()) for each in asked}


class SharedTalk:
    """One conversation of ann's. clearances, inspections: of one process."""

    def __init__(self, here: Desk, policy: Policy, number: int, a_minute: int = 6) -> None:
        self.id = long_id(number << 8 | 1)
        self.stream = stream_of(self.id)
        self.here = here
        self.policy = policy
        self.past = PostgresPast(here.pool)
        self.clearances = Clearances(here.dispatcher, here.scribe, self.past, policy, a_minute)
        means = InspectMeans(here.dispatcher, here.scribe, lambda _: lambda: None, lambda _: 90, policy.version)
        self.inspections = Inspections(means, Conversations(here.handler_means()))
        self.ords = 0
        self.turns = 0

    async def start(self) -> SharedTalk:
        """Begin it; answers itself."""
        started = ConversationStarted(self.id, ANN, "echo", "shared", "queue", "", "")
        rows = self.here.scribe.encode(self.stream, 0, Decision((NewEvent(started, Principal("human", "ann")),))).rows
        outcome = (await self.here.store.append([Append(self.stream, 0, rows, Creation("conversation", "acme", 90))]))[
            0
        ]
        assert outcome.kind == "appended"
        return self

    async def write(self, event: Event, actor: Principal = RUNNER, *, seal: bool = False) -> int:
        """Append one event; its seq."""
        head = await self.here.store.head(self.stream)
        assert head is not None
        rows = self.here.scribe.encode(self.stream, head.version, Decision((NewEvent(event, actor),))).rows
        outcome = (await self.here.store.append([Append(self.stream, head.version, rows, seal=seal)]))[0]
        assert outcome.kind == "appended"
        return outcome.seq

    async def add(self, who: Identity) -> int:
        """Ann takes somebody in."""
        return await self.write(ParticipantAdded(who, ANN, "", ""), Principal("human", "ann"))

    async def remove(self, who: Identity) -> int:
        """Ann takes somebody out."""
        return await self.write(ParticipantRemoved(who, ANN, "", ""), Principal("human", "ann"))

    async def ask(self, who: Identity, classes: Collection[str] = ()) -> tuple[int, UserRecorded]:
        """A question; its seq and itself."""
        self.ords += 1
        self.turns += 1
        text = f"words {self.ords}"
        record = UserRecorded(self.ords, self.turns, 1, "accepted", 1, who, "", "", text=text, classes=tuple(classes))
        return await self.write(record), record

    async def reply(self, who: Identity, classes: Collection[str] = ()) -> tuple[int, ReplyRecorded]:
        """The reply to it."""
        self.ords += 1
        record = ReplyRecorded(
            self.ords, self.turns, 1, "completed", f"reply {self.ords}", who, 1, "", "", classes=tuple(classes)
        )
        return await self.write(record), record

    async def close(self) -> int:
        """The end of it."""
        return await self.write(ConversationClosed(1, "", ""), seal=True)

    async def looked(self) -> Looked:
        """As it is now."""
        return (await self.inspections.look(AUDITOR, self.id)).looked

    async def point(self, who: Identity) -> Viewpoint:
        """One person's in it."""
        looked = await self.looked()
        verifier = conversation_kind(RING, self.id).verifier
        return Viewpoint(looked.stream_id, looked.conversation, verifier, who)
