"""The notifier: a signed webhook that tells people, with a link, that a room needs them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ..commands.outward import Notice
from .outward_http import OutwardClient
from .settings_outward import NotifySettings
from .webhooks import SignedWebhook

KINDS = {
    "approval_pending": "approval.pending",
    "room_waiting": "room.waiting",
    "run_ended": "run.ended",
    "run_handed_over": "run.handed_over",
}


class WebhookNotifier:
    """Tells `notify.url` of what `notify.events` lists."""

    def __init__(self, settings: NotifySettings, webhook: SignedWebhook, client: OutwardClient) -> None:
        self._events = settings.events
        self._public_url = (settings.public_url or "").rstrip("/")
        self._webhook = webhook
        self._client = client

    @classmethod
    def of(cls, settings: NotifySettings, now: Callable[[], datetime]) -> WebhookNotifier | None:
        """None where nobody is to be told."""
        if settings.url is None or settings.secret is None:
            return None
        client = OutwardClient(settings.timeout_s, allow_private=settings.allow_loopback)
        return cls(settings, SignedWebhook(settings.url, settings.secret, client, now), client)

    async def notify(self, notice: Notice) -> None:
        """See commands.outward.Notifier; nothing is sent of a kind that is not wanted.

        webhook-id is `<room>-<seq>-<kind>`. The body has ids, the kind and the link, and no word of the room.
        """
        if notice.kind not in self._events:
            return
        data: dict[str, str | int] = {"roomId": notice.room, "seq": notice.seq}
        if notice.run_id is not None:
            data["runId"] = notice.run_id
        if notice.approval_id is not None:
            data["approvalId"] = notice.approval_id
        data["url"] = f"{self._public_url}/rooms/{notice.room}"
        await self._webhook.send(f"{notice.room}-{notice.seq}-{notice.kind}", KINDS[notice.kind], notice.ts, data)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()
