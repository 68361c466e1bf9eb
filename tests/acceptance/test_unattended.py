"""SC-6, SC-14: what the server does by itself (rooms.md, Done means). The last file, since it waits for the clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bridges import Bridge, frames
from live_server import LiveServer, until
from outside import Forge

EXPIRY = timedelta(seconds=30)
"""An expiry is applied within this (rooms.md, Approvals)."""

POSTED_S = 60.0
"""A job whose last answer got lost is tried again after half a minute."""


def stored(bridge: Bridge, type_: str, kind: str | None = None) -> list[dict[str, Any]]:
    """Events of the room's log of that type, and kind."""
    events = [event for event in bridge.log() if event["type"] == type_]
    return [event for event in events if kind is None or event["payload"]["kind"] == kind]


def test_sc_6_what_nobody_decides_expires(other: LiveServer, left: Any) -> None:
    waiting, asked = left.waiting, left.asked
    until(lambda: bool(stored(waiting, "approval_decided")), EXPIRY.total_seconds() + 5, "the expiry")
    (decided,) = stored(waiting, "approval_decided")
    assert decided["actor"] == {"kind": "system", "id": "minutebook"}
    assert decided["payload"]["decision"] == "expired"
    late = datetime.fromisoformat(decided["ts"]) - datetime.fromisoformat(asked["expiresAt"])
    assert timedelta(0) <= late < EXPIRY
    again = waiting.elsewhere(other)
    again.hello()
    with again.stream() as stream:
        ((event, data),) = frames(stream, 1)
        assert (event, data["approvalId"], data["allow"]) == ("decision", asked["approvalId"], False)


def test_sc_14_a_verdict_is_one_comment_on_its_pull_request_ever(forge: Forge, left: Any) -> None:
    """Said twice under one key, and posted by a job that lost the forge's answer."""
    reviewer = left.reviewer
    until(lambda: bool(stored(reviewer, "state_changed", "verdict_posted")), POSTED_S, "the comment's outcome")
    (posted,) = stored(reviewer, "state_changed", "verdict_posted")
    assert posted["actor"] == {"kind": "system", "id": "minutebook"}
    (comment,) = forge.comments
    assert posted["payload"]["url"] == comment["html_url"]
    assert posted["payload"]["ref"] == left.verdict
    assert "approve" in comment["body"].lower()
    assert len([each for each in forge.requests if each.method == "POST"]) == 1
    assert not forge.mischief
