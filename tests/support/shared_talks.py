"""Shared conversations, in memory and over a database, with participants of different clearance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from conversation_desk import Desk
from conversation_scenes import Log
from minutebook.commands.conversations.kind import Verifier, turn_stream_of
from minutebook.commands.conversations.ports import CallDelta, ModelPart, ModelRequest, TextDelta, ToolResult, ToolSpec
from minutebook.domain.conversations.commands import AddParticipant, InterruptTurn, SendTurn, StartConversation
from minutebook.domain.conversations.events import ConversationStarted, ParticipantAdded
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.turn_events import TURN_EVENTS, WantedCall
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.principals import Caller, Principal

ALICE = Caller(Principal("human", "alice"), "acme", is_member=True, claims={"groups": ("sec",)})
BOB = Caller(Principal("human", "bob"), "acme", is_member=True, claims={"groups": ("ops",)})
CAROL = Caller(Principal("human", "carol"), "acme", is_member=True, claims={"groups": ("ops", "sec")})

CANARY = "canary-4711-of-the-vault"


def shared_log(*participants: Identity) -> Log:
    """A shared conversation of alice's in memory."""
    log = Log()
    log.append(_started(log.id, log.owner))
    for each in participants:
        log.append(_joined(log.owner, each))
    return log


async def shared(here: Desk, *participants: Caller, agent: str = "echo") -> str:
    """The id of a new shared conversation of alice's."""
    conversations = here.conversations
    started = await conversations.start(ALICE, StartConversation(agent, mode="shared"), None)
    talk: str = started.body["id"]
    for each in participants:
        await conversations.add_participant(ALICE, talk, AddParticipant(str(each.principal)), None)
    return talk


async def ask(here: Desk, conversation: str, caller: Caller, text: str, **fields: Any) -> str:
    """One message of somebody's; the id of its record."""
    return (await here.conversations.send(caller, conversation, SendTurn(text, **fields), None)).body["id"]


async def stop(here: Desk, conversation: str, caller: Caller) -> None:
    """Somebody's stop of their running turn."""
    await here.conversations.interrupt(caller, conversation, InterruptTurn(), None)


async def steps_of(here: Desk, conversation: str, ord_: int = 1) -> list[Any]:
    """The steps of the turn whose question has that ord."""
    question = next(each for each in await here.records(conversation) if each.ord == ord_)
    stream = turn_stream_of(here.scribe.execution(conversation, ord_, question.kid))
    head = await here.store.head(stream)
    assert head is not None
    verifier = Verifier(here.scribe.keyring, stream, TURN_EVENTS)
    return [verifier.decode(each) for each in await here.store.read_for_fold(head.id, 0, 1000)]


async def answered(here: Desk, conversation: str, caller: Caller, text: str, **fields: Any) -> Any:
    """The reply to one message of somebody's."""
    await ask(here, conversation, caller, text, **fields)
    await here.done()
    return (await here.records(conversation))[-1]


class Vault:
    """A tool whose result is the canary."""

    spec = ToolSpec("vault", "Opens the vault.", {"type": "object"})
    data_class = "secret"
    is_idempotent = True

    def __init__(self, *groups: str) -> None:
        self.groups = frozenset(groups)
        self.askers: list[Identity] = []

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        return "no such door" if arguments.get("door") else None

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """See Tool."""
        self.askers.append(asker)
        return ToolResult("error" if arguments.get("fails") else "ok", CANARY)


async def obeys(request: ModelRequest) -> AsyncIterator[ModelPart]:
    """Calls the tool `vault` once where the question's words want it, and says what came of it; else says `noted`.

    `other` calls a tool that there is not; `door` and `fails` are arguments.
    """
    last = request.messages[-1]
    if last.role == "tool":
        yield TextDelta(f"it said {last.text}")
    elif "vault" in last.text or "other" in last.text:
        arguments = {name: True for name in ("door", "fails") if name in last.text}
        yield CallDelta(WantedCall("c1", "vault" if "vault" in last.text else "other", arguments))
    else:
        yield TextDelta("noted")


def _started(conversation: str, owner: Identity, agent: str = "echo") -> Decision:
    started = ConversationStarted(
        conversation_id=conversation, owner=owner, agent=agent, mode="shared", barge_in="queue", kid="", mac=""
    )
    return Decision((NewEvent(started, Principal.parse(owner.actor)),))


def _joined(owner: Identity, who: Identity) -> Decision:
    return Decision((NewEvent(ParticipantAdded(who, owner, "", ""), Principal.parse(owner.actor)),))
