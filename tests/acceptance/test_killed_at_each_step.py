"""kill -9 of a server at every point of a turn: another one ends the turn, over HTTP, once (field fault B61)."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import doomed_server
import httpx
import pytest
from live_server import LiveServer, until
from scratch import SCRATCH
from talks import replies, start

CONFIG = """
[tools.look]
python = "tools_of_a_doomed_server:look"
dataClass = "internal"
idempotent = true
"""
TOOL = "def look(name: str) -> dict:\n    return {'name': name}\n"
CALL = '!tool look {"name": "x"}'

POINTS = (
    *((name, 0) for name in ("leased", "before take", "after take", "before attempt", "after attempt")),
    *((f"{when} {name}", calls) for calls in (0, 1) for name in ("model", "answer") for when in ("before", "after")),
    *((name, 0) for name in ("before tool start", "after tool start", "after tool", "before tool end")),
    *((name, 0) for name in ("after tool end", "before reply", "after reply", "after seal", "done", "let go")),
)
"""Where, and how often it goes by before: the model is asked twice, as its first answer is the call."""

TAKEOVER_S = 40.0


@pytest.fixture(scope="module")
def heir() -> Iterator[LiveServer]:
    """Who goes on with what the doomed ones leave."""
    with tempfile.TemporaryDirectory(prefix="mba", dir=SCRATCH) as folder:
        place = Path(folder) / "data"
        place.mkdir(mode=0o700)
        (place / "tools_of_a_doomed_server.py").write_text(TOOL)
        with LiveServer(place, config=CONFIG) as server:
            yield server


@pytest.mark.soak
@pytest.mark.parametrize(("point", "passes"), POINTS)
def test_b61_a_turn_survives_a_kill_at(heir: LiveServer, point: str, passes: int) -> None:
    program = [doomed_server.__file__, point, str(passes)]
    alice = heir.member("alice")
    talks: list[str] = []
    with LiveServer(heir.data_dir, program=program, arguments=["--role", "http"]) as doomed:
        client = doomed.member("alice")
        while doomed.process.poll() is None:  # a conversation that the heir's sweep finds first is one more of them
            talks.append(start(alice))
            with contextlib.suppress(httpx.TransportError):  # it is stored before anybody works at it
                client.post(f"/v1/conversations/{talks[-1]}/turns", json={"text": CALL})
            until(lambda: doomed.process.poll() is not None or replies(alice, talks[-1]), 20, "the end of either")
            with contextlib.suppress(subprocess.TimeoutExpired):
                doomed.process.wait(2)  # a reply is there before the points behind it
    with heir.sql() as superuser:
        superuser.execute("UPDATE minutebook.leases SET seen_at = seen_at - interval '20 seconds'")
    until(lambda: replies(alice, talks[-1]), TAKEOVER_S, "the reply")
    until(lambda: not left(heir), TAKEOVER_S, "the end of the work")
    for talk in talks:
        (entry,) = replies(alice, talk)
        assert (entry["turn"], entry["status"]) == (1, "completed")
        assert entry["text"] == '{"name":"x"}'
    assert repeated(heir) == 0


def left(server: LiveServer) -> int:
    """Conversations that a runner has not let go."""
    with server.sql() as connection:
        return (connection.execute("SELECT count(*) FROM minutebook.turn_work").fetchone() or (0,))[0]


def repeated(server: LiveServer) -> int:
    """Steps that are in the log more than once: same turn, same kind, same step."""
    sql = (
        "SELECT count(*) FROM (SELECT 1 FROM minutebook.events WHERE type IN ('model_answered', 'tool_ended')"
        " GROUP BY stream_id, type, payload ->> 'step' HAVING count(*) > 1) t"
    )
    with server.sql() as connection:
        return (connection.execute(sql).fetchone() or (0,))[0]
