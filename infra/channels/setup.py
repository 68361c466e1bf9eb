"""The channels of the settings, ready to be opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ...commands.channels.ports import Channel, InboxRows
from ..settings import Settings
from ..settings_channels import ChannelSettings
from .email import EmailChannel
from .slack import SlackChannel
from .telegram import TelegramChannel
from .web import WebChannel
from .webhook import WebhookChannel

Make = Callable[[str, ChannelSettings, Callable[[], datetime]], Channel]

KINDS: dict[str, Make] = {
    "webhook": WebhookChannel,
    "telegram": TelegramChannel,
    "slack": SlackChannel,
    "email": EmailChannel,
}
"""What makes a channel of each kind."""


def channels_of(
    settings: Settings, inbox: InboxRows, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Mapping[str, Channel]:
    """Every configured channel by its name. inbox: where those of kind web put what is sent. now: what signs a call."""
    return {
        name: WebChannel(name, each, inbox) if each.kind == "web" else KINDS[each.kind](name, each, now)
        for name, each in settings.channels.items()
    }
