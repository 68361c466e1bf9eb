"""What a model is asked: the operator's words, the summary, the turns of the window, the question, its own steps.

The first message is the user's and the last one the user's or a tool's, roles alternate, none is empty, and every tool
call has exactly one result (field faults B50, B51). People's words are fenced (B63).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from .events import ReplyStatus
from .fence import SAMPLE, marker_of, question, summary, with_note
from .fit import Fixed, cut_result
from .identity import Identity
from .signing import Keyring
from .state import WindowTurn
from .turn_events import ToolStatus, WantedCall
from .wording import cut, is_legible

INTERRUPTED = "(interrupted)"
"""Stands for a reply of which nothing was received."""

FAILED = "(no reply: the request failed)"
"""Stands for the reply of a failed turn."""

EMPTY = "(no reply)"
"""Stands for a reply without text."""

ACKNOWLEDGED = "(noted: a summary of the turns before)"
"""The assistant's answer to every summary."""

CANCELLED = "(cancelled: this call was not run)"
"""The result of a call that has none."""

UNKNOWN = "(outcome unknown: this call may have run, and is not run again)"
"""The result of a call that was cut off by a crash."""

NO_OUTPUT = "(no output)"
"""The result of a call that answered nothing."""


class Message(Struct, frozen=True):
    """One message of a model request. calls: of an assistant message; call_id: of a tool message, whose text is the
    result. Roles alternate, and every call has its result."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[WantedCall, ...] = ()
    call_id: str | UnsetType = UNSET


class ToolSpec(Struct, frozen=True):
    """A tool as the model is shown it. schema: JSON Schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


class Asked(Struct, frozen=True):
    """A question. edited: ord of the one that it edits; edited_text: what that one said, for the prompt only."""

    asker: Identity
    text: str
    edited: int | None = None
    edited_text: str | None = None


class Told(Struct, frozen=True):
    """A turn of the window with its words, as they are stored."""

    ord: int
    question: Asked
    status: ReplyStatus
    reply: str
    seen: int | UnsetType = UNSET


class Summary(Struct, frozen=True):
    """The rolling summary that a prompt shows."""

    text: str
    through_turn: int


class Answered(Struct, frozen=True):
    """One model answer of the running turn. results: by call id; a call without one was not run."""

    text: str
    calls: tuple[WantedCall, ...] = ()
    results: Mapping[str, tuple[ToolStatus, str]] = {}


class Prompt(Struct, frozen=True):
    """system: the operator's words and what the fence means."""

    system: str
    messages: tuple[Message, ...]


def told(turn: WindowTurn, question: Asked, reply: str) -> Told:
    """A turn of the window with its words."""
    return Told(turn.user_ord, question, turn.status, reply, turn.seen)


def assemble(
    keyring: Keyring,
    conversation_id: str,
    system: str,
    summarized: Summary | None,
    turns: Sequence[Told],
    prompt: Asked,
    steps: Sequence[Answered] = (),
    cut_ids: Iterable[str] = (),
) -> Prompt:
    """The whole request but for the tool list. turns: those that the verdict keeps, oldest first. cut_ids: calls whose
    results are shown cut. Raises ValueError where no fence is left (see marker_of)."""
    marker = marker_of(keyring, conversation_id, _words(summarized, turns, prompt, steps))
    messages: list[Message] = []
    if summarized is not None:
        messages.append(Message("user", summary(marker, summarized.through_turn, summarized.text)))
        messages.append(Message("assistant", ACKNOWLEDGED))
    for turn in turns:
        asked, answered = turn_texts(turn, marker)
        messages += (Message("user", asked), Message("assistant", answered))
    messages.append(Message("user", question_text(prompt, marker)))
    messages += step_messages(steps, cut_ids)
    return Prompt(with_note(system, marker), tuple(messages))


def fixed_texts(system: str, tools: Sequence[ToolSpec], summarized: Summary | None, prompt: Asked) -> Fixed:
    """The parts of every prompt of the turn, as long as they will be, for the fit."""
    shown = () if summarized is None else (summary(SAMPLE, summarized.through_turn, summarized.text), ACKNOWLEDGED)
    return Fixed(with_note(system, SAMPLE), tools_text(tools), question_text(prompt, SAMPLE), shown)


