"""The telegram channel: the secret header, what of an update is a message, markup, splitting, and what comes of it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from channel_scenes import KEY, NOW, pushed
from hypothesis import given
from hypothesis import strategies as st
from minutebook.commands.channels.ports import NotAuthentic, Proof, Pushed, RawRequest
from minutebook.domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from minutebook.domain.errors import Invalid
from minutebook.infra.channels.telegram import TelegramChannel
from minutebook.infra.settings_channels import ChannelSettings
from outside import Mischief, Outside, Reply, Request, garbage, huge, lost_after, lost_before, now, serving, status

SECRET = "telegram-secret-token"


def channel(url: str = "http://127.0.0.1:9", *, loopback: bool = True, **more: Any) -> TelegramChannel:
    settings = ChannelSettings(
        kind="telegram",
        token="77:token-of-the-bot",
        inbound_secret=SECRET,
        base_url=url,
        allow_loopback=loopback,
        bot_name="minute_bot",
        **more,
    )
    return TelegramChannel("tg", settings, now)


def answer(request: Request) -> Reply:
    """As the Bot API does."""
    if request.path != "/bot77:token-of-the-bot/sendMessage":
        return Reply(404, b'{"ok":false,"error_code":404,"description":"Not Found"}')
    return Reply(200, b'{"ok":true,"result":{"message_id":42,"chat":{"id":7,"type":"private"},"date":1}}')


@pytest.fixture(scope="module")
def api() -> Iterator[Outside]:
    with serving(Outside(answer)) as outside:
        yield outside


@pytest.fixture(autouse=True)
def _fresh(api: Outside) -> None:
    api.requests.clear()
    api.mischief.clear()


def request_of(document: Any, secret: str = SECRET) -> RawRequest:
    return RawRequest({"x-telegram-bot-api-secret-token": secret}, json.dumps(document).encode())


def update(text: str | None = "hello", *, chat: str = "private", **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "message_id": 5,
        "date": 1,
        "from": {"id": 7, "is_bot": False, "first_name": "Ann", "username": "ann"},
        "chat": {"id": 7 if chat == "private" else -100, "type": chat},
        **({} if text is None else {"text": text}),
        **more,
    }
    return {"update_id": 1000, "message": message}


def read(document: Any, **settings: Any) -> Inbound:
    inbound = channel(**settings).parse(request_of(document))
    assert isinstance(inbound, Inbound)
    return inbound


def entity(kind: str, offset: int, length: int, **more: Any) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length, **more}


def test_what_it_can_follows_from_its_settings() -> None:
    assert channel().can == Can(receive=True, push=True, threads=True)


def test_the_secret_header_alone_proves_an_update_and_is_no_signature() -> None:
    assert channel().verify(request_of(update()), NOW) == Proof()
    for bad in ("", "x", SECRET + "x", SECRET[:-1], "é", "\ud800"):
        with pytest.raises(NotAuthentic):
            channel().verify(request_of(update(), bad), NOW)
    with pytest.raises(NotAuthentic):
        channel().verify(RawRequest({}, b"{}"), NOW)
    sender = TelegramChannel("tg", ChannelSettings(kind="telegram", token="77:a"), now)
    with pytest.raises(NotAuthentic):
        sender.verify(request_of(update(), ""), NOW)


def test_a_private_message_is_read() -> None:
    assert read(update()) == Inbound(
        sender=ChannelIdentity("default", "tg", "7"),
        place=Place("7"),
        message_id="1000",
        text="hello",
        is_mention=True,
        display="Ann @ann",
    )


def test_in_a_group_a_mention_a_reply_or_a_command_means_the_agent() -> None:
    group = {"chat": "supergroup"}
    named = read(update("@Minute_Bot what is up", entities=[entity("mention", 0, 11)], **group))
    assert (named.is_mention, named.text) == (True, "what is up")
    later = read(update("😀 @minute_bot?", entities=[entity("mention", 3, 11)], **group))
    assert (later.is_mention, later.text) == (True, "😀 @minute_bot?")
    assert read(update("x", entities=[entity("text_mention", 0, 1, user={"id": 77})], **group)).is_mention
    assert read(update("x", reply_to_message={"message_id": 1, "from": {"id": 77}}, **group)).is_mention
    assert read(update("/status@minute_bot", entities=[entity("bot_command", 0, 18)], **group)).is_mention
    for other in (
        update("hello", **group),
        update("@somebody hi", entities=[entity("mention", 0, 9)], **group),
        update("@minute_bot", **group),  # without Telegram's entity it is only text
        update("x", entities=[entity("text_mention", 0, 1, user={"id": 78})], **group),
        update("x", reply_to_message={"message_id": 1, "from": {"id": 7}}, **group),
        update("x", entities=[entity("mention", 500, 5)], **group),
    ):
        assert not read(other).is_mention
    assert read(update(**group)).place == Place("-100", is_group=True)


def test_verbs_are_caught_unless_they_are_said_to_another_bot() -> None:
    linked = read(update("/link@Minute_Bot  ABCD2345", chat="group"))
    assert (linked.verb, linked.argument) == ("link", "ABCD2345")
    assert read(update("/stop")).verb == "stop"
    assert read(update("/stop@other_bot", chat="group")).verb is None
    assert read(update("/stopping")).verb is None


def test_a_topic_is_a_thread_and_a_chain_of_replies_is_none() -> None:
    assert read(update(chat="supergroup", message_thread_id=9, is_topic_message=True)).place.thread == "9"
    assert read(update(chat="supergroup", message_thread_id=9)).place == Place("-100", is_group=True)


@pytest.mark.parametrize(
    "document",
    [
        {"update_id": 1},
        {"update_id": 1, "edited_message": update()["message"]},
        {"update_id": 1, "channel_post": update()["message"]},
        {"update_id": 1, "callback_query": {}},
        update(None),
        update(None, photo=[{}], caption="look"),
        update(**{"from": {"id": 8, "is_bot": True}}),
        update(sender_chat={"id": -100, "type": "supergroup"}),
    ],
)
def test_what_is_no_message_of_a_person_is_ignored(document: Any) -> None:
    assert channel().parse(request_of(document)) is None


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"update_id": "1"}', b'{"update_id":1,"update_id":2}', b"\xff"])
def test_what_is_no_update_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid):
        channel().parse(RawRequest({}, raw))


class Tags(HTMLParser):
    """What an HTML parser makes of a text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.shown: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)

    def handle_comment(self, data: str) -> None:
        self.tags.append("!")

    def handle_data(self, data: str) -> None:
        self.shown.append(data)


