"""A channel, as one small protocol: who adds a channel writes one module against it (delivery.md, Channels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol

from msgspec import UNSET, Struct, UnsetType

from ...domain.channels.messages import Address, Can, Inbound, Outgoing

MAX_INBOUND_BYTES = 256 * 1024
"""Body of an inbound request."""

MAX_PAYLOAD_BYTES = 256 * 1024
"""A rendered payload, encoded."""

MAX_ANSWER_BYTES = 64 * 1024
"""Read of what a platform answers; nothing of it is stored."""


class NotAuthentic(Exception):
    """An inbound request does not prove where it comes from. Callers get one body, whatever the cause."""


class RawRequest(Struct, frozen=True):
    """An inbound request as it arrived. headers: lower-case names; of repeated ones the last."""

    headers: Mapping[str, str]
    body: bytes


class Proof(Struct, frozen=True):
    """The request is authentic. signature: a digest of what proved it, where the same proof may be used once only;
    UNSET where the platform has no signature of each request (telegram). signed_at: as the request says."""

    signature: str | UnsetType = UNSET
    signed_at: datetime | UnsetType = UNSET


class Echoed(Struct, frozen=True):
    """The platform checks the address: answer with this JSON, and nothing else happens."""

    answer: Mapping[str, Any]


class Receipt(Struct, frozen=True):
    """What a platform or a signed receipt says of a part, by our key. at: when, as it says."""

    key: str
    state: Literal["delivered", "observed", "failed"]
    at: datetime | UnsetType = UNSET


class Pushed(Struct, frozen=True):
    """How a send ended. accepted: the platform has it. retry: it has it not, and another time it may take it.
    permanent: it never will. unknown: it was sent and no answer is known.

    reason: a code of ours such as `http_503`, `timeout`, `refused`, `gone`, never words of the platform.
    retry_after_s: as the platform asks. native_ref: the platform's id of the message, for threads and receipts.
    """

    outcome: Literal["accepted", "retry", "permanent", "unknown"]
    reason: str = ""
    retry_after_s: float | UnsetType = UNSET
    native_ref: str | UnsetType = UNSET


class Channel(Protocol):
    """A configured way in and out. Created once per process from its settings; `open` before use, `close` at the end.

    verify, parse and render are pure: no I/O, and the clock is handed in.
    """

    name: str
    kind: str
    """One of those that the settings take, such as `webhook`; `web` is this server's own inbox."""
    tenant: str
    can: Can
    codec: str
    """Name of the form of its payloads at rest, such as `telegram`."""
    version: int
    """Of that form as `render` makes it now; every earlier one can be pushed, too."""
    shapes: ClassVar[Mapping[int, type[Struct]]]
    """By version, what a payload is; of every version that was ever written."""

    async def open(self) -> None:
        """Make what pushing needs."""
        ...

    async def close(self) -> None:
        """Let it go."""
        ...

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """That the request is the platform's, before anything in it is parsed. Raises NotAuthentic."""
        ...

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """What a verified request says; None for what is of no use to us (an edit, a bot, a joined chat).
        A deletion is an Inbound, where the platform tells of any.
        Raises Invalid for a body that is not of the platform's shape (webhooks answer 422; others ignore it)."""
        ...

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """Channel-native payloads, escaped for its syntax, mass mentions neutralised, link previews off; more than one
        where the platform's messages are shorter than the text. JSON-ready, each below MAX_PAYLOAD_BYTES."""
        ...

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """Send one payload under our key. Never raises but for cancellation."""
        ...

    async def look_up(self, address: Address, key: str) -> bool | None:
        """Whether the platform has what was sent under that key; None where it cannot tell."""
        ...


class InboxRows(Protocol):
    """What channels of kind web push to: this server's own inbox (http.md, GET /v1/inbox)."""

    async def put(self, tenant: str, channel: str, address: Address, payload: Mapping[str, Any], key: str) -> None:
        """Store one part. The same key again changes nothing. Raises a MinutebookError where it is not stored."""
        ...

    async def has(self, tenant: str, key: str) -> bool:
        """Whether a part of that key was stored, also where it has gone since."""
        ...
