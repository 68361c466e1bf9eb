"""The email channel: mail that the operator's mail server hands over, and mail that it takes."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email import policy
from email.errors import MessageError
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.utils import format_datetime
from typing import Any, ClassVar

from msgspec import UNSET, Struct

from ...commands.channels.ports import Echoed, NotAuthentic, Proof, Pushed, RawRequest, Receipt
from ...domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from ...domain.channels.pieces import pieces, visible, worded
from ...domain.channels.verbs import verb_in
from ...domain.errors import Invalid
from ..settings_channels import ChannelSettings
from .mail_proof import ADDRESS, author_of, is_proven
from .mail_reports import message_id_of, receipts_in
from .mail_text import plain_part, written
from .smtp import Mailer

PIECE_CHARS = 40_000
"""Of a text in one mail: below MAX_PAYLOAD_BYTES whatever the characters."""

BEARER = "Bearer "

_MESSAGE_ID = re.compile(r"<[!-;=?A-~]{1,200}@[!-;=?A-~]{1,100}>")
_BULK = frozenset({"bulk", "junk", "list", "auto_reply"})
_LIST_HEADERS = ("list-id", "list-unsubscribe", "list-post", "x-autoreply", "x-autorespond", "x-loop")
_UNREADABLE = (MessageError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What the parser of the standard library raises for mails that are none, beside what it says it does."""


class EmailV1(Struct, forbid_unknown_fields=True):
    """Version 1 of payloads at rest."""

    text: str