MARKUP = st.text(st.sampled_from("<>&;\"'/ab #x3!-[]`*_\n\t😀é"), max_size=200) | st.sampled_from(
    ["<b>x</b>", "<a href='tg://user?id=1'>x</a>", "&lt;b&gt;", "&amp;lt;", "<!-- -->", "</pre", "<![CDATA[x"]
)


@given(MARKUP)
def test_no_text_yields_markup(text: str) -> None:
    for payload in channel().render(Outgoing("reply", text, KEY)):
        parsed = Tags(payload["text"])
        assert parsed.tags == []
        assert "".join(parsed.shown) == (text if text.strip() else "(no text)")


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(st.text(st.sampled_from("ab <&\n😀é\u0301\u200d"), max_size=300), st.integers(1, 60))
def test_a_long_text_is_split_and_nothing_is_lost(text: str, times: int) -> None:
    whole = f"x{text * times}x"
    parts = [html.unescape(each["text"]) for each in channel().render(Outgoing("reply", whole, KEY))]
    assert all(1 <= units(part) <= 4096 for part in parts)
    assert "".join(part for part in parts).split() == whole.split()
    if all(part.strip() for part in parts):
        assert len("".join(parts)) <= len(whole)


def test_previews_are_off_and_whose_words_they_are_stands_before_them() -> None:
    (payload,) = channel().render(Outgoing("echo", "why?", KEY, "<crm>"))
    assert payload == {
        "text": "From &lt;crm&gt;:\nAsked:\nwhy?",
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": True},
    }


def test_it_goes_to_the_chat_and_thread_or_to_the_user(api: Outside) -> None:
    sent = pushed(channel(api.url), address=Address("tg", "7", Place("-100", "9", is_group=True)))
    assert sent == Pushed("accepted", native_ref="42")
    assert pushed(channel(api.url + "/"), address=Address("tg", "7")).outcome == "accepted"
    first, second = (request.json for request in api.requests)
    assert (first["chat_id"], first["message_thread_id"], first["text"]) == (-100, 9, "hello")
    assert second["chat_id"] == 7
    assert "message_thread_id" not in second
    assert pushed(channel(api.url), address=Address("tg")) == Pushed("permanent", "no_address")


def said(code: int, document: Any, **headers: str) -> Mischief:
    return lambda _request, _honest: Reply(code, json.dumps(document).encode(), headers)


OUTCOMES = [
    (said(429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 7}}), Pushed("retry", "http_429", 7.0)),
    (
        said(429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 99999}}),
        Pushed("retry", "http_429", 3600.0),
    ),
    (status(429, retry_after="5"), Pushed("retry", "http_429", 5.0)),
    (said(403, {"ok": False, "error_code": 403, "description": "blocked"}), Pushed("permanent", "http_403")),
    (said(400, {"ok": False, "error_code": 400, "description": "chat not found"}), Pushed("permanent", "http_400")),
    (said(200, {"ok": False, "error_code": 400}), Pushed("permanent", "http_400")),
    (said(200, {"ok": False}), Pushed("retry", "http_500")),
    (said(500, {"ok": False, "error_code": 500}), Pushed("retry", "http_500")),
    (status(500), Pushed("retry", "http_500")),
    (status(410), Pushed("permanent", "gone")),
    (status(502), Pushed("unknown", "http_502")),
    (status(302, location="http://127.0.0.1:1/"), Pushed("permanent", "redirected")),
    (said(200, {"ok": True}), Pushed("accepted")),
    (garbage, Pushed("unknown", "answer_unreadable")),
    (huge, Pushed("unknown", "answer_too_large")),
    (said(200, {"result": {}}), Pushed("unknown", "answer_unreadable")),
    (lost_before, Pushed("unknown", "connection_lost")),
    (lost_after, Pushed("unknown", "connection_lost")),
]


@pytest.mark.parametrize(("mischief", "expected"), OUTCOMES)
def test_what_comes_of_an_answer(api: Outside, mischief: Mischief, expected: Pushed) -> None:
    api.mischief = [mischief]
    assert pushed(channel(api.url)) == expected
    assert len(api.requests) == 1


def test_a_private_address_is_refused_where_it_is_not_allowed(api: Outside) -> None:
    assert pushed(channel(api.url, loopback=False)) == Pushed("permanent", "address_refused")
    assert api.requests == []
