"""Who shares a conversation on a channel: what of a person and a chat makes one (delivery.md, conversationScope)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct

from .messages import Place

Scope = Literal["per_user", "per_user_per_conversation", "per_conversation"]


class Shared(Struct, frozen=True):
    """parts: what makes the conversation, each text at its place. of_group: it belongs to the group and not to who
    speaks; such a key holds a conversation and nothing else."""

    parts: tuple[str, ...]
    of_group: bool = False


def shared(scope: Scope, agent: str, channel: str, account: str, place: Place) -> Shared:
    """What a message's conversation is made of. account: the isolation key of who speaks."""
    chat = (channel, place.chat, "" if place.thread is UNSET else place.thread)
    if scope == "per_user":
        return Shared(("user", agent, account))
    if scope == "per_conversation" and place.is_group:
        return Shared(("group", agent, *chat), of_group=True)
    return Shared(("chat", agent, account, *chat))
