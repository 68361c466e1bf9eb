"""Reads a recorded SWE-agent run (`.traj`) and turns it into what a bridge would have pushed into a room."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from ..domain.jsontext import compact, repair_text, scan_value, strip_nul

MAX_FILE_BYTES = 64 * 1024 * 1024
"""Largest recording that is read."""

MAX_STEPS = 10_000
"""Most steps of a recording; a room seals at 100 000 events."""

MAX_TEXT_BYTES = 16 * 1024
"""Longest message text and tool output, in UTF-8 bytes (rooms.md)."""

MAX_PAYLOAD_BYTES = 64 * 1024
"""Every payload stays below this, in bytes of compact JSON (rooms.md)."""

CUT_COMMAND_BYTES = 32 * 1024
"""What is kept of a command that does not fit a payload: it leaves room for escapes and redaction marks."""

MAX_TOOL_CHARS = 64
"""Longest name of a tool; a longer first word of an action is cut."""

MAX_LABEL_CHARS = 120
"""Longest title and longest exit status."""

MAX_ARGS_DEPTH = 32
"""Deepest nesting of a call's arguments, which lie four levels deep in a bridge's request."""

DEFAULT_DELAY_S = 0.5
"""How long a step's tool ran where the recording does not say, in seconds."""

MAX_DELAY_S = 86_400
"""Longest time that a tool may have run, in seconds."""

ROLE = "implementer"
"""The room role of a recorded run: SWE-agent fixes an issue."""

CUT_MARK = " … [cut]"
"""Ends a message text that was cut."""

# SWE-agent records no exit codes, so a result's status is read off its output.
_REJECTED = re.compile(r"\A\s*Operation '[^'\n]*' is not supported")
_FAILED = re.compile(
    r"^(?:Traceback \(most recent call last\)"
    r"|Your proposed edit has introduced new syntax error"
    r"|(?:/bin/)?(?:ba)?sh: [^\n]*(?:command not found|No such file or directory|Permission denied)"
    r"|(?:=+ )?\d+ (?:failed|errors?)\b[^\n]* in [\d.]+s"
    r"|EXECUTION TIMED OUT)",
    re.MULTILINE,
)
_ISSUE_TITLE = re.compile(r"^(?:ISSUE:|<pr_description>)\s+(\S[^\n]*)", re.MULTILINE)


class TrajectoryError(Exception):
    """A file is not a recorded run; the message names the file, the place in it and what is wrong."""


class Item(msgspec.Struct, frozen=True):
    """One thing that a bridge pushes (rooms.md, the table of types).

    seq: the harness's own number, from 1 and gapless per stream. caused_by_harness_seq: a seq of the stream
    events. delay_s: seconds to wait before it is sent, at recorded speed.
    """

    stream: Literal["events", "status"]
    seq: int
    type: str
    payload: dict[str, Any]
    caused_by_harness_seq: int | None
    delay_s: float


class Run(msgspec.Struct, frozen=True):
    """A recorded run, its items in the order of sending. Their runId is empty until with_run_id."""

    title: str
    role: str
    items: list[Item]


_Function = tuple[str, str]
"""A function's name, and its arguments as JSON text."""


class _Call(msgspec.Struct, frozen=True):
    """A tool call. command: what stands for args that are too long. output None: no result is recorded."""

    tool: str
    args: dict[str, Any]
    command: str
    output: str | None


class _Step(msgspec.Struct, frozen=True):
    """One turn: what the agent says, what it calls, and what it is told without having called anything."""

    said: str
    calls: list[_Call]
    told: list[str]
    delay_s: float = DEFAULT_DELAY_S


def read_run(path: Path) -> Run:
    """The run that `path` records: its task, then a turn for each step, then its exit status if it has one.

    Steps come from `trajectory`, or from `history` where there is no trajectory. NUL characters are stripped
    and lone surrogates repaired. Raises TrajectoryError for whatever cannot be read: no such file, over
    MAX_FILE_BYTES, not JSON, another shape, no step, over MAX_STEPS.
    """
    try:
        return _run(_load(path), path.stem)
    except TrajectoryError as error:
        raise TrajectoryError(f"{path.name}: {error}") from error.__cause__


def with_run_id(run: Run, run_id: str) -> Run:
    """The same run with `run_id` in its turns, which rooms.md wants to be the run's own."""
    items = [
        msgspec.structs.replace(item, payload=item.payload | {"runId": run_id}) if item.type == "turn" else item
        for item in run.items
    ]
    return msgspec.structs.replace(run, items=items)


def _run(recording: dict[str, Any], name: str) -> Run:
    history = [_object(entry, f"history[{i}]") for i, entry in enumerate(_list(recording, "history"))]
    trajectory = _list(recording, "trajectory")
    found = _trajectory_steps(trajectory, history) if trajectory else _history_steps(history)
    steps = list(islice(found, MAX_STEPS + 1))
    if not steps:
        raise TrajectoryError("neither trajectory nor history holds a step of an agent")
    if len(steps) > MAX_STEPS:
        raise TrajectoryError(f"more than {MAX_STEPS} steps")
    task = _task(history)
    issue = _ISSUE_TITLE.search(task)
    return Run(_label(issue[1] if issue else name), ROLE, _items(task, steps, _exit_status(recording)))


