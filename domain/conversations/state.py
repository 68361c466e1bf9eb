"""A conversation as its log says it: references into the log, never text (conversations.md, Streams and records)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from .events import BargeIn, EnvelopeKind, Mode, ReplyStatus
from .identity import Identity

MAX_WINDOW_TURNS = 64
"""Turns that a prompt may hold."""

MAX_REPLAY_IDS = 1024
MAX_CARRY_BYTES = 256 * 1024
ROTATE_TURNS = 100
ROTATE_EVENTS = 1000
MAX_RECORDED_INVALID = 100
"""Invalid envelopes that get a record of their own; then one counter event each hundred."""


class Waiting(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An envelope that was not taken up yet. seq: its place in the log. is_signed: its MAC is ours."""

    seq: int
    id: str
    kind: EnvelopeKind
    asker: Identity
    is_signed: bool = True


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


class SummaryRef(Struct, frozen=True, rename="camel"):
    """The rolling summary. seq: of the event that has its text. through_turn: the last turn that it covers."""

    number: int
    seq: int
    through_turn: int
    tokens: int


class Consumed(Struct, frozen=True, rename="camel"):
    """An envelope id that was taken up, and when it was issued (ms)."""

    id: str
    iat: int


class Conversation(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The folded state; `initial()` before the first event. version is the mailbox's business, not the state's.

    generation: 1-based. next_ord: of the next record. turns: newest accepted turn number. events, generation_turns:
    of this generation. floor: envelopes issued at or before it are dead (ms), since ids were evicted. invalid: invalid
    envelopes that got a record; dropped: those that got none. is_closing: a verified close was received.
    summarized: turns evicted from the window and not in the summary yet, oldest first.
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


class Carry(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What a rotation keeps, read back as untrusted input: shapes, counts and sizes are checked (`read_carry`)."""

    owner: Identity
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
