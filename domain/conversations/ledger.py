"""The context ledger: what the model saw in a turn, for its asker, from the verdict that the log holds and no text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from .events import ContextDecided
from .prompt import digest
from .signing import Keyring

Part = Literal["system", "tools", "model"]
"""What the settings decide of a request."""


class LedgerTurn(Struct, frozen=True, rename="camel"):
    """A turn that the model was shown: the ord of its question, and its tokens."""

    ord: int
    tokens: int


class Ledger(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One turn's context. tokens: of the whole request as it was counted then, made up of `parts`.

    evicted: ords of questions whose turns were left out from then on. summary: number of the one shown, 0 for none;
    summary_dropped: it did not fit. changed: parts that are not what they were, as far as the settings tell; unknown:
    parts that cannot be compared, since the agent or the key is gone. hidden: ords of questions whose turns the asker
    was not cleared for, of which they see the placeholders.
    """

    turn: int
    ord: int
    kept: tuple[LedgerTurn, ...]
    evicted: tuple[int, ...]
    tokens: int
    reserved: int
    summary: int
    prompt_digest: str
    tools_digest: str
    changed: tuple[Part, ...]
    parts: Mapping[str, int] = {}
    summary_dropped: bool = False
    system_digest: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    unknown: tuple[Part, ...] = ()
    hidden: tuple[int, ...] = ()


class Present(Struct, frozen=True):
    """What the settings say of the conversation's agent now. tools: as `prompt.tools_text` writes them."""

    system: str
    tools: str
    model: str


def ledger_of(conversation_id: str, decided: ContextDecided, present: Present | None, keyring: Keyring) -> Ledger:
    """The ledger of a verified verdict. present: None where the agent is gone from the settings."""
    changed: list[Part] = []
    unknown: list[Part] = []
    parts: tuple[Part, ...] = ("system", "tools", "model")
    for part in parts:
        then = {"system": decided.system_digest, "tools": decided.tools_digest, "model": decided.model}[part]
        now = None if present is None else _now(conversation_id, part, present, keyring, decided.kid)
        if now is None or then is UNSET:
            unknown.append(part)
        elif now != then:
            changed.append(part)
    tokens = decided.kept_tokens
    return Ledger(
        turn=decided.turn,
        ord=decided.ord,
        kept=tuple(LedgerTurn(ord_, each) for ord_, each in zip(decided.kept, tokens, strict=False)),
        evicted=decided.evicted,
        tokens=decided.tokens,
        reserved=decided.reserved,
        summary=decided.summary,
        prompt_digest=decided.prompt_digest,
        tools_digest=decided.tools_digest,
        changed=tuple(changed),
        parts={} if decided.parts is UNSET else decided.parts,
        summary_dropped=decided.summary_dropped,
        system_digest=decided.system_digest,
        model=decided.model,
        unknown=tuple(unknown),
        hidden=decided.hidden,
    )


def _now(conversation_id: str, part: Part, present: Present, keyring: Keyring, kid: str) -> str | None:
    """A part as it is now, in the form that the verdict has it; None where its key is gone."""
    if part == "model":
        return present.model
    try:
        return digest(keyring, conversation_id, part, present.system if part == "system" else present.tools, kid)
    except LookupError:
        return None
