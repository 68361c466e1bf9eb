"""The worked example of docs/howto/add-a-channel.md, executed."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from channel_scenes import KEY, NOW, pushed
from minutebook.commands.channels.ports import Channel, NotAuthentic, Pushed, RawRequest
from minutebook.domain.channels.messages import Address, Can, ChannelIdentity, Inbound, Outgoing, Place
from minutebook.infra.settings_channels import ChannelSettings
from outside import Outside, Reply, now, serving, status
from tree import ROOT

PAGE = ROOT / "docs" / "howto" / "add-a-channel.md"


@pytest.fixture(scope="module")
def pager() -> Iterator[Any]:
    """The class of the page."""
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    module = types.ModuleType("pager_of_the_page")
    sys.modules[module.__name__] = module  # where msgspec looks up the names of annotations
    exec(compile(source, str(PAGE), "exec"), module.__dict__)  # noqa: S102 - our own page
    yield module.PagerChannel
    del sys.modules[module.__name__]


def made(pager: Any, url: str = "http://127.0.0.1:9") -> Any:
    declared = ChannelSettings(
        kind="telegram", token="t", inbound_secret="pager-secret", base_url=url, allow_loopback=True
    )
    return pager("pager", declared, now)


def request(document: Any, by: str = "pager-secret") -> RawRequest:
    body, stamp = json.dumps(document).encode(), str(int(NOW.timestamp()))
    mac = hmac.new(by.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return RawRequest({"x-pager-time": stamp, "x-pager-mac": mac}, body)


def test_it_receives(pager: Any) -> None:
    channel: Channel = made(pager)
    assert channel.can == Can(receive=True, push=True, keys=True)
    assert channel.verify(request({}), NOW).signed_at == NOW
    with pytest.raises(NotAuthentic):
        channel.verify(request({}, "other"), NOW)
    assert channel.parse(request({"id": "1", "pager": "7", "text": "/stop"})) == Inbound(
        ChannelIdentity("default", "pager", "7"), Place("7"), "1", "/stop", "stop", is_mention=True
    )


def test_it_sends(pager: Any) -> None:
    parts = made(pager).render(Outgoing("reply", "word " * 100, KEY))
    assert "".join(part["text"] for part in parts) == "word " * 100
    with serving(Outside(lambda _: Reply(200))) as outside:
        address = Address("pager", "7")
        outside.mischief = [status(503)]
        assert pushed(made(pager, outside.url), parts[0], address=address) == Pushed("retry", "http_503")
        assert pushed(made(pager, outside.url), parts[0], address=address) == Pushed("accepted")
        assert [each.headers["idempotency-key"] for each in outside.requests] == [KEY, KEY]
        assert outside.requests[0].path == "/pagers/7"
