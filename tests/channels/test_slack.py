"""The slack channel: signatures, which events are messages of people, escaping, and what comes of an answer."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from channel_scenes import KEY, NOW, pushed
from hypothesis import given
from hypothesis import strategies as st
from minutebook.commands.channels.ports import Echoed, NotAuthentic, Pushed, RawRequest
from minutebook.domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from minutebook.domain.errors import Invalid
from minutebook.infra.channels.slack import SlackChannel, escaped, plain_text
from minutebook.infra.settings_channels import ChannelSettings
from outside import Mischief, Outside, Reply, garbage, huge, lost_after, now, serving, status

SECRET = "slack-signing-secret"


def channel(url: str = "http://127.0.0.1:9", *, loopback: bool = True, **more: Any) -> SlackChannel:
    settings = ChannelSettings(
        kind="slack", token="xoxb-1", inbound_secret=SECRET, base_url=url, allow_loopback=loopback, **more
    )
    return SlackChannel("sl", settings, now)


@pytest.fixture(scope="module")
def api() -> Iterator[Outside]:
    with serving(Outside(lambda _: Reply(200, b'{"ok":true,"channel":"C1","ts":"1700000000.000200"}'))) as outside:
        yield outside


@pytest.fixture(autouse=True)
def _fresh(api: Outside) -> None:
    api.requests.clear()
    api.mischief.clear()


def signed(body: bytes, *, at: datetime = NOW, secret: str = SECRET, kind: str = "application/json") -> RawRequest:
    stamp = str(int(at.timestamp()))
    mac = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    headers = {"x-slack-request-timestamp": stamp, "x-slack-signature": f"v0={mac}", "content-type": kind}
    return RawRequest(headers, body)


def event(text: str = "hello", *, chat: str = "D1", **more: Any) -> dict[str, Any]:
    inner = {"type": "message", "user": "U7", "text": text, "ts": "1700000000.000100", "channel": chat, **more}
    return {
        "type": "event_callback",
        "team_id": "T1",
        "event_id": "Ev1",
        "event": inner,
        "authorizations": [{"team_id": "T1", "user_id": "UBOT", "is_bot": True}],
    }


def read(document: Any, **settings: Any) -> Inbound:
    inbound = channel(**settings).parse(signed(json.dumps(document).encode()))
    assert isinstance(inbound, Inbound)
    return inbound


def test_what_it_can_follows_from_its_settings() -> None:
    assert channel().can == Can(receive=True, push=True, threads=True, keys=True)


def test_a_signature_proves_these_bytes_at_this_time() -> None:
    request = signed(b"{}")
    proof = channel().verify(request, NOW + timedelta(seconds=299))
    assert proof.signed_at == NOW
    assert proof == channel().verify(request, NOW)
    assert proof.signature != channel().verify(signed(b"{} "), NOW).signature
    for bad in (
        RawRequest(request.headers, b"{} "),
        RawRequest({}, b"{}"),
        signed(b"{}", at=NOW - timedelta(seconds=301)),
        signed(b"{}", at=NOW + timedelta(seconds=301)),
        signed(b"{}", secret="slack-signing-secret-of-another-channel"),
        RawRequest({**request.headers, "x-slack-signature": "v0="}, b"{}"),
        RawRequest({**request.headers, "x-slack-signature": request.headers["x-slack-signature"][3:]}, b"{}"),
        RawRequest({**request.headers, "x-slack-signature": "é"}, b"{}"),
        RawRequest({**request.headers, "x-slack-request-timestamp": "soon"}, b"{}"),
    ):
        with pytest.raises(NotAuthentic):
            channel().verify(bad, NOW)


def test_the_check_of_the_address_is_echoed() -> None:
    document = {"type": "url_verification", "challenge": "abc", "token": "x"}
    assert channel().parse(signed(json.dumps(document).encode())) == Echoed({"challenge": "abc"})


def test_a_direct_message_is_read() -> None:
    assert read(event(channel_type="im")) == Inbound(
        sender=ChannelIdentity("default", "sl", "U7"),
        place=Place("D1"),
        message_id="D1:1700000000.000100",
        text="hello",
        is_mention=True,
        display="U7",
    )


def test_both_events_of_one_mention_are_one_message() -> None:
    seen = event("<@UBOT> hi <@U9>", chat="C1", channel_type="channel")
    mention = event("<@UBOT> hi <@U9>", chat="C1", type="app_mention")
    assert read(seen) == read(mention)
    assert (read(seen).text, read(seen).is_mention, read(seen).place) == ("hi @U9", True, Place("C1", is_group=True))
    assert not read(event("hi <@U9>", chat="C1", channel_type="channel")).is_mention
    assert read(event("<@UFIX> hi", chat="C1"), bot_name="UFIX").is_mention


def test_a_thread_is_kept() -> None:
    assert read(event(chat="C1", thread_ts="1699999999.000100")).place.thread == "1699999999.000100"


@pytest.mark.parametrize(
    "document",
    [
        event(bot_id="B1"),
        event(user="UBOT"),
        event(subtype="message_changed"),
        event(subtype="bot_message"),
        event(subtype="channel_join"),
        event(hidden=True),
        event(type="reaction_added"),
        event(user=1) | {"event": {"type": "message"}},
        {"type": "app_rate_limited", "minute_rate_limited": 1},
        {"type": "event_callback"},
    ],
)
def test_what_is_no_message_of_a_person_is_ignored(document: Any) -> None:
    assert channel().parse(signed(json.dumps(document).encode())) is None


WAS = {"type": "message", "user": "U7", "text": "hello", "ts": "1700000000.000100"}


@pytest.mark.parametrize(
    ("fields", "author"),
    [
        ({"subtype": "message_deleted", "deleted_ts": WAS["ts"], "previous_message": WAS, "hidden": True}, "U7"),
        ({"subtype": "message_deleted", "deleted_ts": WAS["ts"]}, ""),
        ({"subtype": "message_deleted", "deleted_ts": WAS["ts"], "previous_message": {"user": None}}, ""),
        (
            {
                "subtype": "message_changed",
                "message": {"subtype": "tombstone", "user": "USLACKBOT", "ts": WAS["ts"]},
                "previous_message": WAS,
            },
            "U7",
        ),
    ],
)
def test_b74_a_deletion_is_of_the_message_that_it_names(fields: dict[str, Any], author: str) -> None:
    said = event(chat="C1", **fields)
    del said["event"]["user"], said["event"]["text"]
    came = read(event(chat="C1"))
    assert read(said) == Inbound(
        sender=ChannelIdentity("default", "sl", author),
        place=Place("C1", is_group=True),
        message_id=f"deleted:{came.message_id}",
        text="",
        deletes=came.message_id,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"subtype": "message_changed", "message": {**WAS, "text": "edited"}, "previous_message": WAS},
        {"subtype": "message_deleted", "deleted_ts": WAS["ts"], "previous_message": {**WAS, "bot_id": "B1"}},
        {"subtype": "message_deleted", "deleted_ts": WAS["ts"], "previous_message": {**WAS, "user": "UBOT"}},
        {"subtype": "message_deleted"},
        {"type": "app_mention", "subtype": "message_deleted", "deleted_ts": WAS["ts"]},
        {"subtype": "message_deleted", "deleted_ts": WAS["ts"], "channel": None},
        {"subtype": "message_changed", "message": {"subtype": "tombstone"}},
    ],
)
def test_b74_edits_and_what_is_ours_are_no_deletions(fields: dict[str, Any]) -> None:
    said = event(**fields)
    if fields.get("channel", "") is None:
        del said["event"]["channel"]
    assert channel().parse(signed(json.dumps(said).encode())) is None


def test_events_of_another_workspace_are_ignored() -> None:
    assert channel(workspace="T2").parse(signed(json.dumps(event()).encode())) is None
    assert read(event(), workspace="T1").text == "hello"


def test_slash_commands_that_are_verbs_are_read() -> None:
    form = {"command": "/link", "text": "ABCD2345", "user_id": "U7", "channel_id": "C1", "trigger_id": "1.2.a"}
    kind = "application/x-www-form-urlencoded"
    request = signed(urlencode(form).encode(), kind=kind)
    assert channel().verify(request, NOW).signature
    inbound = channel().parse(request)
    assert isinstance(inbound, Inbound)
    assert (inbound.verb, inbound.argument, inbound.message_id) == ("link", "ABCD2345", "command:1.2.a")
    assert inbound.place == Place("C1", is_group=True)
    assert channel().parse(signed(urlencode({**form, "command": "/deploy"}).encode(), kind=kind)) is None
    assert channel().parse(signed(b"", kind=kind)) is None
    with pytest.raises(Invalid):
        channel().parse(signed(b"\xff", kind=kind))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"type":1}', b'{"type":"event_callback","event":[]}', b"\xff"])
def test_what_is_no_event_is_invalid(raw: bytes) -> None:
    with pytest.raises(Invalid):
        channel().parse(signed(raw))


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("a &lt;b&gt; &amp;amp;", "a <b> &amp;"),
        ("<https://a.example|docs> <https://a.example>", "docs (https://a.example) https://a.example"),
        ("<mailto:a@b.example|a@b.example>", "mailto:a@b.example"),
        ("<!here> <!subteam^S1|@team> <#C1|general> <@U1|ann>", "@here @@team #general @ann"),
    ],
)
def test_what_people_wrote_is_read_as_they_saw_it(given_text: str, shown: str) -> None:
    assert plain_text(given_text) == shown


MARKUP = st.text(st.sampled_from("<>&;@!#|^ab *_~`\n:"), max_size=100) | st.sampled_from(
    ["<!channel>", "<@U1>", "@channel and @here", "&lt;!here&gt;", "<https://a.example|b>", "*b* _i_ `c`", "@Everyone"]
)


@given(MARKUP)
def test_no_text_yields_markup_or_a_mass_mention(text: str) -> None:
    for payload in channel().render(Outgoing("reply", text, KEY)):
        sent = payload["text"]
        assert not set(sent) & {"<", ">"}
        assert re.search(r"&(?!amp;|lt;|gt;)", sent) is None
        assert re.search(r"@(here|channel|everyone|group)\b", sent, re.IGNORECASE) is None
        shown = sent.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\u2060", "")
        assert shown == (text if text.strip() else "(no text)")
        assert (payload["mrkdwn"], payload["unfurl_links"], payload["unfurl_media"]) == (False, False, False)


def test_a_long_text_is_split_and_joins_to_the_whole() -> None:
    text = "x <y> & " * 5000
    parts = [payload["text"] for payload in channel().render(Outgoing("reply", text, KEY))]
    assert len(parts) > 1
    assert all(len(part) <= 40_000 for part in parts)
    assert "".join(parts) == escaped(text)


def test_it_goes_to_the_chat_and_thread_or_to_the_user_under_its_key(api: Outside) -> None:
    sent = pushed(channel(api.url), address=Address("sl", "U7", Place("C1", "1.2", is_group=True)))
    assert sent == Pushed("accepted", native_ref="1700000000.000200")
    pushed(channel(api.url), address=Address("sl", "U7"))
    pushed(channel(api.url), address=Address("sl", "U7"), key="other.0")
    first, second, third = (request.json for request in api.requests)
    assert (first["channel"], first["thread_ts"], first["text"]) == ("C1", "1.2", "hello")
    assert second["channel"] == "U7"
    assert first["client_msg_id"] == second["client_msg_id"] != third["client_msg_id"]
    assert uuid.UUID(first["client_msg_id"])
    assert api.requests[0].path == "/chat.postMessage"
    assert api.requests[0].headers["authorization"] == "Bearer xoxb-1"
    assert pushed(channel(api.url), address=Address("sl")) == Pushed("permanent", "no_address")


def said(document: Any, code: int = 200, **headers: str) -> Mischief:
    return lambda _request, _honest: Reply(
        code, json.dumps(document).encode(), {name.replace("_", "-"): text for name, text in headers.items()}
    )


OUTCOMES = [
    (said({"ok": False, "error": "ratelimited"}, 429, retry_after="7"), Pushed("retry", "http_429", 7.0)),
    (said({"ok": False, "error": "ratelimited"}), Pushed("retry", "rate_limited")),
    (said({"ok": False, "error": "internal_error"}), Pushed("retry", "service_error")),
    (said({"ok": False, "error": "channel_not_found"}), Pushed("permanent", "gone")),
    (said({"ok": False, "error": "invalid_auth"}), Pushed("permanent", "refused")),
    (status(500), Pushed("retry", "http_500")),
    (status(504), Pushed("unknown", "http_504")),
    (status(302, location="http://127.0.0.1:1/"), Pushed("permanent", "redirected")),
    (garbage, Pushed("unknown", "answer_unreadable")),
    (huge, Pushed("unknown", "answer_too_large")),
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
