"""The telegram channel: a bot, by Telegram's Bot API (https://core.telegram.org/bots/api)."""

from __future__ import annotations

import hmac
import html
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...commands.channels.ports import (
    Echoed,
    NotAuthentic,
    Proof,
    Pushed,
    RawRequest,
    Receipt,
)
from ...domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from ...domain.channels.pieces import pieces, utf16_units, visible, worded
from ...domain.channels.verbs import verb_in
from ..outward_http import MAX_RETRY_AFTER_S, Answer
from ..settings_channels import ChannelSettings
from .calls import Caller, chat_and_thread, of_status, of_unreadable, retry
from .reading import decoded, shaped

SECRET_HEADER = "x-telegram-bot-api-secret-token"  # noqa: S105 - a header's name

PIECE_UNITS = 4096
"""Of a message, in UTF-16 code units and without its markup, as Telegram counts."""

Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _User(msgspec.Struct):
    id: Id
    is_bot: bool = False
    first_name: str = ""
    username: str = ""


class _Chat(msgspec.Struct):
    id: Id
    type: str


class _Entity(msgspec.Struct):
    type: str
    offset: Annotated[int, Meta(ge=0)]
    length: Annotated[int, Meta(ge=0)]
    user: _User | UnsetType = UNSET


class _RepliedTo(msgspec.Struct):
    sender: _User | UnsetType = msgspec.field(name="from", default=UNSET)


class _Message(msgspec.Struct):
    message_id: Id
    chat: _Chat
    sender: _User | UnsetType = msgspec.field(name="from", default=UNSET)
    sender_chat: _Chat | UnsetType = UNSET
    via_bot: _User | UnsetType = UNSET
    text: str | UnsetType = UNSET
    entities: tuple[_Entity, ...] = ()
    message_thread_id: Id | UnsetType = UNSET
    is_topic_message: bool = False
    reply_to_message: _RepliedTo | UnsetType = UNSET


class _Update(msgspec.Struct):
    update_id: Id
    message: _Message | UnsetType = UNSET


class _Parameters(msgspec.Struct):
    retry_after: float | UnsetType = UNSET


class _Sent(msgspec.Struct):
    message_id: Id


class _Answer(msgspec.Struct):
    ok: bool
    result: _Sent | UnsetType = UNSET
    error_code: int | UnsetType = UNSET
    parameters: _Parameters | UnsetType = UNSET


class _NoPreview(Struct, forbid_unknown_fields=True):
    is_disabled: Literal[True]


class TelegramV1(Struct, forbid_unknown_fields=True):
    """Version 1 of payloads at rest."""

    text: str
    parse_mode: Literal["HTML"]
    link_preview_options: _NoPreview


