"""The launcher of runs: a signed webhook that takes the brief and starts a sandbox."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ..commands.outward import Launch
from .outward_http import OutwardClient
from .settings_outward import LauncherSettings
from .webhooks import SignedWebhook

KIND = "run.requested"


class WebhookLauncher:
    """Tells `launcher.url` of each run to start."""

    def __init__(self, webhook: SignedWebhook, client: OutwardClient) -> None:
        self._webhook = webhook
        self._client = client

    @classmethod
    def of(cls, settings: LauncherSettings, now: Callable[[], datetime]) -> WebhookLauncher | None:
        """None where no launcher is configured."""
        if settings.url is None or settings.secret is None:
            return None
        client = OutwardClient(settings.timeout_s, allow_private=settings.allow_loopback)
        return cls(SignedWebhook(settings.url, settings.secret, client, now), client)

    async def launch(self, launch: Launch) -> None:
        """See commands.outward.Launcher. webhook-id is `run-<runId>`."""
        data = {
            "roomId": launch.room,
            "runId": launch.run_id,
            "role": launch.role,
            "claim": launch.claim,
            "brief": launch.brief,
        }
        await self._webhook.send(f"run-{launch.run_id}", KIND, None, data)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()
