"""The webhook channel: what proves a sender, what is read, and what comes of every kind of answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from channel_scenes import KEY, NOW, pushed, webhook_request, whsec
from minutebook.commands.channels.ports import MAX_PAYLOAD_BYTES, NotAuthentic, Pushed, RawRequest, Receipt
from minutebook.domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from minutebook.domain.errors import Invalid
from minutebook.infra.channels.webhook import WebhookChannel
from minutebook.infra.settings_channels import ChannelSettings
from outside import Mischief, Outside, Reply, garbage, huge, lost_after, lost_before, now, serving, status
from standardwebhooks.webhooks import Webhook

OUT, IN = whsec("o"), whsec("i")
HELLO = {"from": "ann", "messageId": "m1", "text": "hello"}
DELETION = {"from": "ann", "messageId": "d1", "deletes": "m1"}


def channel(url: str | None = None, *, loopback: bool = True, name: str = "hook", inbound: str = IN) -> WebhookChannel:
    settings = ChannelSettings(
        kind="webhook",
        url=url,
        secret=OUT if url else None,
        inbound_secret=inbound,
        allow_loopback=loopback,
    )
    return WebhookChannel(name, settings, now)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Outside]:
    with serving(Outside(lambda _: Reply(200))) as outside:
        yield outside


@pytest.fixture(autouse=True)
def _fresh(receiver: Outside) -> None:
    receiver.requests.clear()
    receiver.mischief.clear()


def test_what_it_can_follows_from_its_settings() -> None:
    assert channel("https://a.example").can == Can(receive=True, push=True, threads=True, keys=True, receipts=True)
    assert channel().can == Can(receive=True, threads=True)


def test_a_message_is_proven_and_read() -> None:
    request = webhook_request(
        IN, {**HELLO, "conversation": "c1", "background": True, "responseTarget": {"kind": "none"}}
    )
    proof = channel().verify(request, NOW)
    assert proof.signed_at == NOW
    assert channel().parse(request) == Inbound(
        sender=ChannelIdentity("default", "hook", "ann"),
        place=Place("c1"),
        message_id="m1",
        text="hello",
        is_mention=True,
        conversation="c1",
        background=True,
        response_target={"kind": "none"},
        display="ann",
    )


def test_b74_a_deletion_names_a_message_of_its_sender() -> None:
    assert channel().parse(webhook_request(IN, DELETION)) == Inbound(
        sender=ChannelIdentity("default", "hook", "ann"),
        place=Place("ann"),
        message_id="d1",
        text="",
        deletes="m1",
    )


def test_the_same_proof_has_the_same_digest_and_a_fresh_one_another() -> None:
    first, again = (channel().verify(webhook_request(IN, HELLO), NOW) for _ in range(2))
    fresh = channel().verify(webhook_request(IN, HELLO, at=NOW + timedelta(seconds=1)), NOW)
    assert first.signature == again.signature != fresh.signature


def test_the_digest_is_that_of_what_proved_it_not_of_the_header() -> None:
    request = webhook_request(IN, HELLO)
    signature = request.headers["webhook-signature"]
    padded = RawRequest({**request.headers, "webhook-signature": f"v1,bm8= v2,x {signature}"}, request.body)
    assert channel().verify(padded, NOW) == channel().verify(request, NOW)


REQUEST = webhook_request(IN, HELLO)
FORGED: dict[str, RawRequest] = {
    "no headers": RawRequest({}, REQUEST.body),
    "other bytes": RawRequest(REQUEST.headers, REQUEST.body + b" "),
    "bytes that are no text": RawRequest(REQUEST.headers, b"\xff"),
    "old": webhook_request(IN, HELLO, at=NOW - timedelta(seconds=301)),
    "of the future": webhook_request(IN, HELLO, at=NOW + timedelta(seconds=301)),
    "of another channel": webhook_request(whsec("x"), HELLO),
    "our own delivery": webhook_request(OUT, HELLO),
    "another id": RawRequest({**REQUEST.headers, "webhook-id": "msg_2"}, REQUEST.body),
    "an id of nothing": RawRequest({**REQUEST.headers, "webhook-id": ""}, REQUEST.body),
    **{
        f"time {text!r}": RawRequest({**REQUEST.headers, "webhook-timestamp": text}, REQUEST.body)
        for text in ("", "x", "-1", "1e9", "9" * 30, "٣", str(int(NOW.timestamp())) + ".0")
    },
    **{
        f"signature {text!r}": RawRequest({**REQUEST.headers, "webhook-signature": text}, REQUEST.body)
        for text in ("", "v1", "v1,", "v1,é", "v2" + REQUEST.headers["webhook-signature"][2:], "v1,bm8=")
    },
}


@pytest.mark.parametrize("name", FORGED)
def test_what_proves_nothing_is_refused(name: str) -> None:
    with pytest.raises(NotAuthentic):
        channel().verify(FORGED[name], NOW)


def test_a_channel_without_a_secret_trusts_nobody() -> None:
    sender = WebhookChannel("hook", ChannelSettings(kind="webhook", url="https://a.example", secret=OUT), now)
    with pytest.raises(NotAuthentic):
        sender.verify(webhook_request(OUT, HELLO), NOW)


@pytest.mark.parametrize(
    ("said", "verb", "argument"),
    [
        ({"text": "/link ABCD2345"}, "link", "ABCD2345"),
        ({"text": " /Stop "}, "stop", ""),
        ({"command": "link ABCD2345"}, "link", "ABCD2345"),
        ({"command": "/unlink"}, "unlink", ""),
        ({"text": "/linked"}, None, ""),
        ({"text": "please /link x"}, None, ""),
    ],
)
def test_verbs_are_caught(said: dict[str, str], verb: str | None, argument: str) -> None:
    inbound = channel().parse(webhook_request(IN, {"from": "ann", "messageId": "m", **said}))
    assert isinstance(inbound, Inbound)
    assert (inbound.verb, inbound.argument) == (verb, argument)


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "$"),
        ([], "$"),
        ({**HELLO, "more": 1}, "$"),
        ({**HELLO, "from": ""}, "$.from"),
        ({**HELLO, "from": "a\u0000"}, "$.from"),
        ({**HELLO, "from": " a"}, "$.from"),
        ({**HELLO, "from": "a" * 256}, "$.from"),
        ({**HELLO, "from": {"principal": "human:ann"}}, "$.from"),
        ({**HELLO, "messageId": "m" * 256}, "$.messageId"),
        ({**HELLO, "text": 1}, "$.text"),
        ({"from": "ann", "messageId": "m"}, "$.text"),
        ({**HELLO, "command": "link"}, "$.text"),
        ({"from": "ann", "messageId": "m", "command": "delete"}, "$.command"),
        ({**HELLO, "deletes": "m0"}, "$.deletes"),
        ({**DELETION, "command": "status"}, "$.deletes"),
        ({**DELETION, "conversation": "c"}, "$.deletes"),
        ({**DELETION, "background": False}, "$.deletes"),
        ({**DELETION, "responseTarget": {"kind": "none"}}, "$.deletes"),
        ({**DELETION, "continuation": "c"}, "$.deletes"),
        ({**DELETION, "deletes": ""}, "$.deletes"),
        ({**DELETION, "deletes": "m" * 256}, "$.deletes"),
        ({**DELETION, "deletes": None}, "$.deletes"),
        ({**DELETION, "deletes": "d1"}, "$.deletes"),
        ({"messageId": "d1", "deletes": "m1"}, "$"),
        ({"receipts": [{"key": "", "state": "delivered"}]}, "$.receipts[0].key"),
        ({"receipts": [{"key": "k", "state": "accepted"}]}, "$.receipts[0].state"),
        ({"receipts": [{"key": "k", "state": "observed", "at": "2026-01-02T03:04:05"}]}, "$.receipts[0].at"),
        ({"receipts": [], "text": "x"}, "$"),
        ({"receipts": [{"key": "k", "state": "failed"}] * 1001}, "$.receipts"),
    ],
)
def test_what_has_another_shape_is_invalid_with_its_path(document: Any, path: str) -> None:
    with pytest.raises(Invalid) as caught:
        channel().parse(webhook_request(IN, document))
    assert [each["path"] for each in caught.value.attributes["errors"]] == [path]


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a": 1, "a": 2}', b'{"from": "\\ud800"}', b'"x"', b"[" * 200])
def test_what_is_no_json_of_ours_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid):
        channel().parse(webhook_request(IN, None, raw=raw))


def test_receipts_are_read() -> None:
    said = {
        "receipts": [{"key": KEY, "state": "observed", "at": "2026-01-02T03:04:05Z"}, {"key": "k", "state": "failed"}]
    }
    assert channel().parse(webhook_request(IN, said)) == [Receipt(KEY, "observed", NOW), Receipt("k", "failed")]


def test_what_is_sent_is_signed_and_says_where_to(receiver: Outside) -> None:
    address = Address("hook", "ann", Place("c1", "t1"))
    (payload,) = channel().render(Outgoing("echo", "<b>*hi*</b> <!channel>", KEY, "crm"))
    assert pushed(channel(receiver.url + "/in?x=1"), payload, address=address) == Pushed("accepted")
    (request,) = receiver.requests
    assert request.headers["webhook-id"] == KEY
    said = Webhook(OUT).verify(request.body, request.headers)
    assert said["type"] == "minutebook.message"
    assert said["data"] == {
        "key": KEY,
        "kind": "echo",
        "label": "crm",
        "text": "<b>*hi*</b> <!channel>",
        "to": {"nativeId": "ann", "conversation": "c1", "thread": "t1"},
    }
    with pytest.raises(NotAuthentic):
        channel().verify(RawRequest(request.headers, request.body), now())


def test_a_destination_of_its_own_needs_no_address(receiver: Outside) -> None:
    assert pushed(channel(receiver.url), address=Address("hook")) == Pushed("accepted")
    assert receiver.requests[0].json["data"]["to"] == {}


@pytest.mark.parametrize("text", ["\0" * 300_000, "😀" * 100_000, "a b\n" * 100_000, ""])
def test_no_payload_is_over_the_limit(text: str) -> None:
    parts = channel().render(Outgoing("reply", text, KEY))
    assert all(len(msgspec.json.encode(part)) < MAX_PAYLOAD_BYTES for part in parts)
    assert "".join(part["text"] for part in parts) == (text or "(no text)")


def answering(mischief: Mischief) -> Callable[[Outside], None]:
    return lambda receiver: receiver.mischief.append(mischief)


OUTCOMES = [
    (status(204), Pushed("accepted")),
    (garbage, Pushed("accepted")),  # 2xx is all that a webhook promises
    (huge, Pushed("accepted")),
    (status(429, retry_after="120"), Pushed("retry", "http_429", 120.0)),
    (status(429, retry_after="86400"), Pushed("retry", "http_429", 3600.0)),
    (status(500), Pushed("retry", "http_500")),
    (status(503, retry_after="3"), Pushed("retry", "http_503", 3.0)),
    (status(408), Pushed("retry", "http_408")),
    (status(410), Pushed("permanent", "gone")),
    (status(404), Pushed("permanent", "http_404")),
    (status(401), Pushed("permanent", "http_401")),
    (status(302, location="http://127.0.0.1:1/elsewhere"), Pushed("permanent", "redirected")),
    (lost_before, Pushed("unknown", "connection_lost")),
    (lost_after, Pushed("unknown", "connection_lost")),
    (status(700), Pushed("unknown", "answer_unreadable")),
]


@pytest.mark.parametrize(("mischief", "expected"), OUTCOMES)
def test_what_comes_of_an_answer(receiver: Outside, mischief: Mischief, expected: Pushed) -> None:
    answering(mischief)(receiver)
    assert pushed(channel(receiver.url)) == expected
    assert len(receiver.requests) == 1


def test_a_slow_answer_is_unknown_and_one_in_time_accepted(receiver: Outside) -> None:
    go = threading.Event()

    def slow(_request: Any, honest: Callable[[], Reply]) -> Reply:
        go.wait(20)
        return honest()

    receiver.mischief = [slow]
    assert pushed(channel(receiver.url), timeout_s=0.3) == Pushed("unknown", "timeout")
    go.set()
    assert pushed(channel(receiver.url)) == Pushed("accepted")


def test_what_was_never_written_may_go_again() -> None:
    assert pushed(channel("http://127.0.0.1:9/in")) == Pushed("retry", "unreachable")
    assert pushed(channel("https://does-not-exist.invalid/in")) == Pushed("retry", "unreachable")


def test_a_private_address_is_refused_where_it_is_not_allowed(receiver: Outside) -> None:
    assert pushed(channel(receiver.url, loopback=False)) == Pushed("permanent", "address_refused")
    assert pushed(channel("https://169.254.169.254/")) == Pushed("permanent", "address_refused")
    assert receiver.requests == []


def test_a_channel_that_only_receives_sends_nothing() -> None:
    assert pushed(channel()) == Pushed("permanent", "cannot_push")
