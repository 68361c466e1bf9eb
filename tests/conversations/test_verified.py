"""What was verified once is known by its whole payload, and only so much of it is remembered."""

from __future__ import annotations

from typing import Any

from conversation_scenes import RING, STREAM
from minutebook.commands.conversations.kind import Verifier
from minutebook.commands.conversations.verified import Verified
from minutebook.commands.ports import StoredEvent
from minutebook.domain.conversations.events import CONVERSATION_EVENTS


class Looks:
    """A keyring that counts how often it is asked."""

    def __init__(self) -> None:
        self.count = 0

    def sign(self, domain: Any, fields: Any, kid: str | None = None) -> Any:
        """See Keyring."""
        return RING.sign(domain, fields, kid)

    def verify(self, domain: Any, fields: Any, mac: Any) -> bool:
        """See Keyring."""
        self.count += 1
        return False


def event(seq: int, payload: str) -> StoredEvent:
    return StoredEvent(seq, "envelope_received", 1, "human", "alice", None, None, payload)


def test_the_same_payload_is_looked_at_once_and_another_again() -> None:
    looks = Looks()
    verifier, verified = Verifier(looks, STREAM, CONVERSATION_EVENTS), Verified(max_chars=60)
    plain = '{"kid": "k1", "mac": "00"}'
    for payload, count in ((plain, 1), (plain, 1), ('{"kid": "k1", "mac": "01"}', 2), (plain, 3)):
        verified.decode(verifier, event(1, payload))
        assert looks.count == count
    for seq in (2, 3):
        verified.decode(verifier, event(seq, plain))  # the third is over the bound: the first goes
    verified.decode(verifier, event(3, plain))
    assert looks.count == 5
    verified.decode(verifier, event(1, plain))
    assert looks.count == 6
