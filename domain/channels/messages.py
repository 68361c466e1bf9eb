"""What goes in and out over a channel, in the words that all channels share (delivery.md, Words)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

Verb = Literal["link", "confirm", "unlink", "new", "status", "cancel", "stop", "start"]
"""What people on chats may say instead of a message; caught before anything is recorded."""

MAX_NATIVE_ID_CHARS = 255
MAX_ADDRESS_CHARS = 512


class ChannelIdentity(Struct, frozen=True):
    """Who wrote, as the channel proves it: always the user, never the chat.

    channel: its name in the settings. native_id: the platform's stable id. attributes: what the channel verified beside
    it, claim to values; an allowlist may ask for those, and nothing else may trust them.
    """

    tenant: str
    channel: str
    native_id: str
    attributes: Mapping[str, tuple[str, ...]] = {}


class Place(Struct, frozen=True):
    """Where something was said, and so where an answer goes. chat, thread: the platform's ids. A chat of one person
    with the agent is no group."""

    chat: str
    thread: str | UnsetType = UNSET
    is_group: bool = False


class Inbound(Struct, frozen=True):
    """A message of a proven sender. message_id: the platform's identity of it, the same for each of its retries.

    verb, argument: where it is a command of ours. is_mention: the agent is meant. conversation, continuation,
    background, response_target: of webhooks alone, not checked yet; in JSON shapes of http.md. continuation: token of
    the background turn that a /status or /cancel is about. display: what the sender may be shown as to people, as they
    or the platform chose it; it proves nothing.

    deletes: it is no message, but says that the one with that message_id is gone; then the sender is who wrote that
    one, with an empty native_id where the platform itself says so.
    """

    sender: ChannelIdentity
    place: Place
    message_id: str
    text: str
    verb: Verb | None = None
    argument: str = ""
    is_mention: bool = False
    conversation: str | UnsetType = UNSET
    continuation: str | UnsetType = UNSET
    background: bool = False
    response_target: Mapping[str, Any] | UnsetType = UNSET
    display: str = ""
    deletes: str | UnsetType = UNSET


class Outgoing(Struct, frozen=True):
    """One part of a delivery before a channel renders it. text: redacted, not escaped. label: names the source where an
    answer crosses from a private chat to a shared one. key: of the part, `<delivery id>.<n>`."""

    kind: Literal["reply", "echo", "pointer", "notice"]
    text: str
    key: str
    label: str | UnsetType = UNSET


class Address(Struct, frozen=True):
    """Where a channel pushes to. native_id: the user; place: the chat and thread, where it is known. For a webhook that
    is a destination of its own both may be empty: its URL is in the settings."""

    channel: str
    native_id: str = ""
    place: Place | UnsetType = UNSET


class Can(Struct, frozen=True, rename="camel"):
    """What a channel is able to do. keys: it takes our idempotency key, so that a second send changes nothing.
    look_up: it can be asked whether a key arrived."""

    receive: bool = False
    push: bool = False
    threads: bool = False
    keys: bool = False
    receipts: bool = False
    look_up: bool = False
