"""The slack channel: an app of one workspace, by Slack's Events API and Web API (https://api.slack.com)."""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ...commands.channels.ports import (
    Echoed,
    NotAuthentic,
    Proof,
    Pushed,
    RawRequest,
    Receipt,
)
from ...domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from ...domain.channels.pieces import pieces, visible, worded
from ...domain.channels.verbs import verb_in
from ...domain.errors import Invalid
from ..outward_http import Answer
from ..settings_channels import ChannelSettings
from .calls import Caller, chat_and_thread, of_status, of_unreadable, retry
from .reading import decoded, digest, shaped, signed_at

PIECE_CHARS = 3800
"""Of a text before its escaping; Slack advises 4,000 characters and cuts at 40,000, which five times this is below."""

KEYS = uuid.uuid5(uuid.NAMESPACE_URL, "urn:minutebook:slack:client_msg_id")
"""Space of names in which a part's key becomes the UUID that Slack takes."""

FORM = "application/x-www-form-urlencoded"
SUBTYPES = frozenset({"thread_broadcast", "file_share", "me_message"})
"""Messages that people wrote, though they have a subtype."""

DELETED, CHANGED, TOMBSTONE = "message_deleted", "message_changed", "tombstone"
"""Subtypes. A message with answers in its thread is changed into a tombstone when it goes; other changes are edits."""

AGAIN = frozenset(
    {"fatal_error", "internal_error", "request_timeout", "service_unavailable", "message_limit_exceeded"}
    | {"ratelimited", "rate_limited", "team_added_to_org"}
)
"""Errors of the Web API that pass by themselves."""

GONE = frozenset({"channel_not_found", "is_archived", "user_disabled", "not_in_channel", "user_not_found"})
"""Errors that say that nobody is there any more."""

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_WORD_JOINER = "\u2060"
_MASS = re.compile(r"@(?=(?:here|channel|everyone|group)\b)", re.IGNORECASE)
_REF = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")


class _Other(msgspec.Struct):
    """A message that an event is about."""

    user: str | None = None
    ts: str | None = None
    thread_ts: str | None = None
    subtype: str | None = None
    bot_id: str | None = None


class _Event(msgspec.Struct):
    type: str
    user: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    ts: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    channel_type: str | UnsetType = UNSET
    thread_ts: str | UnsetType = UNSET
    subtype: str | None = None
    bot_id: str | None = None
    hidden: bool = False
    deleted_ts: str | UnsetType = UNSET
    message: _Other | UnsetType = UNSET
    previous_message: _Other | UnsetType = UNSET


class _Authorization(msgspec.Struct):
    user_id: str | None = None
    is_bot: bool = False


class _Envelope(msgspec.Struct):
    type: str
    challenge: str | UnsetType = UNSET
    team_id: str | UnsetType = UNSET
    event_id: str | UnsetType = UNSET
    event: _Event | UnsetType = UNSET
    authorizations: tuple[_Authorization, ...] | None = None


class _Answer(msgspec.Struct):
    ok: bool
    ts: str | UnsetType = UNSET
    error: str = ""


class SlackV1(Struct, forbid_unknown_fields=True):
    """Version 1 of payloads at rest."""

    text: str
    mrkdwn: Literal[False]
    parse: Literal["none"]
    unfurl_links: Literal[False]
    unfurl_media: Literal[False]


