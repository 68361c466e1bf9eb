"""What a viewer of a shared conversation may see now, recorded before they see it (conversations.md, Shared mode)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable

import structlog
from msgspec import Struct

from ...domain.conversations.identity import Identity, identity_key
from ...domain.conversations.recording import RecordClearance, is_recorded, record_clearance
from ...domain.conversations.state import Conversation
from ...domain.conversations.visibility import Cleared
from ...domain.decisions import Decision
from ...domain.errors import MinutebookError, NotVisible
from ..dispatcher import Dispatcher
from ..mailbox import Decided
from ..ports import Head
from .encoding import Scribe
from .handlers import Looked
from .kind import conversation_kind, stream_of
from .past import Past, Viewpoint, standing_at
from .ports import Clearance, Viewer

MAX_RECORDS_A_MINUTE = 6
"""Records of one viewer in one conversation that a process writes in any 60 s; what is over it, they do not see."""

WINDOW_S = 60.0

MAX_PACED = 10_000
"""Viewers whose records are counted; who was silent for the longest is forgotten first."""

log = structlog.get_logger(__name__)


class Granted(Struct, frozen=True):
    """What a viewer may see until they are looked at again.

    asked: the classes that a callable was asked for; None where the policy has labels, and nothing need be asked.
    """

    labels: frozenset[str]
    asked: frozenset[str] | None = None

    def knows(self, classes: Iterable[str]) -> bool:
        """Whether it has the answer for those classes; where it has none, `Clearances.grant` has."""
        return self.asked is None or self.asked.issuperset(classes)

    def cleared(self, class_sets: Iterable[Collection[str]]) -> Cleared:
        """The answers for visibility.sight."""
        return {frozenset(classes): self.labels.issuperset(classes) for classes in class_sets if classes}


OWNER_ONLY = Granted(frozenset())
"""Of an owner-only conversation, where nothing is asked."""


class Clearances:
    """One per process. The log says what every viewer of a shared conversation was cleared for when they looked."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        scribe: Scribe,
        past: Past,
        policy: Clearance,
        a_minute: int = MAX_RECORDS_A_MINUTE,
    ) -> None:
        """a_minute: records of one viewer in one conversation that are written in any 60 s."""
        self._a_minute = a_minute
        self._dispatcher = dispatcher
        self._scribe = scribe
        self._past = past
        self._policy = policy
        self._recorded: OrderedDict[tuple[int, str], deque[float]] = OrderedDict()

    async def grant(self, viewer: Viewer, looked: Looked, classes: Collection[str]) -> Granted:
        """What `viewer`, who takes part in the conversation as it was looked at just now, may see from here on.

        classes: those that a callable must be asked for. Never more than the viewer's own labels now; and only what the
        log says of them, where it cannot be told them now: too often, behind the seal, without an append.
        Raises NotVisible where they have been removed since, Unavailable.
        """
        conversation = looked.conversation
        if conversation.mode == "owner":
            return OWNER_ONLY
        labels, asked = self._policy.labels(viewer), None
        if labels is None:
            known = await self._on_record(viewer.identity, looked)
            labels, asked = await self._asked_for(viewer, known | frozenset(classes))
        if is_recorded(conversation, viewer.identity, labels, self._policy.version):
            return Granted(labels, asked)
        if await self._record(viewer.identity, looked, labels):
            return Granted(labels, asked)
        return Granted(labels & await self._on_record(viewer.identity, looked), asked)

    async def holds(self, viewer: Viewer, granted: Granted, classes: frozenset[str]) -> bool:
        """Whether a callable says of those classes what it said then. Labels last until a token is looked at again."""
        return granted.asked is None or (await self._asked_for(viewer, classes))[0] == granted.labels & classes

    async def unrecorded(self, viewer: Viewer, classes: Collection[str]) -> Granted:
        """What somebody who takes no part, and of whom nothing is recorded, may see now: an auditor."""
        labels = self._policy.labels(viewer)
        return Granted(labels) if labels is not None else Granted(*await self._asked_for(viewer, frozenset(classes)))

    async def _asked_for(self, viewer: Viewer, classes: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The classes that a callable clears, each by itself, and all that it was asked for."""
        answers = await self._policy.resolve(viewer, [(each,) for each in sorted(classes)])
        return frozenset(each for each in classes if answers.get(frozenset((each,))) is True), classes

    async def _on_record(self, viewer: Identity, looked: Looked) -> frozenset[str]:
        """The labels that the log says they have; none where it says nothing."""
        if identity_key(viewer) not in looked.conversation.clearances:
            return frozenset()
        return (await standing_at(self._past, self._point(viewer, looked), looked.version)).labels or frozenset()

    def _point(self, viewer: Identity, looked: Looked) -> Viewpoint:
        kind = conversation_kind(self._scribe.keyring, looked.conversation.id)
        return Viewpoint(looked.stream_id, looked.conversation, kind.verifier, viewer)

    async def _record(self, viewer: Identity, looked: Looked, labels: frozenset[str]) -> bool:
        """Whether the log says it now. Raises NotVisible."""
        conversation_id, times = looked.conversation.id, self._times((looked.stream_id, identity_key(viewer)))
        if looked.conversation.state == "closed" or len(times) >= self._a_minute:
            return False
        stream, command = stream_of(conversation_id), RecordClearance(viewer, labels, self._policy.version)
        decisions: list[Decision] = []

        def authorize(state: Conversation, head: Head) -> None:
            if head.tenant != viewer.tenant or not state.may_speak(viewer):
                raise NotVisible

        def decide(state: Conversation, head: Head) -> Decided:
            decisions.append(record_clearance(state, command))
            return self._scribe.encode(stream, head.version, decisions[-1])

        kind = conversation_kind(self._scribe.keyring, conversation_id)
        try:
            await self._dispatcher.run(kind, stream, authorize, decide)
        except NotVisible:
            raise
        except MinutebookError as error:
            log.warning("a clearance was not recorded; its viewer sees what was recorded before", code=error.code)
            return False
        if decisions[-1].events:
            times.append(asyncio.get_running_loop().time())
        return True

    def _times(self, who: tuple[int, str]) -> deque[float]:
        """When a viewer's records of the last minute were written here."""
        now = asyncio.get_running_loop().time()
        times = self._recorded.setdefault(who, deque())
        self._recorded.move_to_end(who)
        if len(self._recorded) > MAX_PACED:
            self._recorded.popitem(last=False)
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        return times
