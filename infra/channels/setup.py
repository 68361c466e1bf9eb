"""The channels of the settings, ready to be opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from ...commands.channels.ports import Channel, InboxRows
from ...commands.ports import Redact
from ..codecs import PayloadCodec, Shapes
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

SHAPES: Shapes = {
    each.codec: each.shapes for each in (WebChannel, WebhookChannel, TelegramChannel, SlackChannel, EmailChannel)
}
"""What their payloads at rest are, in every version that was ever written, configured or not."""


def channels_of(
    settings: Settings, inbox: InboxRows, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Mapping[str, Channel]:
    """Every configured channel by its name. inbox: where those of kind web put what is sent. now: what signs a call."""
    return {
        name: WebChannel(name, each, inbox) if each.kind == "web" else KINDS[each.kind](name, each, now)
        for name, each in settings.channels.items()
    }


def payload_codec(settings: Settings, redact: Redact) -> PayloadCodec:
    """What payloads at rest go through, with the keys of the settings. redact: the redactor's hook."""
    return PayloadCodec(SHAPES, settings.delivery.payload_keys, redact)