def _load(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise TrajectoryError("there is no such file")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TrajectoryError(f"cannot be read ({error.strerror})") from error
    if len(raw) > MAX_FILE_BYTES:
        raise TrajectoryError(f"larger than {MAX_FILE_BYTES} bytes")
    try:
        recording = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise TrajectoryError(f"not JSON in UTF-8 ({type(error).__name__})") from error
    return _object(recording, "the file")


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TrajectoryError(f"{place} must be an object, it is {_kind(value)}")
    return cast("dict[str, Any]", value)


def _list(owner: dict[str, Any], key: str, place: str = "") -> list[Any]:
    value = owner.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TrajectoryError(f"{place}{key} must be a list, it is {_kind(value)}")
    return cast("list[Any]", value)


def _text(owner: dict[str, Any], key: str, place: str) -> str:
    """A text field without NUL and lone surrogates; empty when it is missing or null."""
    value = owner.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TrajectoryError(f"{place}.{key} must be text, it is {_kind(value)}")
    return _clean(value)


def _clean(text: str) -> str:
    return repair_text(text.replace("\0", ""))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "missing or null"}
    return kinds.get(cast("type[Any]", type(value)), "a number")


def _exit_status(recording: dict[str, Any]) -> str:
    info = _object(recording.get("info") or {}, "info")
    return _label(_text(info, "exit_status", "info"))


def _seconds(step: dict[str, Any], place: str) -> float:
    value = step.get("execution_time")
    if value is None:
        return DEFAULT_DELAY_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_DELAY_S:
        raise TrajectoryError(f"{place}.execution_time must be a number of seconds from 0 to {MAX_DELAY_S}")
    return float(value)


def _trajectory_steps(trajectory: list[Any], history: list[dict[str, Any]]) -> Iterator[_Step]:
    functions_of = _functions_by_action(history)
    for i, entry in enumerate(trajectory):
        place = f"trajectory[{i}]"
        step = _object(entry, place)
        if not isinstance(step.get("action"), str):
            raise TrajectoryError(f"{place}.action must be text, it is {_kind(step.get('action'))}")
        action = _text(step, "action", place)
        waiting = functions_of.get(action)
        functions = waiting.popleft() if waiting else []
        # One observation answers a step, so several functions of one step cannot be told apart.
        calls = _calls(action, functions if len(functions) == 1 else [])
        thought = _text(step, "thought", place)
        said = thought if thought.strip() else _text(step, "response", place)
        yield _answered(said, calls, [_text(step, "observation", place)], _seconds(step, place))


def _functions_by_action(history: list[dict[str, Any]]) -> dict[str, deque[list[_Function]]]:
    """What the agent called for each action text, in order: a trajectory's own steps only have that text."""
    found: dict[str, deque[list[_Function]]] = {}
    for i, message in enumerate(history):
        if message.get("role") == "assistant" and not message.get("is_demo"):
            place = f"history[{i}]"
            action = _text(message, "action", place)
            found.setdefault(action, deque()).append(_functions(message, place))
    return found


def _history_steps(history: list[dict[str, Any]]) -> Iterator[_Step]:
    said, calls, observations, is_open = "", list[_Call](), list[str](), False
    for i, message in enumerate(history):
        place = f"history[{i}]"
        if message.get("is_demo"):
            continue
        match message.get("role"):
            case "assistant":
                if is_open:
                    yield _answered(said, calls, observations)
                thought = _text(message, "thought", place)
                said = thought if thought.strip() else _content(message, place)
                calls = _calls(_text(message, "action", place), _functions(message, place))
                observations, is_open = [], True
            case "user" | "tool" if is_open:
                observations.append(_content(message, place))
            case "system" | "user" | "tool":
                pass
            case _:
                raise TrajectoryError(f"{place}.role must be system, user, assistant or tool")
    if is_open:
        yield _answered(said, calls, observations)


def _answered(said: str, calls: list[_Call], observations: list[str], delay_s: float = DEFAULT_DELAY_S) -> _Step:
    """Calls with their observations, in order; what is left over answers no call."""
    answered = [msgspec.structs.replace(call, output=output) for call, output in zip(calls, observations, strict=False)]
    return _Step(said, answered + calls[len(answered) :], observations[len(calls) :], delay_s)


def _calls(action: str, functions: list[_Function]) -> list[_Call]:
    if functions:
        return [_Call(tool, _arguments(text, action), action or text, None) for tool, text in functions]
    words = action.split(maxsplit=1)
    return [_Call(words[0][:MAX_TOOL_CHARS], {"command": action}, action, None)] if words else []


