"""What an agent remembers from one conversation to the next: two tools, bound to one asker's turn.

A memory is its asker's own, under a label that says nothing of them; or, in owner-only conversations, one that all who
ask the agent share. An entry keeps the classes of all that fed the turn that wrote it, and they go to every answer that
reads it, beside `memory:<scope>`, which every call adds (rules.md, law 14).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ...domain.conversations.state import Running
from ...domain.conversations.visibility import may_see
from ...domain.conversations.wording import is_legible, repaired
from ...domain.errors import LeaseLost
from .held import Held
from .means import RunnerMeans
from .ports import (
    CONSTANT_MEMORY,
    MEMORY_KEY_CHARS,
    MEMORY_READ,
    MEMORY_TEXT_BYTES,
    MEMORY_WRITE,
    Agent,
    MemoryEntry,
    Tool,
    ToolResult,
    Viewer,
)
from .steps import Steps

MAX_ENTRIES = 256
"""Of one scope."""

MAX_READ_CHARS = 32 * 1024
"""Of the texts that one call reads; entries behind them are named, and read one by one."""


def memory_tools(
    means: RunnerMeans, held: Held, steps: Steps, agent: Agent, running: Running, claims: Mapping[str, Sequence[str]]
) -> tuple[Tool, ...]:
    """The agent's memory for the asker of a turn; none where it has none."""
    if not agent.memory:
        return ()
    own = means.memories.label(agent.name, running.asker)
    scope = agent.memory if agent.memory.startswith(CONSTANT_MEMORY) else own
    store = _Store(means, held, steps, Viewer(running.asker, claims), scope, own, frozenset(running.classes))
    return (_Read(store), _Write(store))


class _Store:
    """The entries of one scope as the asker of one turn may use them."""

    def __init__(
        self, means: RunnerMeans, held: Held, steps: Steps, asker: Viewer, scope: str, own: str, fed: frozenset[str]
    ) -> None:
        self.label = f"memory:{scope}"
        self._means = means
        self._held = held
        self._steps = steps
        self._asker = asker
        self._scope = scope
        self._own = own
        self._fed = fed

    @property
    def is_closed(self) -> bool:
        """Whether nothing may be read or written: a memory of many in a shared conversation. None of those starts with
        such an agent; the settings have changed since."""
        return self._held.state.mode == "shared" and self._scope != self._own

    async def write(self, key: str, text: str) -> str:
        """What became of it. Raises LeaseLost, Unavailable."""
        fed = self._fed.union(self._steps.progress.classes) - {self.label}
        entry = MemoryEntry(key, text, self._own, tuple(sorted(fed)))
        held = self._held
        done = await self._means.memories.write(held.stream_id, held.epoch, held.tenant, self._scope, entry)
        if done == "fenced":
            raise LeaseLost("Another process runs this conversation now.")
        return done

    async def read(self) -> list[MemoryEntry]:
        """The entries that the asker wrote or is cleared for, the newest first. Raises Unavailable."""
        found = await self._means.memories.read(self._held.tenant, self._scope)
        foreign = {frozenset(each.classes) for each in found if each.writer != self._own and each.classes}
        cleared = await self._means.clearance.resolve(self._asker, foreign)
        return [each for each in found if each.writer == self._own or may_see(each.classes, cleared)]

    def without_secrets(self, text: str) -> str:
        """The text as it may be stored."""
        return self._means.scribe.redact(repaired(text).replace("\0", ""))[0]


class _Memory:
    """What both tools are. Both are idempotent: the same call again leaves and finds what is there."""

    is_idempotent = True
    groups: frozenset[str] = frozenset()

    def __init__(self, store: _Store) -> None:
        self.data_class = store.label
        self.store = store

    def refusal(self, arguments: Mapping[str, Any], known: Collection[str]) -> str | None:
        """What is wrong with the key, or with what else there is."""
        if self.store.is_closed:
            return "this memory is for conversations of one person, and this one is shared"
        key = arguments.get("key", "-")
        if not set(arguments) <= set(known):
            return f"takes {' and '.join(known)} alone"
        if not isinstance(key, str) or not 1 <= len(key) <= MEMORY_KEY_CHARS or "\0" in key or not is_legible(key):
            return f"key must be a text of 1 to {MEMORY_KEY_CHARS} characters"
        return "key holds a secret; choose another" if self.store.without_secrets(key) != key else None


class _Read(_Memory):
    spec = MEMORY_READ

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        return self.refusal(arguments, ("key",))

    async def run(self, arguments: Mapping[str, Any], asker: Any) -> ToolResult:  # noqa: ARG002 - see Tool
        """See Tool; raises Unavailable."""
        wanted = arguments.get("key")
        found = [each for each in await self.store.read() if wanted in (None, each.key)]
        if wanted is not None and not found:
            return ToolResult("error", "there is no note with that key")
        shown: list[dict[str, str]] = []
        free = MAX_READ_CHARS
        classes: set[str] = set()
        for each in found:
            classes.update(each.classes)  # also of one that is only named: its key is words, too
            free -= len(each.text)
            shown.append({"key": each.key, "text": each.text} if free >= 0 else {"key": each.key})
        return ToolResult("ok", msgspec.json.encode(shown).decode(), tuple(sorted(classes)))


class _Write(_Memory):
    spec = MEMORY_WRITE

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        text = arguments.get("text")
        if "key" not in arguments or not isinstance(text, str):
            return "key and text must be texts"
        if len(self.store.without_secrets(text).encode()) > MEMORY_TEXT_BYTES:
            return f"text must be of at most {MEMORY_TEXT_BYTES} bytes"
        return self.refusal(arguments, ("key", "text"))

    async def run(self, arguments: Mapping[str, Any], asker: Any) -> ToolResult:  # noqa: ARG002 - see Tool
        """See Tool; raises LeaseLost, Unavailable."""
        done = await self.store.write(arguments["key"], self.store.without_secrets(arguments["text"]))
        if done == "full":
            return ToolResult("error", f"there are {MAX_ENTRIES} notes, which is all there may be; remove one first")
        return ToolResult("ok", "removed" if done == "removed" else "noted")
