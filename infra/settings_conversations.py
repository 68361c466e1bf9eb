"""The settings of conversations: their keys and limits, the agents, and the tools that agents may call."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, field

from ..domain.conversations.identity import Identity
from ..domain.conversations.turn_events import UNCLASSIFIED
from .settings_section import SecretSection, Section

NonEmpty = Annotated[str, Meta(min_length=1)]
SecretText = Annotated[str, Meta(extra={"secret": True})]
Reserve = Annotated[int, Meta(ge=16, le=10_000_000)]
DayTokens = Annotated[int, Meta(ge=1, le=1 << 50)]

MIN_KEY_BYTES = 32
"""Of a key that signs conversations."""

DEFAULT_SYSTEM = "You are a helpful assistant."

DEFAULT_RESERVE = 4096

MEMORY_OF_ASKER = "asker"
"""Scope of a memory that is each asker's own."""

TIKTOKEN_SUFFIX = ".tiktoken"
TIKTOKEN = "tiktoken:"
"""Begins a counter that is one of tiktoken's encodings."""


def resolved_counter(text: str, base_dir: Path) -> str:
    """A counter's setting with its file, where it names one, as an absolute path."""
    named = text.removeprefix(TIKTOKEN)
    is_file = text.startswith(TIKTOKEN) and ("/" in named or named.endswith(TIKTOKEN_SUFFIX))
    return f"{TIKTOKEN}{base_dir / named}" if is_file else text


def key_bytes(text: str) -> bytes:
    """The key that a setting holds as base64, of the common or the URL-safe alphabet. Raises ValueError."""
    try:
        key = base64.b64decode(text.strip().translate(str.maketrans("-_", "+/")), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None
    if len(key) < MIN_KEY_BYTES:
        raise ValueError(f"must be the base64 of {MIN_KEY_BYTES} bytes or more")
    return key


class DelegateSettings(Section, frozen=True):
    """`[[conversations.delegates]]`: as whom a token that acts for somebody takes part in shared conversations."""

    actor: Annotated[str, Meta(min_length=1, description="Who acts, such as agent:abcdefgh or system:desk.")]
    on_behalf_of: Annotated[str, Meta(min_length=1, description="For whom, such as human:alice.")]
    as_: Annotated[
        str, Meta(min_length=1, description="The person whose turns these are then, such as human:alice.")
    ] = field(name="as")
    tenant: Annotated[NonEmpty | None, Meta(description="Only in this tenant; in any when unset.")] = None


class ConversationSettings(SecretSection, frozen=True):
    """`[conversations]`. Counts of streams and posts are per process."""

    key: Annotated[
        NonEmpty | None,
        Meta(
            description="Signs what makes agents run: base64 of 32 random bytes or more. A development server makes its"
            " own.",
            extra={"secret": True},
        ),
    ] = None
    previous_keys: Annotated[
        tuple[NonEmpty, ...],
        Meta(description="Earlier keys, which still verify what waits; the newest first.", extra={"secret": True}),
    ] = ()
    claims: Annotated[
        tuple[NonEmpty, ...],
        Meta(
            max_length=16,
            description="Claims of the token that an envelope carries, beside groups and those of clearance.",
        ),
    ] = ()
    retention_days: Annotated[
        int, Meta(ge=1, le=9999, description="Days that a conversation is kept after it was closed.")
    ] = 90
    tenant_retention_days: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=9999)]], Meta(description="Likewise, by tenant.")
    ] = {}
    streams: Annotated[int, Meta(ge=1, le=100_000, description="Open event streams of conversations.")] = 256
    streams_per_principal: Annotated[
        int, Meta(ge=1, le=100_000, description="Open event streams of conversations, of one principal.")
    ] = 8
    viewers: Annotated[int, Meta(ge=1, le=100_000, description="Open event streams of one conversation.")] = 128
    stream_max_seconds: Annotated[int, Meta(ge=10, le=86_400, description="Life of a stream, then `reconnect`.")] = 900
    stream_pending_bytes: Annotated[
        int, Meta(ge=65_536, le=256 << 20, description="Unsent bytes before a slow stream is closed.")
    ] = 1 << 20
    authorize_seconds: Annotated[
        int, Meta(ge=1, le=30, description="From one look at an open stream's token and owner to the next.")
    ] = 30
    posts_per_minute: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Commands of one principal a minute, in conversations.")
    ] = 120
    waiting_turns: Annotated[int, Meta(ge=1, le=512, description="Turns that may wait in one conversation.")] = 64
    delegates: Annotated[
        tuple[DelegateSettings, ...],
        Meta(
            max_length=1000,
            description="Who may act for whom in shared conversations; any other token that acts for somebody is"
            " refused there.",
        ),
    ] = ()
    first_delta_seconds: Annotated[
        int, Meta(ge=1, le=3600, description="Longest wait for the first words of a model's answer.")
    ] = 60
    idle_seconds: Annotated[int, Meta(ge=1, le=3600, description="Longest wait for the next words of it.")] = 60
    turn_seconds: Annotated[int, Meta(ge=1, le=3600, description="Longest turn, its tool calls included.")] = 600

    @property
    def key_bytes(self) -> bytes | None:
        """The key; None where none is set. The loader has checked it, as those of `earlier`."""
        return None if self.key is None else key_bytes(self.key)

    @property
    def earlier(self) -> tuple[bytes, ...]:
        """The previous keys."""
        return tuple(key_bytes(each) for each in self.previous_keys)

    def mapped(self, identity: Identity) -> Identity | None:
        """As whom somebody who acts for another takes part in shared conversations; None where no delegate says so."""
        for each in self.delegates:
            is_meant = each.actor == identity.actor and each.on_behalf_of == identity.on_behalf_of
            if is_meant and each.tenant in (None, identity.tenant):
                return Identity(each.as_, identity.tenant)
        return None

    def retention_of(self, tenant: str | None) -> int:
        """Days that a conversation of a tenant is kept after its close."""
        return self.tenant_retention_days.get(tenant or "", self.retention_days)


