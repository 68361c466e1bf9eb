"""`make soak`: messages over a channel while servers, processes of jobs and PostgreSQL are killed at random. Each is
one turn and one answer, and what was sent twice was sent in a crash window that the log has, under the same key.

Minutes by SOAK_MINUTES (default 5), seed by SOAK_SEED.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fault_steps import end_sessions, kill_group, postgres_of, stop_postgres
from inbound_scenes import CONFIG, HOOK, Platforms, fresh, signature
from live_server import NO_TLS, LiveServer, until
from outside import serving
from scratch import SCRATCH

MINUTES = float(os.environ.get("SOAK_MINUTES", "5"))
SENDERS = 8
CALM_S = (1.0, 4.0)
"""Between two kills."""

SETTLE_S = 180.0
"""After the last kill: leases, breakers and waits between attempts run out."""

KINDS = {"server": 3, "process of jobs": 4, "database sessions": 3, "database restart": 1}
"""What is broken, with how often."""

ENDED = {"accepted", "dead", "cancelled", "expired"}

STARTED_AND_ENDED = """
SELECT e.payload ->> 'key', s.payload ->> 'outcome'
FROM minutebook.events e LEFT JOIN minutebook.events s
    ON s.stream_id = e.stream_id AND s.type = 'attempt_ended' AND s.payload ->> 'n' = e.payload ->> 'n'
WHERE e.type = 'attempt_started' AND e.payload ->> 'key' IS NOT NULL ORDER BY e.stream_id, e.seq
"""

LEFT = """
SELECT s.name, array_agg(e.seq || ' ' || e.type || ' ' || coalesce(e.payload ->> 'reason', '') || ' '
    || coalesce(e.payload ->> 'nextAt', e.payload ->> 'outcome', '') ORDER BY e.seq)
FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id
WHERE s.kind = 'delivery' AND s.id IN (SELECT d.stream_id FROM minutebook.deliveries d WHERE d.state <> 'accepted')
    OR s.kind = 'answer' AND NOT EXISTS (SELECT FROM minutebook.deliveries d JOIN minutebook.events r
        ON r.payload ->> 'correlationId' = d.correlation_id WHERE r.stream_id = s.id AND r.seq = 1)
