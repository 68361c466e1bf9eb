"""A conversation as its log says it: references into the log, never text (conversations.md, Streams and records)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from .events import BargeIn, EnvelopeKind, Mode, ReplyStatus
from .identity import Identity

MAX_WINDOW_TURNS = 64
"""Turns that a prompt may hold."""

MAX_EVICTED_TURNS = 64
"""Turns that left the window and wait for a summary; the oldest goes where there is one more."""

MAX_REPLAY_IDS = 1024
"""Envelope ids that are remembered, so that none is taken up twice; the floor keeps older ones dead."""

MAX_WAITING_TURNS = 64
"""Turns that may wait in owner-only mode."""

MAX_WAITING_PER_ASKER = 8
"""Turns of one asker that may wait in a shared conversation."""

MAX_PARTICIPANTS = 100
"""Of a shared conversation, its owner among them."""

MAX_WAITING_SHARED = MAX_PARTICIPANTS * MAX_WAITING_PER_ASKER
"""Turns that may wait in a shared conversation, also where those who sent them are participants no more."""

MAX_CARRY_BYTES = 256 * 1024
ROTATE_TURNS = 100
ROTATE_EVENTS = 1000
MAX_RECORDED_INVALID = 100
"""Suspect envelopes that get a record of their own; then one counter event each hundred."""

DROP_BATCH = 100
"""Envelopes that one counter event counts."""


class Waiting(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An envelope that was not taken up yet. seq: its place in the log. iat: when it was issued (ms).

    is_signed: its MAC is ours; one that is not has no asker. is_suspect: it is not signed, or repeats an id, is older
    than the floor, or speaks for nobody who may: so many of those are recorded, and the others counted. stopped_by: seq
    of an interrupt that came before its turn began, 0 for none. is_removed: its asker was taken out of the
    participants while it waited.
    """

    seq: int
    id: str = ""
    kind: EnvelopeKind = "user"
    iat: int = 0
    asker: Identity | None = None
    is_signed: bool = True
    is_suspect: bool = False
    stopped_by: int = 0
    is_removed: bool = False


class Running(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The turn that runs. ord, seq: of its user record. envelope_seq: of its envelope. id: of the envelope.

    kid: of the key that its execution id was made with. interrupts: seqs of verified envelopes behind it that
    interrupt it; the runner judges them. context_seq: of its ContextDecided, 0 while there is none.
    """

    turn: int
    ord: int
    seq: int
    envelope_seq: int
    id: str
    asker: Identity
    kid: str
    classes: tuple[str, ...] = ()
    context_seq: int = 0
    interrupts: tuple[int, ...] = ()


class WindowTurn(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A turn that later prompts may hold. user_seq, reply_seq: of its records. tokens: counted when it was first
    needed, UNSET before. seen: of an interrupted one, see ReplyRecorded."""

    turn: int
    asker: Identity
    user_ord: int
    user_seq: int
    reply_ord: int
    reply_seq: int
    status: ReplyStatus
    classes: tuple[str, ...] = ()
    tokens: int | UnsetType = UNSET
    seen: int | UnsetType = UNSET


class SummaryRef(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The rolling summary. seq: of the event that has its text. through_turn: the last turn that it covers.

    classes: of all that it covers.
    """

    number: int
    seq: int
    through_turn: int
    tokens: int
    classes: tuple[str, ...] = ()


class Consumed(Struct, frozen=True, rename="camel"):
    """An envelope id that was taken up, and when it was issued (ms)."""

    id: str
    iat: int


class Conversation(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The folded state; `initial()` before the first event. version is the mailbox's business, not the state's.

    generation: 1-based. next_ord: of the next record. turns: newest accepted turn number. events, generation_turns:
    of this generation. evicted: turns that left the window and are not in the summary yet, oldest first. floor:
    envelopes issued at or before it are dead (ms), since ids were forgotten. invalid: suspect envelopes that got a
    record; dropped: those that got none and were counted, dropped_uncounted: those that were not yet. is_closing: a
    verified close was received. participants: of a shared one, without the owner, in the order of their coming.
    clearances: by identity_key of a viewer, what the newest ClearanceRecorded says of them (clearance_digest).
    """

    id: str = ""
    owner: Identity | None = None
    agent: str = ""
    mode: Mode = "owner"
    barge_in: BargeIn = "queue"
    state: Literal["open", "closed"] = "open"
    generation: int = 1
    next_ord: int = 1
    turns: int = 0
    events: int = 0
    generation_turns: int = 0
    queue: tuple[Waiting, ...] = ()
    running: Running | None = None
    window: tuple[WindowTurn, ...] = ()
    evicted: tuple[WindowTurn, ...] = ()
    summary: SummaryRef | None = None
    consumed: tuple[Consumed, ...] = ()
    floor: int = 0
    invalid: int = 0
    dropped: int = 0
    dropped_uncounted: int = 0
    is_closing: bool = False
    participants: tuple[Identity, ...] = ()
    clearances: dict[str, str] = {}

    def may_speak(self, who: Identity) -> bool:
        """Whether turns may run for that identity: the owner's or, where it is shared, a participant's, to the last
        field. Where nobody owns it, nobody may."""
        return self.owner is not None and (who == self.owner or who in self.participants)

    @property
    def waiting_turns(self) -> int:
        """Turns that wait and count against the limit: what nobody can be said to have sent does not."""
        return sum(1 for each in self.queue if each.kind == "user" and not each.is_suspect)

    def waiting_turns_of(self, who: Identity) -> int:
        """Likewise, one asker's."""
        return sum(1 for each in self.queue if each.kind == "user" and not each.is_suspect and each.asker == who)


def clearance_digest(labels: Iterable[str], policy: str) -> str:
    """What is kept in the state of a viewer's clearance: 16 hex digits of a SHA-256."""
    return hashlib.sha256("\n".join((policy, *sorted(labels))).encode()).hexdigest()[:16]


class Carry(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What a rotation keeps, read back as untrusted input: shapes, counts and sizes are checked (`read_carry`)."""

    id: str
    owner: Identity | None
    agent: str
    mode: Mode
    barge_in: BargeIn
    next_ord: int
    turns: int
    queue: tuple[Waiting, ...] = ()
    window: tuple[WindowTurn, ...] = ()
    evicted: tuple[WindowTurn, ...] = ()
    summary: SummaryRef | None = None
    consumed: tuple[Consumed, ...] = ()
    floor: int = 0
    invalid: int = 0
    dropped: int = 0
    dropped_uncounted: int = 0
    is_closing: bool = False
    participants: tuple[Identity, ...] = ()
    clearances: dict[str, str] = {}