class TelegramChannel(Caller):
    """`[channels.<name>]` of kind telegram. Pushes where it has a token; receives where it has an inboundSecret.

    What comes in is proven by the secret token of setWebhook alone, which is the same for every request: an update is
    told from its repetition by its id. Telegram takes no key of ours.
    """

    kind = "telegram"
    codec = "telegram"
    version = 1
    shapes: ClassVar[Mapping[int, type[Struct]]] = {1: TelegramV1}

    def __init__(self, name: str, settings: ChannelSettings, now: Callable[[], datetime]) -> None:
        _ = now
        super().__init__(name, settings, Can(receive=settings.receives, push=settings.pushes, threads=True))
        bot_id = (settings.token or "").partition(":")[0]
        self._bot_id = int(bot_id) if bot_id.isascii() and bot_id.isdigit() and len(bot_id) < 19 else None
        self._bot_name = (settings.bot_name or "").lower()

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """See Channel."""
        _ = now
        secret = self._settings.inbound_secret
        if secret is None or not hmac.compare_digest(
            secret.encode(), request.headers.get(SECRET_HEADER, "").encode("utf-8", "surrogatepass")
        ):
            raise NotAuthentic
        return Proof()

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """See Channel: new messages with a text that a person wrote as themselves. Edits, posts of channels, anonymous
        admins and bots are of no use: nobody stands behind them whom an answer or a link could belong to."""
        update = shaped(decoded(request.body), _Update)
        message = update.message
        if isinstance(message, UnsetType) or isinstance(message.sender, UnsetType) or message.sender.is_bot:
            return None
        if not isinstance(message.sender_chat, UnsetType) or not isinstance(message.text, str):
            return None
        said = verb_in(message.text)
        is_ours = said is None or not said.to or not self._bot_name or said.to == self._bot_name
        is_thread = message.is_topic_message and isinstance(message.message_thread_id, int)
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, str(message.sender.id)),
            place=Place(
                str(message.chat.id),
                str(message.message_thread_id) if is_thread else UNSET,
                message.chat.type != "private",
            ),
            message_id=str(update.update_id),
            text=self._without_mention(message),
            verb=said.verb if said and is_ours else None,
            argument=said.argument if said and is_ours else "",
            is_mention=message.chat.type == "private" or self._is_meant(message, message.text),
            display=message.sender.first_name + (f" @{message.sender.username}" if message.sender.username else ""),
        )

    def _is_meant(self, message: _Message, text: str) -> bool:
        replied = message.reply_to_message
        author = UNSET if isinstance(replied, UnsetType) else replied.sender
        is_reply = isinstance(author, _User) and author.id == self._bot_id
        return is_reply or any(self._is_mention(entity, text) for entity in message.entities)

    def _is_mention(self, entity: _Entity, text: str) -> bool:
        if entity.type == "text_mention":
            return isinstance(entity.user, _User) and entity.user.id == self._bot_id
        named = _covered(text, entity).lower()
        if entity.type == "bot_command":
            return bool(self._bot_name) and named.endswith(f"@{self._bot_name}")
        return entity.type == "mention" and bool(self._bot_name) and named == f"@{self._bot_name}"

    def _without_mention(self, message: _Message) -> str:
        """The text without a mention of the bot at its beginning: that is whom it is said to, and not what."""
        text = str(message.text)
        for entity in message.entities:
            if entity.type == "mention" and entity.offset == 0 and self._is_mention(entity, text):
                return text.encode("utf-16-le")[entity.length * 2 :].decode("utf-16-le").lstrip(" ,:\n") or text
        return text

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """See Channel. HTML with everything escaped: no text yields markup. Telegram has no mass mentions."""
        return tuple(
            {
                "text": html.escape(each, quote=False),
                "parse_mode": "HTML",
                "link_preview_options": {"is_disabled": True},
            }
            for each in visible(pieces(worded(outgoing), PIECE_UNITS, utf16_units))
        )

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """See Channel. To the chat and thread of the address, else to the user's chat with the bot."""
        _ = version, key
        chat, thread = chat_and_thread(address)
        body: dict[str, Any] = {"chat_id": _id_of(chat), **payload}
        if thread is not None:
            body["message_thread_id"] = _id_of(thread)
        url = f"{self._settings.service_url}/bot{self._settings.token}/sendMessage"
        answer = await self.post_json(chat, url, body, timeout_s, {"content-type": "application/json"})
        return answer if isinstance(answer, Pushed) else _outcome(answer)


def _id_of(text: str) -> int | str:
    """A number where it is one, as the API gave it; else a public name such as @news."""
    return int(text) if text.lstrip("-").isdigit() and text.isascii() else text


def _covered(text: str, entity: _Entity) -> str:
    data = text.encode("utf-16-le")[entity.offset * 2 : (entity.offset + entity.length) * 2]
    return data.decode("utf-16-le", "replace")


def _outcome(answer: Answer) -> Pushed:
    """`ok: true` is accepted, and an `ok: false` was not sent."""
    try:
        said = msgspec.json.decode(answer.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return of_unreadable(answer)
    if said.ok:
        ref = UNSET if isinstance(said.result, UnsetType) else str(said.result.message_id)
        return Pushed("accepted", native_ref=ref)
    code = said.error_code if isinstance(said.error_code, int) else answer.status
    outcome = of_status(answer._replace(status=code if 400 <= code < 600 else 500))
    after = UNSET if isinstance(said.parameters, UnsetType) else said.parameters.retry_after
    if outcome.outcome == "retry" and isinstance(after, float) and after >= 0:
        return retry(outcome.reason, min(after, float(MAX_RETRY_AFTER_S)))
    return outcome
