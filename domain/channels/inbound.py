"""The fact that something came in over a channel, and what it came to: one stream a message, sealed with its event.

Ids, reason codes and keyed hashes alone: never a text, a native id, a name or a claim. The stream's name is a keyed
hash of the platform's message id, so that the same message never has a second one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import UNSET, UnsetType

from ..decisions import Decision, NewEvent
from ..events import Event, Registry
from ..principals import SERVER
from .authorize import DenyReason
from .messages import Verb

InboundOutcome = Literal["accepted", "ignored", "link_required", "denied"]

InboundReason = Literal[DenyReason, "allowed", "no_link", "empty", "too_long", "no_conversation", "deleted"]
"""no_link: only linked ends may talk there. empty, too_long: no text that a turn may have. no_conversation: a webhook
named one that its sender does not see, whether or not there is one. deleted: it was deleted before it came."""


class InboundDecided(Event, frozen=True, omit_defaults=True):
    """What was decided of a message, once, whatever is repeated.

    inbound_id: of the stream. native: keyed hash of the sender's id. account: their isolation key then. conversation:
    where the turn goes, of an accepted one without a verb. is_group: said in a shared chat. details: of a denial, what
    the allowlist said in each phase, such as `before abstain, after none`; nobody is told. deletes: of a deletion, the
    inbound_id of the message that is gone, whether or not it ever comes.
    """

    type: ClassVar[str] = "inbound_decided"
    inbound_id: str
    tenant: str
    channel: str
    native: str
    account: str
    outcome: InboundOutcome
    reason: InboundReason
    correlation_id: str
    is_group: bool = False
    verb: Verb | UnsetType = UNSET
    conversation: str | UnsetType = UNSET
    details: str | UnsetType = UNSET
    deletes: str | UnsetType = UNSET


INBOUND_EVENTS: Registry[InboundDecided] = Registry((InboundDecided,))
"""The closed registry."""


def decided(event: InboundDecided) -> Decision:
    """The whole stream of a message."""
    return Decision((NewEvent(event, SERVER, origin="broker"),), seal=True)