def turn_texts(turn: Told, marker: str = SAMPLE) -> tuple[str, str]:
    """The two messages of a turn in a later prompt; with the sample of a fence for counting."""
    asked = replace(turn.question, edited_text=None)
    return question_text(asked, marker), reply_text(turn.status, turn.reply, turn.seen)


def question_text(asked: Asked, marker: str) -> str:
    """A question behind its fence."""
    edited = None if asked.edited is None else (asked.edited, asked.edited_text)
    return question(marker, asked.asker, asked.text, edited)


def reply_text(status: ReplyStatus, reply: str, seen: int | UnsetType) -> str:
    """A reply as later prompts hold it: of an interrupted one what was received; never empty (field fault B57)."""
    text = cut(reply, seen) if status == "interrupted" and seen is not UNSET else reply
    if is_legible(text):
        return text
    match status:
        case "interrupted":
            return INTERRUPTED
        case "failed":
            return FAILED
        case "completed":
            return EMPTY


def step_messages(steps: Sequence[Answered], cut_ids: Iterable[str] = ()) -> list[Message]:
    """The running turn's own calls and results. What was said without a call goes before the next call's words."""
    cut_out = frozenset(cut_ids)
    taken: set[str] = set()
    messages: list[Message] = []
    before = ""
    for step in steps:
        text = before + step.text
        if not step.calls:
            before = text
            continue
        before = ""
        calls = unique_calls(step.calls, taken)
        taken.update(call.call_id for call in calls)
        messages.append(Message("assistant", text, calls))
        for wanted, call in zip(step.calls, calls, strict=True):
            shown = result_text(step.results.get(wanted.call_id))
            if wanted.call_id in cut_out:
                shown = cut_result(shown)
            messages.append(Message("tool", shown, call_id=call.call_id))
    return messages


def unique_calls(calls: Iterable[WantedCall], taken: Iterable[str]) -> tuple[WantedCall, ...]:
    """The calls under ids that no other call of the turn has. taken: ids of earlier ones."""
    used = set(taken)
    named: list[WantedCall] = []
    for call in calls:
        wanted, number = call.call_id or "call", 1
        name = wanted
        while name in used:
            number += 1
            name = f"{wanted}-{number}"
        used.add(name)
        named.append(call if name == call.call_id else replace(call, call_id=name))
    return tuple(named)


def result_text(result: tuple[ToolStatus, str] | None) -> str:
    """A call's result as the model is shown it; what did not run says so."""
    if result is None:
        return CANCELLED
    status, output = result
    if status == "unknown":
        return UNKNOWN
    shown = output if output.strip() else NO_OUTPUT
    return f"error: {shown}" if status in ("error", "denied") else shown


def tools_text(tools: Sequence[ToolSpec]) -> str:
    """The tool list as one text, for counting and for its digest."""
    return msgspec.json.encode([msgspec.to_builtins(tool) for tool in tools], order="sorted").decode() if tools else ""


def digest(keyring: Keyring, conversation_id: str, part: str, text: str, kid: str | None = None) -> str:
    """A keyed digest of a part of a request: nobody without the key can try texts on it.

    Raises LookupError for a kid that is not held any more.
    """
    plain = sha256(text.encode(errors="surrogatepass")).hexdigest()
    return keyring.sign("digest", {"conversationId": conversation_id, "part": part, "sha256": plain}, kid).mac


def prompt_text(prompt: Prompt) -> str:
    """A prompt as one text, for its digest."""
    said = [[message.role, message.text] for message in prompt.messages]
    return msgspec.json.encode([prompt.system, said]).decode()


def _words(
    summarized: Summary | None, turns: Sequence[Told], prompt: Asked, steps: Sequence[Answered]
) -> Iterator[str]:
    """Every text of a request that is not the operator's."""
    if summarized is not None:
        yield summarized.text
    for turn in turns:
        yield turn.question.text
        yield turn.reply
    yield prompt.text
    yield prompt.edited_text or ""
    for step in steps:
        yield step.text
        yield from (output for _, output in step.results.values())
