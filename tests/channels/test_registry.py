"""The registry: every configured channel, made from its settings alone, and each kind with a maker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from channel_scenes import KEY, pushed, whsec
from minutebook.commands.channels.ports import NotAuthentic, Pushed, RawRequest
from minutebook.domain.channels.messages import Address, Can, Outgoing
from minutebook.domain.errors import Unavailable
from minutebook.infra.channels.setup import KINDS, channels_of
from minutebook.infra.channels.web import WebChannel
from minutebook.infra.settings_channels import ChannelKind, ChannelSettings
from minutebook.infra.settings_load import load
from outside import now

TOML = f"""
[channels.inbox]
kind = "web"
tenant = "acme"
[channels.hook]
kind = "webhook"
url = "https://hook.example/in"
secret = "{whsec("o")}"
[channels.tg]
kind = "telegram"
token = "7:abc"
[channels.sl]
kind = "slack"
token = "xoxb-1"
[channels.mail]
kind = "email"
from = "agent@mail.example"
smtp = {{ host = "smtp.example" }}
"""


class Rows:
    """Rows of an inbox in memory of the test; `refuses` is raised instead."""

    def __init__(self, refuses: Exception | None = None) -> None:
        self.rows: dict[str, Any] = {}
        self._refuses = refuses

    async def put(self, tenant: str, channel: str, address: Address, payload: Any, key: str) -> None:
        if self._refuses is not None:
            raise self._refuses
        self.rows.setdefault(key, (tenant, channel, address.native_id, payload))

    async def has(self, tenant: str, key: str) -> bool:
        return self.rows.get(key, ("",))[0] == tenant


def test_every_kind_of_the_settings_has_a_maker() -> None:
    assert {*KINDS, "web"} == set(get_args(ChannelKind))


def test_every_channel_of_the_settings_is_made(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text(TOML)
    channels = channels_of(load(tmp_path, {}), Rows(), now)
    assert {name: (each.name, each.kind, each.tenant, each.codec) for name, each in channels.items()} == {
        "inbox": ("inbox", "web", "acme", "web"),
        "hook": ("hook", "webhook", "default", "webhook"),
        "tg": ("tg", "telegram", "default", "telegram"),
        "sl": ("sl", "slack", "default", "slack"),
        "mail": ("mail", "email", "default", "email"),
    }
    assert all(each.can.push and not each.can.receive for each in channels.values())


def test_the_web_channel_stores_a_row_once_and_can_be_asked() -> None:
    rows = Rows()
    channel = WebChannel("inbox", ChannelSettings(kind="web", tenant="acme"), rows)
    assert channel.can == Can(push=True, keys=True, receipts=True, look_up=True)
    address = Address("inbox", "human:ann")
    (payload,) = channel.render(Outgoing("reply", "<b>hi</b>", KEY))
    for _ in range(2):
        assert pushed(channel, payload, address=address) == Pushed("accepted")
    assert rows.rows == {KEY: ("acme", "inbox", "human:ann", {"kind": "reply", "text": "<b>hi</b>"})}
    with pytest.raises(NotAuthentic):
        channel.verify(RawRequest({}, b""), now())


def test_a_row_that_is_not_stored_may_come_later() -> None:
    channel = WebChannel("inbox", ChannelSettings(kind="web"), Rows(Unavailable("The database is away.")))
    assert pushed(channel, address=Address("inbox", "human:ann")) == Pushed("retry", "unavailable")