class EmailChannel:
    """`[channels.<name>]` of kind email. Pushes where it has smtp; receives where it has an inboundSecret.

    A mail counts where the request has the bearer token of the channel (anybody could post a forged mail), and the
    topmost Authentication-Results of the configured server an aligned DMARC pass. Reports count likewise.
    """

    kind = "email"
    codec = "email"
    version = 1
    shapes: ClassVar[Mapping[int, type[Struct]]] = {1: EmailV1}

    def __init__(self, name: str, settings: ChannelSettings, now: Callable[[], datetime]) -> None:
        self.name = name
        self.tenant = settings.tenant
        self.can = Can(
            receive=settings.receives,
            push=settings.pushes,
            threads=True,
            keys=settings.pushes,
            receipts=settings.receives and settings.pushes,
        )
        self._settings = settings
        self._now = now
        self._own = (settings.sender or "").lower()
        self._domain = self._own.rpartition("@")[2]
        self._mailer = (
            None
            if settings.smtp is None
            else Mailer(settings.smtp, allow_private=settings.allow_loopback, hello=self._domain)
        )

    async def open(self) -> None:
        """See Channel: each mail has a connection of its own."""

    async def close(self) -> None:
        """See Channel."""

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """See Channel."""
        _ = now
        secret, server = self._settings.inbound_secret, self._settings.authserv_id
        if secret is None or server is None:
            raise NotAuthentic
        given = request.headers.get("authorization", "").encode("utf-8", "surrogatepass")
        if not hmac.compare_digest((BEARER + secret).encode(), given):
            raise NotAuthentic
        try:
            mail = _headers(request.body)
            author = author_of(mail)
            if author is None or not is_proven(mail, author, server):
                raise NotAuthentic
        except _UNREADABLE:
            raise NotAuthentic from None
        return Proof()

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """See Channel: reports on mails of ours, and mails that people wrote. What machines and lists send is of no
        use, and would go in circles."""
        try:
            mail = BytesParser(policy=policy.default).parsebytes(request.body)
            author = author_of(mail)
            receipts = receipts_in(mail, self._domain) if self._domain else None
            if receipts is not None:
                return receipts or None
            if author is None or author == self._own or _is_automatic(mail):
                return None
            return self._message(mail, author, request.body)
        except _UNREADABLE:
            raise Invalid.at("$", "is not a mail") from None

    def _message(self, mail: Message, author: str, body: bytes) -> Inbound | None:
        text = plain_part(mail)
        text = None if text is None else written(text)
        if not text:
            return None
        said = verb_in(text)
        own_id = _message_id(mail, "message-id")
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, author, {"email": (author,)}),
            place=Place(author, _thread(mail) or own_id or UNSET),
            message_id=_identity(author, own_id, body),
            text=text,
            verb=said.verb if said else None,
            argument=said.argument if said else "",
            is_mention=True,
            display=author,
        )

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """See Channel. Plain text knows no markup and loads nothing."""
        return tuple({"text": each} for each in visible(pieces(worded(outgoing), PIECE_CHARS)))

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """See Channel. The key is in the Message-ID, and in what a report of the delivery is asked to name."""
        _ = version
        recipient = address.native_id or (address.place.chat if isinstance(address.place, Place) else "")
        if self._mailer is None or self._settings.sender is None:
            return Pushed("permanent", "cannot_push")
        if ADDRESS.fullmatch(recipient) is None:
            return Pushed("permanent", "no_address")
        message_id = message_id_of(key, self._domain)
        mail = self._mail(recipient, address, payload, message_id)
        envelope_id = message_id[1:].rpartition("@")[0]
        sent = await self._mailer.send(self._settings.sender, recipient, mail, envelope_id, timeout_s)
        return Pushed("accepted", native_ref=message_id) if sent.outcome == "accepted" else sent

    def _mail(self, recipient: str, address: Address, payload: Mapping[str, Any], message_id: str) -> bytes:
        mail = EmailMessage(policy=policy.SMTP)
        mail["From"] = self._settings.sender
        mail["To"] = recipient
        mail["Subject"] = f"Message from {self.name}"
        mail["Date"] = format_datetime(self._now().astimezone(UTC))
        mail["Message-ID"] = message_id
        thread = address.place.thread if isinstance(address.place, Place) else None
        if isinstance(thread, str) and _MESSAGE_ID.fullmatch(thread):
            mail["In-Reply-To"] = thread
            mail["References"] = thread
        mail["Auto-Submitted"] = "auto-replied"
        mail["X-Auto-Response-Suppress"] = "OOF, AutoReply"
        if self.can.receipts:
            mail["Disposition-Notification-To"] = self._settings.sender
        mail.set_content(_lines(str(payload["text"])), subtype="plain", charset="utf-8", cte="quoted-printable")
        return mail.as_bytes()

    async def look_up(self, address: Address, key: str) -> bool | None:
        """See Channel: a mail server cannot be asked."""
        _ = address, key
        return None


def _headers(body: bytes) -> Message:
    """The headers as they are; the rest is not looked at before it is proven whose it is."""
    return BytesParser(policy=policy.compat32).parsebytes(body, headersonly=True)


def _is_automatic(mail: Message) -> bool:
    submitted = str(mail.get("auto-submitted", "no")).partition(";")[0].strip().lower()
    return (
        submitted != "no"
        or str(mail.get("precedence", "")).strip().lower() in _BULK
        or any(name in mail for name in _LIST_HEADERS)
        or str(mail.get("return-path", "")).strip() == "<>"
    )


def _message_id(mail: Message, name: str) -> str | None:
    """The first message id in a header; None where there is none of a usable form."""
    match = _MESSAGE_ID.search(str(mail.get(name, "")))
    return match[0] if match is not None else None


def _thread(mail: Message) -> str | None:
    """What the thread began with."""
    return _message_id(mail, "references") or _message_id(mail, "in-reply-to")


def _identity(author: str, message_id: str | None, body: bytes) -> str:
    """The same for each time that a mail is handed over. The author is in it: a message id is whatever its writer
    likes, and must not take the place of another person's mail."""
    named = hashlib.sha256(body).hexdigest() if message_id is None else message_id
    return hashlib.sha256(f"{author}\0{named}".encode()).hexdigest()


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