class SlackChannel(Caller):
    """`[channels.<name>]` of kind slack. Pushes where it has a token; receives where it has an inboundSecret.

    The identity of a message is its chat and `ts`: the same for each repetition, and for the two events that a mention
    in a chat of several people gives. The key goes along as client_msg_id, best effort.
    """

    kind = "slack"
    codec = "slack"
    version = 1
    shapes: ClassVar[Mapping[int, type[Struct]]] = {1: SlackV1}

    def __init__(self, name: str, settings: ChannelSettings, now: Callable[[], datetime]) -> None:
        _ = now
        super().__init__(
            name,
            settings,
            Can(receive=settings.receives, push=settings.pushes, threads=True, keys=settings.pushes),
        )

    def verify(self, request: RawRequest, now: datetime) -> Proof:
        """See Channel: `v0` of Slack's signing secret, at most five minutes old."""
        secret = self._settings.inbound_secret
        if secret is None:
            raise NotAuthentic
        stamp = request.headers.get("x-slack-request-timestamp", "")
        at = signed_at(stamp, now)
        signed = b"v0:" + stamp.encode() + b":" + request.body
        expected = "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
        given = request.headers.get("x-slack-signature", "")
        if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "surrogatepass")):
            raise NotAuthentic
        return Proof(digest(self.name, expected), at)

    def parse(self, request: RawRequest) -> Inbound | Echoed | Sequence[Receipt] | None:
        """See Channel: messages and mentions of people, their deletions, and slash commands that are verbs of ours.
        Edits are none: what was said to an agent is said."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
            return self._command(request.body)
        said = shaped(decoded(request.body), _Envelope)
        if said.type == "url_verification" and isinstance(said.challenge, str):
            return Echoed({"challenge": said.challenge})
        event = said.event
        if said.type != "event_callback" or isinstance(event, UnsetType) or not self._is_here(said.team_id):
            return None
        bot = self._bot_of(said)
        ts = _deleted(event)
        return self._message(event, bot) if ts is None else self._deletion(event, ts, bot)

    def _is_here(self, team: str | UnsetType) -> bool:
        return self._settings.workspace in (None, team)

    def _bot_of(self, said: _Envelope) -> str | None:
        if self._settings.bot_name is not None:
            return self._settings.bot_name
        return next((each.user_id for each in said.authorizations or () if each.is_bot), None)

    def _message(self, event: _Event, bot: str | None) -> Inbound | None:
        is_person = event.bot_id is None and isinstance(event.user, str) and event.user != bot
        is_new = event.subtype is None or event.subtype in SUBTYPES
        if event.type not in ("message", "app_mention") or not (is_person and is_new) or event.hidden:
            return None
        if not (isinstance(event.text, str) and isinstance(event.ts, str) and isinstance(event.channel, str)):
            return None
        is_direct = event.channel_type == "im" or event.channel.startswith("D")
        mention = f"<@{bot}>"
        is_mention = event.type == "app_mention" or (bot is not None and mention in event.text)
        text = plain_text(event.text.strip().removeprefix(mention) if bot else event.text)
        said = verb_in(text)
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, str(event.user)),
            place=Place(event.channel, event.thread_ts, not is_direct),
            message_id=f"{event.channel}:{event.ts}",
            text=text,
            verb=said.verb if said else None,
            argument=said.argument if said else "",
            is_mention=is_direct or is_mention,
            display=str(event.user),
        )

    def _deletion(self, event: _Event, ts: str, bot: str | None) -> Inbound | None:
        """Whoever deleted it: Slack says whose message it was, most of the time."""
        was = event.previous_message if isinstance(event.previous_message, _Other) else _Other()
        is_ours = was.bot_id is not None or (bot is not None and was.user == bot)
        if not isinstance(event.channel, str) or is_ours:
            return None
        message_id = f"{event.channel}:{ts}"
        is_direct = event.channel_type == "im" or event.channel.startswith("D")
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, was.user or ""),
            place=Place(event.channel, was.thread_ts or UNSET, not is_direct),
            message_id=f"deleted:{message_id}",
            text="",
            deletes=message_id,
        )

    def _command(self, body: bytes) -> Inbound | None:
        try:
            said = {name: values[0] for name, values in parse_qs(body.decode(), max_num_fields=64).items()}
        except ValueError:
            raise Invalid.at("$", "is not a form") from None
        user, chat, trigger = said.get("user_id"), said.get("channel_id"), said.get("trigger_id")
        text = f"{said.get('command', '')} {said.get('text', '')}".strip()
        verb = verb_in(text)
        if verb is None or not (user and chat and trigger) or not self._is_here(said.get("team_id", UNSET)):
            return None
        return Inbound(
            sender=ChannelIdentity(self.tenant, self.name, user),
            place=Place(chat, is_group=not chat.startswith("D")),
            message_id=f"command:{trigger}",
            text=text,
            verb=verb.verb,
            argument=verb.argument,
            is_mention=True,
            display=said.get("user_name", user),
        )

    def render(self, outgoing: Outgoing) -> tuple[Mapping[str, Any], ...]:
        """See Channel. The three characters of Slack's syntax are escaped, so that nothing mentions, links or calls;
        `mrkdwn` is off, and what Slack would make a mass mention of by itself is broken up."""
        return tuple(
            {"text": escaped(each), "mrkdwn": False, "parse": "none", "unfurl_links": False, "unfurl_media": False}
            for each in visible(pieces(worded(outgoing), PIECE_CHARS))
        )

    async def push(
        self, address: Address, payload: Mapping[str, Any], version: int, key: str, timeout_s: float
    ) -> Pushed:
        """See Channel. To the chat and thread of the address, else to the user."""
        _ = version
        chat, thread = chat_and_thread(address)
        body: dict[str, Any] = {"channel": chat, **payload, "client_msg_id": str(uuid.uuid5(KEYS, key))}
        if thread is not None:
            body["thread_ts"] = thread
        headers = {
            "content-type": "application/json; charset=utf-8",
            "authorization": f"Bearer {self._settings.token}",
        }
        url = f"{self._settings.service_url}/chat.postMessage"
        answer = await self.post_json(chat, url, body, timeout_s, headers)
        return answer if isinstance(answer, Pushed) else _outcome(answer)


def _deleted(event: _Event) -> str | None:
    """The `ts` of the message that an event says is gone."""
    if event.type != "message":
        return None
    if event.subtype == DELETED and isinstance(event.deleted_ts, str):
        return event.deleted_ts
    now = event.message
    is_tombstone = event.subtype == CHANGED and isinstance(now, _Other) and now.subtype == TOMBSTONE
    return now.ts if is_tombstone and isinstance(now, _Other) else None


def escaped(text: str) -> str:
    """A text that Slack shows as it is. https://api.slack.com/reference/surfaces/formatting#escaping"""
    return _MASS.sub("@" + _WORD_JOINER, text).translate(_ESCAPES)


def plain_text(text: str) -> str:
    """What somebody wrote, of the form that Slack gives it: mentions as @id, chats as #name, links by their label and
    address, and the three escaped characters as themselves."""
    shown = _REF.sub(lambda match: _shown(match[1], match[2]), text)
    return shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _shown(ref: str, label: str | None) -> str:
    if ref.startswith("@"):
        return f"@{label or ref[1:]}"
    if ref.startswith("#"):
        return f"#{label or ref[1:]}"
    if ref.startswith("!"):
        return f"@{label or ref[1:].partition('^')[0]}"
    return ref if label in (None, "", ref, ref.partition(":")[2].lstrip("/")) else f"{label} ({ref})"


def _outcome(answer: Answer) -> Pushed:
    """`ok: true` is accepted, and an `ok: false` was not sent."""
    try:
        said = msgspec.json.decode(answer.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return of_unreadable(answer)
    if said.ok:
        return Pushed("accepted", native_ref=said.ts)
    if answer.status >= 300:
        return of_status(answer)
    if said.error in AGAIN:
        return retry("rate_limited" if said.error.startswith("rate") else "service_error")
    return Pushed("permanent", "gone" if said.error in GONE else "refused")