GROUP BY s.id, s.name LIMIT 20
"""
"""Deliveries that are not accepted, and answers without a delivery."""


class Sender:
    """Somebody who writes over the webhook, and sends each message again until it is taken."""

    def __init__(self, name: str, urls: list[LiveServer], random_: random.Random) -> None:
        self.name = name
        self.taken: list[str] = []
        self.retries = 0
        self._servers = urls
        self._random = random_

    def write(self, is_over: threading.Event) -> None:
        """Until it is over; the last message is taken as well."""
        while not is_over.is_set():
            text = f"{self.name}-{len(self.taken)}"
            document = {"from": self.name, "messageId": fresh(self.name), "text": text}
            while not self._is_taken(json.dumps(document).encode()):
                self.retries += 1
                time.sleep(0.1)
            self.taken.append(text)
            time.sleep(self._random.uniform(0.05, 0.5))

    def _is_taken(self, body: bytes) -> bool:
        url = f"{self._random.choice(self._servers).url}/v1/channels/hook/inbound"
        hasty = 0.2 if self._random.random() < 0.05 else 15.0  # goes away before the answer
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.post(url, content=body, headers=signature(HOOK, body), timeout=hasty, verify=NO_TLS)
            assert answer.status_code in (202, 429, 503, 504), answer.text
            return answer.status_code == 202
        return False


def break_something(
    servers: list[LiveServer], data_dir: Path, stack: contextlib.ExitStack, random_: random.Random
) -> str:
    """One random kill, mended at once where nobody else would."""
    kind = random_.choices(list(KINDS), weights=list(KINDS.values()))[0]
    server = random_.choice(servers)
    match kind:
        case "server":
            kill_group(psutil.Process(server.process.pid))
            server.kill()
            server.start()
        case "process of jobs":
            with contextlib.suppress(StopIteration, psutil.Error):  # it is being started again already
                children = psutil.Process(server.process.pid).children()
                next(each for each in children if "jobs" in each.cmdline()).kill()
        case "database sessions":
            with server.sql() as superuser:
                end_sessions(superuser, "application_name LIKE 'minutebook%%' AND random() < 0.5")
        case _:
            stop_postgres(data_dir)
            stack.enter_context(postgres_of(data_dir))
    return kind


def run_soak(data_dir: Path, seconds: float) -> str:
    """Answers the table of what happened."""
    seed = int(os.environ.get("SOAK_SEED", str(int(time.time()))))
    sys.stderr.write(f"SOAK_SEED={seed}\n")
    random_, kills = random.Random(seed), Counter[str]()  # noqa: S311
    with serving(Platforms()) as platforms, contextlib.ExitStack() as stack:
        config = CONFIG.replace("{{", "{").replace("}}", "}").replace("{url}", platforms.url)
        servers = [stack.enter_context(LiveServer(data_dir, config=config)) for _ in range(2)]
        for server in servers:
            server.keep_port()
        senders = [Sender(f"s{n}", servers, random.Random(seed + n)) for n in range(SENDERS)]  # noqa: S311
        is_over, end = threading.Event(), time.monotonic() + seconds
        threads = [threading.Thread(target=each.write, args=(is_over,), daemon=True) for each in senders]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            time.sleep(random_.uniform(*CALM_S))  # what happens in the calm is the point
            said = sum(len(each.taken) for each in senders)
            kills[break_something(servers, data_dir, stack, random_)] += 1
            until(lambda said=said: sum(len(each.taken) for each in senders) > said, 60, "recovery")
        is_over.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        taken = [text for each in senders for text in each.taken]
        settled(servers[0], len(taken))
        extra = check(servers[0], platforms, taken)
        for server in servers:
            assert "internal error" not in server.logs()
            assert "Traceback" not in server.logs()
    table = {
        "seed": seed,
        **{f"killed: {kind}": count for kind, count in sorted(kills.items())},
        "messages taken": len(taken),
        "retries of senders": sum(each.retries for each in senders),
        "sent twice, in a recorded crash window": extra,
    }
    width = max(map(len, table))
    return "\n".join(f"{name:{width}}  {value}" for name, value in table.items())


def states(server: LiveServer) -> Counter[str]:
    """How many deliveries are in each state."""
    with server.sql() as look:
        rows = look.execute("SELECT state, count(*) FROM minutebook.deliveries GROUP BY state").fetchall()
    return Counter(dict(rows))


def settled(server: LiveServer, count: int) -> None:
    """Every delivery is accepted; otherwise how those stand that are not."""
    try:
        until(lambda: states(server) == Counter(accepted=count), SETTLE_S, f"the end of {count} deliveries")
    except AssertionError as error:
        with server.sql() as look:
            left = look.execute(LEFT).fetchall()
        raise AssertionError(f"{states(server)}, of {count}: {left}") from error


def check(server: LiveServer, platforms: Platforms, taken: list[str]) -> int:
    """Every message is one turn and one answer; how many sends were extra ones."""
    with server.sql() as look:
        asked = look.execute(
            "SELECT payload ->> 'text' FROM minutebook.events"
            " WHERE type = 'user_recorded' AND payload ->> 'status' = 'accepted'"
        ).fetchall()
        attempts = look.execute(STARTED_AND_ENDED).fetchall()
        terminal = look.execute(
            "SELECT stream_id, count(*) FROM minutebook.events WHERE type = 'attempt_ended'"
            " AND payload ->> 'state' = 'accepted' GROUP BY stream_id HAVING count(*) > 1"
        ).fetchall()
    assert sorted(row[0] for row in asked) == sorted(taken)
    assert terminal == [], "accepted is recorded once"
    outcomes: dict[str, list[Any]] = {}
    for key, outcome in attempts:
        outcomes.setdefault(key, []).append(outcome)
    with platforms.lock:
        # A sender that is killed in the middle leaves a request that nobody could read.
        whole = [each for each in platforms.requests if len(each.body) == int(each.headers["content-length"])]
    sent = [(each.headers["webhook-id"], each.json["data"]["text"]) for each in whole]
    keys = Counter(key for key, _ in sent)
    for key, count in keys.items():
        assert outcomes[key][-1] == "accepted"
        assert set(outcomes[key][:-1]) <= {"unknown", "retry"}, "nothing is sent behind what was accepted"
        assert count <= len(outcomes[key])
    texts = Counter(text for _, text in set(sent))
    assert texts == Counter(f"echo: {text}" for text in taken), "one key for each answer"
    return sum(keys.values()) - len(keys)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + SETTLE_S + 300)
def test_answers_soak(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="mbs", dir=SCRATCH) as folder:
        table = run_soak(Path(folder) / "data", MINUTES * 60)
    with capsys.disabled():
        sys.stdout.write(f"\n{table}\n")
