"""What became of a message, as its conversation's log verifiably says it, and whether its asker still takes part."""

from __future__ import annotations

from msgspec import UNSET, Struct

from ...domain.conversations.events import ReplyRecorded, UserRecorded
from ...domain.conversations.identity import Identity
from ...domain.conversations.signing import Keyring
from ...domain.conversations.visibility import may_see
from ...domain.errors import NotVisible
from ...domain.principals import Caller, Principal
from ..channels.deleting import TURN
from ..channels.inbound_ports import Claims, Deletions
from ..conversations.access import Access
from ..conversations.kind import conversation_kind
from ..conversations.ports import Clearance, ConversationLog, Viewer


class Records(Struct, frozen=True):
    """user: the question. reply: None of a message that was not taken up. is_deleted: its sender deleted it on the
    platform, and it is to be erased."""

    user: UserRecorded
    reply: ReplyRecorded | None
    is_deleted: bool = False

    @property
    def classes(self) -> frozenset[str]:
        """Of question and reply."""
        return frozenset((*self.user.classes, *(() if self.reply is None else self.reply.classes)))

    @property
    def is_erased(self) -> bool:
        """Whether the words of either are gone for good, or are to go."""
        return self.is_deleted or self.user.is_erased or (self.reply is not None and self.reply.is_erased)


class Transcripts:
    """Reads records. One per process."""

    def __init__(
        self,
        log: ConversationLog,
        keyring: Keyring,
        access: Access,
        clearance: Clearance,
        claims: Claims,
        deletions: Deletions,
    ) -> None:
        """claims: of people by their account, as they were verified last."""
        self._claims = claims
        self._deletions = deletions
        self._log = log
        self._keyring = keyring
        self._access = access
        self._clearance = clearance

    async def records(
        self, stream_id: int, conversation_id: str, envelope_id: str, user_seq: int, reply_seq: int | None
    ) -> Records | None:
        """The records at those places; None where they are not verifiably those of that message. Raises Unavailable."""
        seqs = [user_seq] if reply_seq is None else [user_seq, reply_seq]
        verifier = conversation_kind(self._keyring, conversation_id).verifier
        found = [verifier.decode(each.event) for each in await self._log.at(stream_id, seqs)]
        user = found[0] if found else None
        if not isinstance(user, UserRecorded) or user.id != envelope_id or user.asker is None:
            return None
        if reply_seq is None:
            return Records(user, None, await self._is_deleted(user)) if user.status == "rejected" else None
        reply = found[-1]
        if not isinstance(reply, ReplyRecorded) or reply.turn != user.turn:
            return None
        return Records(user, reply, await self._is_deleted(user))

    async def _is_deleted(self, user: UserRecorded) -> bool:
        if user.message_id is UNSET or not user.message_id.startswith(TURN):
            return False
        return await self._deletions.is_wished(user.message_id)

    async def takes_part(self, asker: Identity, conversation_id: str) -> bool:
        """Whether somebody still has a place in a conversation. Raises Unavailable."""
        try:
            await self._access.seat(_as_caller(asker), conversation_id)
        except NotVisible:
            return False
        return True

    async def is_cleared(self, tenant: str, account: str, who: Principal, classes: frozenset[str]) -> bool:
        """Whether a person may see what has those classes, by the claims of theirs that still hold. Raises
        Unavailable."""
        viewer = Viewer(Identity(str(who), tenant), await self._claims.of(tenant, account))
        return may_see(classes, await self._clearance.resolve(viewer, [classes]))


def _as_caller(asker: Identity) -> Caller:
    """A caller with that identity."""
    tenant = "" if asker.tenant is UNSET else asker.tenant
    actor = Principal.own(asker.actor)
    if asker.on_behalf_of is UNSET:
        return Caller(actor, tenant)
    return Caller(Principal.own(asker.on_behalf_of), tenant, delegate=actor)