class BudgetSettings(Section, frozen=True):
    """`[agents.<name>.budget]`: ceilings for each asker; a call that could go over one is refused before it is made."""

    tokens_per_turn: Annotated[
        int, Meta(ge=1, le=1 << 40, description="Tokens of one turn, prompts and answers of all its model calls.")
    ] = 200_000
    tokens_per_day: Annotated[DayTokens | None, Meta(description="Tokens of a day (UTC); no ceiling when unset.")] = (
        None
    )


class MemorySettings(Section, frozen=True):
    """`[agents.<name>.memory]`: what the agent keeps from one conversation to the next, with tools of its own."""

    scope: Annotated[
        str,
        Meta(
            description="Whose it is: asker, each asker's own; or constant: and a name, one of all who ask agents with"
            " it, in conversations of one person alone."
        ),
    ] = MEMORY_OF_ASKER


class AgentSettings(SecretSection, frozen=True):
    """`[agents.<name>]`: an agent that the server runs."""

    provider: Annotated[
        Literal["scripted", "openai", "anthropic"], Meta(description="Who answers; scripted is for demos and tests.")
    ]
    system: Annotated[str, Meta(max_length=65_536, description="What the agent is told first.")] = DEFAULT_SYSTEM
    tools: Annotated[tuple[str, ...], Meta(max_length=64, description="Tools it may call, by their name here.")] = ()
    context_window: Annotated[
        int, Meta(ge=256, le=100_000_000, description="Tokens that the model can hold, prompt and answer.")
    ] = 128_000
    reserve_output_tokens: Annotated[
        Reserve | None,
        Meta(description="Tokens of these that are kept for the answer; unset: a quarter, at most 4096."),
    ] = None
    max_steps: Annotated[int, Meta(ge=1, le=100, description="Model calls of one turn.")] = 8
    summarizer: Annotated[
        NonEmpty | None, Meta(description="The agent that sums up what no longer fits; unset: it is left out.")
    ] = None
    budget: BudgetSettings = BudgetSettings()
    memory: MemorySettings | None = None
    base_url: Annotated[
        NonEmpty | None, Meta(description="Where its model is served, such as http://127.0.0.1:8000/v1.")
    ] = None
    plain_http: Annotated[
        bool, Meta(description="Whether baseUrl may be plain http on another machine; it may on this one.")
    ] = False
    api_key: Annotated[NonEmpty | None, Meta(description="Key of the model's service.", extra={"secret": True})] = None
    model: Annotated[NonEmpty | None, Meta(description="Name of the model there.")] = None
    counter: Annotated[
        str,
        Meta(
            min_length=1,
            description="How tokens are counted: heuristic, or tiktoken: and an encoding's name or, relative to the"
            " settings file, a file of ranks.",
        ),
    ] = "heuristic"

    @property
    def reserved(self) -> int:
        """Tokens of the context window that are kept for the answer."""
        return (
            min(DEFAULT_RESERVE, self.context_window // 4)
            if self.reserve_output_tokens is None
            else (self.reserve_output_tokens)
        )

    @property
    def turn_ceiling(self) -> int:
        """Tokens of one turn: what the budget of a turn allows, and that of a day."""
        return min(self.budget.tokens_per_turn, self.budget.tokens_per_day or self.budget.tokens_per_turn)


class McpSettings(SecretSection, frozen=True):
    """`[tools.<name>.mcp]`: an MCP server, whose tools are all offered as `<name>_<tool>`."""

    url: Annotated[NonEmpty | None, Meta(description="Where it is served (streamable HTTP).")] = None
    command: Annotated[
        tuple[NonEmpty, ...], Meta(description="Or a program and its arguments, which speaks over stdin and stdout.")
    ] = ()
    token: Annotated[NonEmpty | None, Meta(description="Bearer token for url.", extra={"secret": True})] = None
    plain_http: Annotated[
        bool, Meta(description="Whether url may be plain http on another machine; it may on this one.")
    ] = False
    environment: Annotated[
        dict[str, SecretText],
        Meta(description="Variables of the program of command, beside PATH, HOME and such.", extra={"secret": True}),
    ] = {}
    only: Annotated[tuple[NonEmpty, ...], Meta(description="Offer only these of its tools; all when empty.")] = ()


class ToolSettings(Section, frozen=True):
    """`[tools.<name>]`: what rooms and conversations know of a tool; agents may call those with python or mcp."""

    data_class: Annotated[str | None, Meta(description="Label of what the tool returns; unclassified when absent.")] = (
        None
    )
    python: Annotated[
        NonEmpty | None,
        Meta(description="Callable that agents may call, `module:function`; its signature is the schema."),
    ] = None
    mcp: McpSettings | None = None
    idempotent: Annotated[bool, Meta(description="Whether a call that may have run before a crash may run again.")] = (
        False
    )
    groups: Annotated[
        tuple[NonEmpty, ...], Meta(description="The asker must be in one of these groups; anybody when empty.")
    ] = ()
    timeout_seconds: Annotated[int, Meta(ge=1, le=600, description="Longest call.")] = 30
    approval: Annotated[
        Literal["none", "human"],
        Meta(description="Whether a person must approve each call; such a tool is none for agents of conversations."),
    ] = "none"

    @property
    def is_callable(self) -> bool:
        """Whether agents may call it: it says where it is."""
        return self.python is not None or self.mcp is not None

    @property
    def label(self) -> str:
        """Its data class, `unclassified` where it has none."""
        return self.data_class or UNCLASSIFIED
