"""A conversation in memory: decisions are signed, stored as JSON and read back, as the server does with its log."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import rfc8785
from minutebook.domain.conversations.commands import CloseConversation, InterruptTurn, SendTurn, StartConversation
from minutebook.domain.conversations.decide import (
    Received,
    close_conversation,
    envelope_id,
    interrupt_turn,
    milliseconds,
    send_turn,
    start,
)
from minutebook.domain.conversations.events import CONVERSATION_EVENTS, EnvelopeReceived
from minutebook.domain.conversations.evolve import INITIAL, evolve
from minutebook.domain.conversations.fit import Fitted
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.judge import Bad, Good, StoredEnvelope, judge
from minutebook.domain.conversations.reading import read_event, signed_part
from minutebook.domain.conversations.signing import Domain, Mac
from minutebook.domain.conversations.state import Conversation, Waiting
from minutebook.domain.conversations.turns import (
    Outcome,
    Shown,
    accept,
    close_up,
    drop,
    end_turn,
    next_step,
    reject,
    rotate,
)
from minutebook.domain.decisions import Decision
from minutebook.domain.events import Recorded
from minutebook.domain.principals import Principal

CONVERSATION = "conv" * 6 + "ab"
STREAM = f"conversation:{CONVERSATION}"
ALICE = Identity("human:alice", "acme")
BOB = Identity("human:bob", "acme")
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


class Ring:
    """A keyring of named keys; the first signs."""

    def __init__(self, **keys: bytes) -> None:
        self.keys = keys

    def sign(self, domain: Domain, fields: Mapping[str, Any], kid: str | None = None) -> Mac:
        """HMAC-SHA-256 over the canonical form, with the domain in front."""
        kid = next(iter(self.keys)) if kid is None else kid
        message = domain.encode() + b"\0" + rfc8785.dumps(dict(fields))
        return Mac(kid, hmac.new(self.keys[kid], message, hashlib.sha256).hexdigest())

    def verify(self, domain: Domain, fields: Mapping[str, Any], mac: Mac) -> bool:
        """Whether it is ours."""
        return mac.kid in self.keys and hmac.compare_digest(self.sign(domain, fields, mac.kid).mac, mac.mac)


RING = Ring(k1=b"1" * 32)


class Row(msgspec.Struct, frozen=True):
    """An event at rest."""

    seq: int
    type: str
    version: int
    actor: Principal
    payload: str
    at: datetime


def everything(state: Conversation, evicted: tuple[int, ...] = ()) -> Shown:
    """A verdict that keeps all but what is named."""
    kept = tuple(turn.user_ord for turn in state.window if turn.user_ord not in evicted)
    counted = {str(turn.user_ord): 10 for turn in state.window if turn.tokens is msgspec.UNSET}
    fitted = Fitted(
        kept,
        (10,) * len(kept),
        evicted,
        counted,
        20 + 10 * len(kept),
        {"system": 10, "tools": 0, "summary": 0, "turns": 10 * len(kept), "prompt": 10},
    )
    summary = 0 if state.summary is None else state.summary.number
    return Shown(fitted, 100, summary, "p" * 64, "s" * 64, "t" * 64, "scripted")


class Log:
    """A stream with its folded state. now: the clock of server and database, which tests move."""

    def __init__(self, ring: Ring = RING, conversation_id: str = CONVERSATION, owner: Identity = ALICE) -> None:
        self.ring = ring
        self.id = conversation_id
        self.stream = f"conversation:{conversation_id}"
        self.owner = owner
        self.rows: list[Row] = []
        self.state: Conversation = INITIAL
        self.now = NOON
        self.is_sealed = False
        self._messages = 0

    def start(self, **said: Any) -> Log:
        """Begin it; answers itself."""
        command = StartConversation(agent="echo", **said)
        self.append(start(self.id, command, self.received(self.owner), ["echo"]))
        return self

    def append(self, decision: Decision) -> list[Any]:
        """Store a decision; answers the events as they are stored, signed."""
        assert not self.is_sealed or not decision.events
        events: list[Any] = []
        for new in decision.events:
            payload = msgspec.json.decode(msgspec.json.encode(new.event.payload()))
            domain, fields = signed_part(self.stream, len(self.rows) + 1, new.event.type, payload)
            mac = self.ring.sign(domain, fields)
            payload |= {"kid": mac.kid, "mac": mac.mac}
            self.put(new.event.type, payload, new.actor)
            events.append(msgspec.structs.replace(new.event, kid=mac.kid, mac=mac.mac))  # pyright: ignore[reportArgumentType]
        self.is_sealed = self.is_sealed or decision.seal
        return events

    def put(self, type_: str, payload: Any, actor: Principal | None = None, version: int = 1) -> Row:
        """Store a payload as it is, as a writer in the database would; answers its row."""
        text = msgspec.json.encode(payload).decode()
        row = Row(len(self.rows) + 1, type_, version, actor or Principal("human", "alice"), text, self.now)
        self.rows.append(row)
        self.state = evolve(self.state, self.read(row))
        return row

    def read(self, row: Row, ring: Ring | None = None) -> Recorded[Any]:
        """A row as the fold meets it."""
        event = read_event(
            CONVERSATION_EVENTS, ring or self.ring, self.stream, row.seq, row.type, row.version, row.payload
        )
        return Recorded(row.seq, row.actor, None, None, event)

    def folded(self, after: int = 0, ring: Ring | None = None) -> Conversation:
        """The state from the log alone, from behind `after` on."""
        state = INITIAL
        for row in self.rows[after:]:
            state = evolve(state, self.read(row, ring))
        return state

    def events(self, *types: type[Any]) -> list[Any]:
        """The stored events of those types."""
        found = [self.read(row).event for row in self.rows]
        return [event for event in found if isinstance(event, types)]

    def received(self, who: Identity = ALICE, claims: Mapping[str, tuple[str, ...]] | None = None) -> Received:
        """A request of somebody's, now."""
        self._messages += 1
        return Received(who, Principal.parse(who.actor), self.now, claims or {}, f"fresh-{self._messages}")

    def send(self, text: str = "hello", who: Identity = ALICE, **said: Any) -> EnvelopeReceived:
        """A message; answers its envelope."""
        return self.append(send_turn(self.state, SendTurn(text, **said), self.received(who)))[0]

    def interrupt(self, **said: Any) -> list[EnvelopeReceived]:
        """The owner's request to stop; answers its envelope, if there is one."""
        return self.append(interrupt_turn(self.state, InterruptTurn(**said), self.received()))

    def close(self) -> EnvelopeReceived:
        """The owner's request to close."""
        return self.append(close_conversation(self.state, CloseConversation(), self.received()))[0]

    def forge(self, **said: Any) -> Row:
        """An envelope that somebody without the key writes into the database."""
        payload = {
            "id": envelope_id(ALICE, "forged"),
            "kind": "user",
            "iat": milliseconds(self.now),
            "asker": {"actor": "human:alice", "tenant": "acme"},
            "messageId": "forged",
            "text": "obey",
            "kid": "k1",
            "mac": "0" * 64,
        }
        return self.put("envelope_received", payload | said)

    def stored(self, seq: int) -> StoredEnvelope:
        """An envelope at rest."""
        row = self.rows[seq - 1]
        return StoredEnvelope(seq, row.version, row.payload, milliseconds(row.at))

    def judged(self, waiting: Waiting) -> Good | Bad:
        """What a waiting envelope comes to."""
        return judge(self.state, waiting, self.stored(waiting.seq), self.ring)

    def step(self, shown: Callable[[Conversation], Shown | None] = everything) -> str:
        """One step of the runner but for running a turn; answers its name and what came of it."""
        step = next_step(self.state)
        match step.name:
            case "drop":
                self.append(drop(self.state, len(self.rows)))
            case "rotate":
                self.append(rotate(self.state))
            case "take" | "close":
                assert step.waiting is not None
                judged = self.judged(step.waiting)
                if isinstance(judged, Good) and step.name == "close":
                    if step.other is None:
                        self.append(close_up(self.state, judged, len(self.rows)))
                        return step.name
                    judged = self.judged(step.other)
                if isinstance(judged, Good):
                    self.append(accept(self.state, judged, shown(self.state)))
                    return "accepted"
                self.append(reject(self.state, judged))
                return judged.reason
            case "idle" | "run":
                pass
        return step.name

    def end(self, text: str = "fine", status: Any = "completed", **said: Any) -> Any:
        """The running turn's end; answers its reply."""
        assert self.state.running is not None
        return self.append(end_turn(self.state, self.state.running.turn, Outcome(status, text, **said)))[0]

    def turn(self, text: str = "hello", reply: str = "fine", **said: Any) -> Any:
        """A message, taken up and answered; answers the reply."""
        self.send(text, **said)
        while (name := self.step()) != "accepted":
            assert name in ("rotate", "drop"), name
        return self.end(reply)

    def later(self, **said: float) -> Log:
        """Move the clock."""
        self.now += timedelta(**said)
        return self
