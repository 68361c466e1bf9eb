"""The webhook channel: Standard Webhooks both ways, with a secret for each."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from standardwebhooks.webhooks import Webhook

from ...commands.channels.ports import Echoed, NotAuthentic, Proof, Pushed, RawRequest, Receipt
from ...domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from ...domain.channels.verbs import Said, verb_in
from ...domain.errors import Invalid
from ...domain.ids import canonical_name
from ..settings_channels import ChannelSettings
from ..webhooks import signed_headers
from .calls import Caller, of_status, post
from .plain import PlainV1, plain_payloads
from .reading import decoded, digest, shaped, signed_at

TYPE = "minutebook.message"
"""`type` of what is sent."""

MAX_RECEIPTS = 1000
"""Of one call."""

MAX_SIGNATURES = 16
"""Of one header; more is nobody's key rotation."""

ALONE = ("text", "command", "conversation", "continuation", "background", "response_target")
"""Fields that a deletion has none of."""

Short = Annotated[str, Meta(min_length=1, max_length=255)]


class _Message(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    sender: Annotated[str, Meta(min_length=1, max_length=255)] = msgspec.field(name="from")
    message_id: Short
    text: str | UnsetType = UNSET
    command: Short | UnsetType = UNSET
    conversation: Short | UnsetType = UNSET
    continuation: Short | UnsetType = UNSET
    background: bool | UnsetType = UNSET
    response_target: dict[str, Any] | UnsetType = UNSET
    deletes: Short | UnsetType = UNSET


class _Receipt(msgspec.Struct, forbid_unknown_fields=True):
    key: Short
    state: Literal["delivered", "observed", "failed"]
    at: Annotated[datetime, Meta(tz=True)] | UnsetType = UNSET


class _Receipts(msgspec.Struct, forbid_unknown_fields=True):
    receipts: Annotated[tuple[_Receipt, ...], Meta(max_length=MAX_RECEIPTS)]


class WebhookChannel(Caller):
    """`[channels.<name>]` of kind webhook. Pushes where it has a url; receives where it has an inboundSecret.

    A sender names identities of this channel only: nothing in `from` is a principal, a key or a claim.
    """

    kind = "webhook"
    keep_s = 2.0  # less than servers keep theirs; whoever knows our key has what was sent twice once
    codec = "webhook"
    version = 1
    shapes: ClassVar[Mapping[int, type[Struct]]] = {1: PlainV1}

    def __init__(self, name: str, settings: ChannelSettings, now: Callable[[], datetime]) -> None:
        can = Can(
            receive=settings.receives,
            push=settings.pushes,
            threads=True,
            keys=settings.pushes,
            receipts=settings.receives and settings.pushes,
        )
        super().__init__(name, settings, can)
        self._now = now
        self._inbound = None if settings.inbound_secret is None else Webhook(settings.inbound_secret)
        self._outbound = None if settings.secret is None else Webhook(settings.secret)

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """See Channel. Of several signatures in the header one of version v1 must be right."""
        headers = request.headers
        message_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if self._inbound is None or not message_id:
            raise NotAuthentic
        at = signed_at(stamp, now)
        try:
            expected = self._inbound.sign(message_id, at, request.body.decode())
        except UnicodeDecodeError:
            raise NotAuthentic from None
        held = headers.get("webhook-signature", "").split(" ")[:MAX_SIGNATURES]
        if not any([_is_same(expected, each) for each in held]):  # noqa: C419 - the time tells nothing of which
            raise NotAuthentic
        return Proof(digest(self.name, expected), at)

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """See Channel: a message of http.md, a deletion, or receipts. The same messageId with another text is no edit,
        but the same message again."""
        value = decoded(request.body)
        if "receipts" in value:
            return [Receipt(each.key, each.state, each.at) for each in shaped(value, _Receipts).receipts]
        return self._message(shaped(value, _Message))

    def _message(self, said: _Message) -> Inbound:
        native_id = canonical_name(said.sender, "$.from")
        if isinstance(said.deletes, str):
            return self._deletion(said, native_id, said.deletes)
        text, verb = _said(said)
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, native_id),
            place=Place(native_id if isinstance(said.conversation, UnsetType) else said.conversation),
            message_id=said.message_id,
            text=text,
            verb=verb.verb if verb else None,
            argument=verb.argument if verb else "",
            is_mention=True,
            conversation=said.conversation,
            continuation=said.continuation,
            background=said.background is True,
            response_target=said.response_target,
            display=native_id,
        )

    def _deletion(self, said: _Message, native_id: str, deletes: str) -> Inbound:
        for name in ALONE:
            if not isinstance(getattr(said, name), UnsetType):
                raise Invalid.at("$.deletes", "goes with from and messageId alone")
        if deletes == said.message_id:
            raise Invalid.at("$.deletes", "must name another message")
        sender = ChannelIdentity(self.tenant, self.name, native_id)
        return Inbound(sender, Place(native_id), said.message_id, "", deletes=deletes)

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """See Channel. JSON has no markup; label and kind stand beside the text, and are not in it."""
        return plain_payloads(outgoing)

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """See Channel. The key is the webhook-id; the address stands in `data.to`."""
        _ = version
        url = self._settings.url
        if self._client is None or self._outbound is None or url is None:
            return Pushed("permanent", "cannot_push")
        now = self._now().astimezone(UTC)
        document = {
            "type": TYPE,
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "data": {"key": key, **payload, "to": _to(address)},
        }
        body = msgspec.json.encode(document)
        headers = signed_headers(self._outbound, key, now, body)
        answer = await post(self._client, url, headers=headers, content=body, timeout_s=timeout_s)
        return answer if isinstance(answer, Pushed) else of_status(answer)


def _is_same(expected: str, given: str) -> bool:
    version, _, signature = given.partition(",")
    try:
        held = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return False
    return version == "v1" and hmac.compare_digest(base64.b64decode(expected.partition(",")[2]), held)


def _said(message: _Message) -> tuple[str, Said | None]:
    if isinstance(message.text, str) == isinstance(message.command, str):
        raise Invalid.at("$.text", "set exactly one of text and command")
    if isinstance(message.text, str):
        return message.text, verb_in(message.text)
    text = str(message.command)
    verb = verb_in(text if text.startswith("/") else f"/{text}")
    if verb is None:
        raise Invalid.at("$.command", "must be one of the verbs, such as link")
    return text, verb


def _to(address: Address) -> dict[str, str]:
    to = {"nativeId": address.native_id} if address.native_id else {}
    if isinstance(address.place, Place):
        to["conversation"] = address.place.chat
        if isinstance(address.place.thread, str):
            to["thread"] = address.place.thread
    return to
