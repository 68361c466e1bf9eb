"""The process of accounts: an end that is unlinked takes along what waits for it, also after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...domain.linking.events import ACCOUNT_EVENTS, Unlinked
from ..jobs import JobRequest
from ..linking.ports import STREAM
from ..ports import StoredEvent

UNLINK = "unlink"
"""Name of the job."""


class UnlinkOutbox:
    """See commands.jobs.Process."""

    name: ClassVar[str] = "unlinks"
    kinds: ClassVar[tuple[str, ...]] = ("account",)
    types: ClassVar[tuple[str, ...]] = (Unlinked.type,)

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:
        """See commands.jobs.Process. Raises Damaged for a payload that cannot be read."""
        read = ACCOUNT_EVENTS.decode(event.type, event.version, event.payload)
        if not isinstance(read, Unlinked):
            return ()
        account = stream.removeprefix(STREAM)
        about = {"account": account, "channel": read.channel, "native": read.native}
        return (JobRequest(UNLINK, f"unlink:{account}:{event.seq}", about),)