def _functions(message: dict[str, Any], place: str) -> list[_Function]:
    found: list[_Function] = []
    for i, entry in enumerate(_list(message, "tool_calls", f"{place}.")):
        where = f"{place}.tool_calls[{i}]"
        function = _object(_object(entry, where).get("function"), f"{where}.function")
        name = _text(function, "name", f"{where}.function").strip()
        if not name:
            raise TrajectoryError(f"{where}.function.name is missing")
        found.append((name[:MAX_TOOL_CHARS], _text(function, "arguments", f"{where}.function")))
    return found


def _arguments(text: str, action: str) -> dict[str, Any]:
    """A function's arguments, or the command as text where a room could not store them as they are."""
    try:
        # As characters, not as escapes, lone halves of surrogate pairs can be repaired.
        raw = repair_text(json.dumps(json.loads(text), ensure_ascii=False)).encode()
    except (ValueError, RecursionError):
        return {"command": action or text}
    if scan_value(raw, MAX_ARGS_DEPTH) is not None or not raw.startswith(b"{"):
        return {"command": action or text}
    return strip_nul(msgspec.json.decode(raw))


def _content(message: dict[str, Any], place: str) -> str:
    """A message's text; newer recordings hold a list of parts, of which the texts count."""
    if not isinstance(message.get("content"), list):
        return _text(message, "content", place)
    parts = [
        _text(_object(part, f"{place}.content[{i}]"), "text", f"{place}.content[{i}]")
        for i, part in enumerate(_list(message, "content"))
    ]
    return "\n".join(parts)


def _task(history: list[dict[str, Any]]) -> str:
    for i, message in enumerate(history):
        if message.get("role") == "user" and not message.get("is_demo"):
            return _content(message, f"history[{i}]")
    return ""


def _label(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in _clean(text))
    return " ".join(printable.split())[:MAX_LABEL_CHARS].strip()


def _items(task: str, steps: list[_Step], exit_status: str) -> list[Item]:
    items: list[Item] = []

    def add(name: str, payload: dict[str, Any], cause: int | None = None, delay_s: float = 0.0) -> int:
        items.append(Item("events", len(items) + 1, name, payload, cause, delay_s))
        return len(items)

    if task.strip():
        add("message", _message(task))
    call_numbers = count(1)
    for number, step in enumerate(steps, start=1):
        turn = {"runId": "", "turnId": f"turn-{number}"}
        cause = add("turn", turn | {"phase": "started"})
        if step.said.strip():
            cause = add("message", _message(step.said), cause)
        # The step's time is that of its tool, so it passes before the first result.
        delay_s = step.delay_s
        for call in step.calls:
            call_id = f"call-{next(call_numbers)}"
            called = add("tool_call", _tool_call(call_id, call), cause)
            if call.output is not None:
                add("tool_result", _tool_result(call_id, call.output), called, delay_s)
                delay_s = 0.0
        for text in filter(str.strip, step.told):
            add("message", _message(text), cause)
        add("turn", turn | {"phase": "completed"}, delay_s=delay_s)
    if exit_status:
        status = {"kind": "harness_status", "status": exit_status}
        items.append(Item("status", 1, "state_changed", status, None, 0.0))
    return items


def _message(text: str) -> dict[str, Any]:
    def build(limit: int) -> dict[str, Any]:
        shown = text if _size(text) <= limit else _cut(text, limit - _size(CUT_MARK)) + CUT_MARK
        return {"kind": "chat", "text": shown, "to": [], "delivery": "none"}

    return _fitting(build, MAX_TEXT_BYTES)


def _tool_call(call_id: str, call: _Call) -> dict[str, Any]:
    payload = {"callId": call_id, "tool": call.tool, "args": call.args, "decidedBy": None}
    if len(compact(payload)) < MAX_PAYLOAD_BYTES:
        return payload
    return _fitting(
        lambda limit: payload | {"args": {"command": _cut(call.command, limit), "truncated": True}},
        CUT_COMMAND_BYTES,
    )


def _tool_result(call_id: str, output: str) -> dict[str, Any]:
    status = "rejected" if _REJECTED.search(output) else "error" if _FAILED.search(output) else "ok"
    size = _size(output)

    def build(limit: int) -> dict[str, Any]:
        fields = {"callId": call_id, "status": status, "output": _cut(output, limit)}
        return fields | {"truncated": size > limit, "bytes": size}

    return _fitting(build, MAX_TEXT_BYTES)


def _fitting(build: Callable[[int], dict[str, Any]], limit: int) -> dict[str, Any]:
    """The payload with as much text as fits: escapes can make a text six times as long as JSON."""
    payload = build(limit)
    while len(compact(payload)) >= MAX_PAYLOAD_BYTES:
        limit //= 2
        payload = build(limit)
    return payload


def _size(text: str) -> int:
    return len(text.encode())


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, cut between characters."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[:limit].decode(errors="ignore")
