"""What is signed, and the keys as the domain sees them: with the database but without a key nobody makes a turn run.

An envelope's MAC binds the conversation and all that it says. That of any other event binds its stream, its place and
its type as well, so that nothing signed can be moved (conversations.md, Trust).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

Domain = Literal["envelope", "event", "execution", "digest"]
"""What a MAC is for; one made for one purpose is none for another."""


class Mac(Struct, frozen=True):
    """kid: name of the key. mac: HMAC-SHA-256 in hex."""

    kid: str
    mac: str


class Keyring(Protocol):
    """The keys of conversations: one that signs, and those that still verify."""

    def sign(self, domain: Domain, fields: Mapping[str, Any], kid: str | None = None) -> Mac:
        """The MAC over the RFC 8785 form of `fields`, with the present key or, where it is held, the one named.

        fields: JSON-ready; strings, integers below 2**53, booleans, null, lists and objects of such.
        Raises LookupError for a kid that is not held.
        """
        ...

    def verify(self, domain: Domain, fields: Mapping[str, Any], mac: Mac) -> bool:
        """Whether it is the MAC of `fields`, compared in constant time; False for a kid that is not held.

        Raises ValueError where `fields` has no RFC 8785 form, as what somebody else wrote may have none.
        """
        ...


def envelope_fields(conversation_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What an envelope's MAC covers: its stored payload without the MAC itself, and the conversation."""
    said = {name: value for name, value in payload.items() if name not in ("kid", "mac")}
    return {"conversationId": conversation_id, **said}


def event_fields(stream: str, seq: int, type_: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the MAC of any other event covers. stream: its name, such as `conversation:<id>`."""
    said = {name: value for name, value in payload.items() if name not in ("kid", "mac")}
    return {"stream": stream, "seq": seq, "type": type_, "payload": said}


def execution_id(keyring: Keyring, kid: str | None, conversation_id: str, ord_: int) -> str:
    """The id of a turn's execution: nobody without the key can guess it. 64 hex digits; raises LookupError."""
    return keyring.sign("execution", {"conversationId": conversation_id, "ord": ord_}, kid).mac
