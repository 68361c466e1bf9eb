"""Looking into a conversation's past, and asking why somebody sees a record: who may, and that it is written down."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET, Struct, UnsetType

from ...domain.conversations.identity import Identity, identity_of
from ...domain.conversations.inspections import AUDIT_EVENTS, HistoryInspected, Trail, evolve, inspect
from ...domain.conversations.state import Conversation
from ...domain.errors import Forbidden, NotVisible, Unavailable
from ...domain.ids import is_conversation_id
from ...domain.principals import Caller, Principal
from ..beside import Admit
from ..dispatcher import Dispatcher
from ..mailbox import Decided
from ..ports import Creation, Head
from ..streams import Kind
from .encoding import Scribe
from .handlers import Conversations, Looked
from .kind import conversation_kind, stream_of

AUDIT = "audit"
"""The kind of the stream `audit:<conversation id>`."""

_KIND: Kind[Trail] = Kind(AUDIT, "audit.1", Trail(), Trail, AUDIT_EVENTS, evolve, lambda trail, _: trail)


class InspectMeans(Struct, frozen=True):
    """What is worked with. retention_days: by tenant. policy: version of the clearance policy. As in handlers.Means."""

    dispatcher: Dispatcher
    scribe: Scribe
    admit: Admit
    retention_days: Callable[[str], int]
    policy: str


class Looks(Struct, frozen=True):
    """A conversation that a caller may look into. is_auditor: they take no part in it, and read what was recorded."""

    looked: Looked
    is_auditor: bool


class Inspections:
    """One per process. Nobody but the two kinds of callers that `look` knows gets anything out of it."""

    def __init__(self, means: InspectMeans, conversations: Conversations) -> None:
        self._means = means
        self._conversations = conversations

    async def look(self, caller: Caller, conversation_id: str) -> Looks:
        """The conversation, for who takes part in it, and for the auditors of its tenant where it is a shared one.

        Raises NotVisible for everybody else.
        """
        if not _audits(caller):
            return Looks(await self._conversations.look(caller, conversation_id), is_auditor=False)
        if not is_conversation_id(conversation_id):
            raise NotVisible
        found: list[tuple[Conversation, Head]] = []
        who = identity_of(caller)

        def authorize(state: Conversation, head: Head) -> None:
            if head.tenant != caller.tenant or not (state.owner == who or state.mode == "shared"):
                raise NotVisible

        def decide(state: Conversation, head: Head) -> Decided:
            found.append((state, head))
            return Decided((), (), False, {})

        kind = conversation_kind(self._means.scribe.keyring, conversation_id)
        await self._means.dispatcher.run(kind, stream_of(conversation_id), authorize, decide)
        state, head = found[-1]
        looked = Looked(head.id, state, head.version, head.chain, who)
        return Looks(looked, is_auditor=state.mode == "shared")

    async def look_back(self, caller: Caller, conversation_id: str) -> Looks:
        """As `look`, for the owner and the auditors alone. Raises Forbidden for the other participants."""
        looks = await self.look(caller, conversation_id)
        if not looks.is_auditor and looks.looked.conversation.owner != looks.looked.who:
            raise Forbidden("Only the owner and auditors look into the past of a conversation.")
        return looks

    async def note(
        self,
        caller: Caller,
        looks: Looks,
        viewer: Identity,
        as_of: str | UnsetType = UNSET,
        ord_: int | UnsetType = UNSET,
    ) -> None:
        """Write down that the caller looks, before they are answered. It counts against their commands.

        Raises RateLimited, Unavailable.
        """
        self._means.admit(caller)()
        by, stream = looks.looked.who, f"{AUDIT}:{looks.looked.conversation.id}"
        inspected = HistoryInspected(by, viewer, self._means.policy, kid="", mac="", as_of=as_of, ord=ord_)
        decision = inspect(inspected, Principal.own(by.actor))

        def decide(_: Trail, head: Head) -> Decided:
            return self._means.scribe.encode(stream, head.version, decision)

        async def append() -> None:
            await self._means.dispatcher.run(_KIND, stream, _nobody_is_refused, decide)

        try:
            await append()
        except NotVisible:
            creation = Creation(AUDIT, caller.tenant, self._means.retention_days(caller.tenant))
            first = self._means.scribe.encode(stream, 0, decision)
            try:
                await self._means.dispatcher.create(stream, creation, first, key=None, status=200)
            except Unavailable:
                # Somebody else may have looked first; where the database is away, this says so.
                await append()


def _audits(caller: Caller) -> bool:
    """Whether somebody of the auditors asks, for nobody but themself."""
    return caller.is_auditor and caller.delegate is None


def _nobody_is_refused(_: Trail, __: Head) -> None:
    """Who may look is looked at with the conversation."""
