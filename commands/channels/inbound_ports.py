"""What taking messages from channels needs of the world, as protocols; infra/ has the adapters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.answers.target import ResponseTarget
from ...domain.channels.allowlist import Allowlist, Asked, Open
from ...domain.channels.authorize import AcceptInGroup
from ...domain.channels.inbound import InboundOutcome
from ...domain.channels.messages import Verb
from ...domain.channels.sessions import Scope

STREAM = "inbound:"
"""What the name of a message's stream begins with."""


class ChannelRules(Struct, frozen=True):
    """What the settings say of what comes in over a channel. agent: who answers. tells_errors: its senders are
    programs, which are told in the answer what is wrong with a message. background: its turns run in the background."""

    tenant: str
    agent: str
    allowlist: Allowlist = Open()
    require_link: bool = False
    accept: AcceptInGroup = "mention_only"
    scope: Scope = "per_user_per_conversation"
    tells_errors: bool = False
    background: bool = False


class Known(Struct, frozen=True):
    """A message that was decided before. correlation_id: what its sender was told as its id. account: isolation key of
    its sender then, native: keyed hash of their id. is_done: its effect is there. is_deleted: its deletion was recorded
    by then."""

    id: str
    outcome: InboundOutcome
    correlation_id: str
    account: str
    conversation_id: str | UnsetType = UNSET
    is_done: bool = False
    native: str = ""
    is_deleted: bool = False


class Seen(NamedTuple):
    """What is known of a message as it comes. is_spent: the signature has had its effect. is_deleted: a deletion of it
    was recorded, be it known or not."""

    known: Known | None
    is_spent: bool
    is_deleted: bool = False


class Finished(NamedTuple):
    """is_unspent: the signature was. is_first: the message was not done. is_deleted: as in Seen, behind the effect."""

    is_unspent: bool
    is_first: bool
    is_deleted: bool = False


class Spot(NamedTuple):
    """A conversation where the turn of a message may be. owner: a principal as text."""

    conversation_id: str
    owner: str


class Wishes(Struct, frozen=True):
    """What a webhook's message asks for beside its words, checked."""

    background: bool = False
    target: ResponseTarget | UnsetType = UNSET


class InboundRows(Protocol):
    """Messages and spent proofs. Every method raises Unavailable."""

    async def look(
        self, tenant: str, channel: str, message: str, signature: str | None, deleters: Sequence[str] = ()
    ) -> Seen:
        """What is known of a message. deleters: keyed hashes of those whose deletion of it counts."""
        ...

    async def is_overtaken(self, message: str, verbs: Collection[Verb]) -> bool:
        """Whether the same end has said one of these verbs after that message, and it is done."""
        ...

    async def finish(
        self, tenant: str, channel: str, message: str | None, signature: str | None, deleters: Sequence[str] = ()
    ) -> Finished:
        """Spend the signature and mark the message done, both or neither. An unspent one of a message that is done is
        spent all the same."""
        ...


class Deletions(Protocol):
    """Wishes to erase the turns of messages that their senders deleted. Every method raises Unavailable."""

    async def spots(self, conversation_id: str, handle: str) -> list[Spot]:
        """That conversation, and those that its owner began with the handle; none that is gone."""
        ...

    async def wish(
        self, tenant: str, channel: str, message: str, message_id: str, conversations: Sequence[str]
    ) -> None:
        """Keep the wish for each. message: id of the one that is gone, message_id: that of its turn. The same again
        changes nothing."""
        ...

    async def is_wished(self, message_id: str) -> bool:
        """Whether the turn with that message id is to be erased."""
        ...


class SessionRows(Protocol):
    """Which conversation goes on where. Every method raises Unavailable."""

    async def begin(self, tenant: str, scope: str, handle: str) -> tuple[str, str | None]:
        """The handle of a scope and the conversation that was begun with it, if any; `handle` where it had none."""
        ...

    async def change(self, tenant: str, scope: str, handle: str) -> None:
        """Another handle, without a conversation yet. The one that it has already changes nothing, nor does that of a
        message which came before the one that it is of."""
        ...

    async def begun(self, tenant: str, scope: str, handle: str, conversation_id: str) -> None:
        """The conversation of that handle, if it is still the scope's."""
        ...

    async def current(self, tenant: str, scope: str) -> str | None:
        """The conversation of a scope."""
        ...


class InboundHashes(Protocol):
    """Keyed hashes; another tenant's are others for the same text."""

    def message(self, tenant: str, channel: str, message_id: str) -> int:
        """The bits of a message's id."""
        ...

    def signature(self, tenant: str, channel: str, signature: str) -> str:
        """64 hex digits."""
        ...

    def scope(self, tenant: str, parts: tuple[str, ...]) -> int:
        """The bits of the id of what shares a conversation."""
        ...

    def native(self, tenant: str, channel: str, native_id: str) -> str:
        """A platform's id as events have it: `h:` and 32 hex digits."""
        ...


class Callables(Protocol):
    """Callables of allowlists."""

    async def ask(self, allowlist: Allowlist, asked: Asked) -> Mapping[str, object]:
        """What each callable of the list answers, by its name; one that fails or is late is missing. Never raises."""
        ...


class Claims(Protocol):
    """Verified claims of a link."""

    async def of(self, tenant: str, account: str) -> Mapping[str, tuple[str, ...]]:
        """The newest snapshot of an account's claims within its time, `groups` among them; empty without one. Raises
        Unavailable."""
        ...


class Pace(Protocol):
    """How much a process takes in."""

    def of_channel(self, channel: str) -> None:
        """One more proven request. Raises RateLimited."""
        ...

    def of_sender(self, tenant: str, channel: str, native: str) -> None:
        """One more message that is meant for the agent. Raises RateLimited."""
        ...
