"""`serve --role jobs` sends what was planned anywhere, by the settings alone."""

from __future__ import annotations

import asyncio
import base64
import signal
from pathlib import Path
from typing import Any

from delivery_desk import PAYLOAD_KEY, SECRET, Receiver, desk_of, settled, wanted, webhook
from job_steps import jobs_alone
from live_server import until
from outside import serving, status

SETTINGS = """
[delivery]
payloadKey = "{key}"

[channels.hook]
kind = "webhook"
tenant = "acme"
url = "{url}"
secret = "{secret}"
allowLoopback = true
lanes = 2
retry = {{ attempts = 3, from = "1s", to = "1s" }}
"""


def test_the_process_of_jobs_sends_what_was_planned(database: Any, tmp_path: Path) -> None:
    with serving(Receiver()) as receiver:
        key = base64.b64encode(PAYLOAD_KEY).decode()
        (tmp_path / "minutebook.toml").write_text(SETTINGS.format(url=receiver.url, secret=SECRET, key=key))
        process = jobs_alone(tmp_path, database.url("app"), "--role", "jobs")
        receiver.mischief = [status(503)]

        async def scenario() -> list[str]:
            async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
                ids = await desk.planner.plan([wanted(text="canary-7f3a") for _ in range(10)])
                assert set((await settled(database, 10, 45)).values()) == {"accepted"}
                return ids

        try:
            ids = asyncio.run(scenario())
        finally:
            process.send_signal(signal.SIGTERM)
            _, complained = process.communicate(timeout=30)
        assert set(receiver.took) == {f"{each}.1" for each in ids}
        assert process.returncode == 0, complained
        assert "Traceback" not in complained
        assert "canary" not in complained
        assert "retry" in complained
        assert "delivery_attempt" not in complained, "a line for each is for who asks for it"


def test_without_channels_a_wake_up_waits_for_nobody(database: Any, tmp_path: Path) -> None:
    async def plan() -> None:
        async with desk_of(database.url(), {"hook": webhook("hook", "http://127.0.0.1:9")}) as desk:
            await desk.planner.plan([wanted()])
            await desk.planner.close()

    def waiting() -> int:
        with database.connect("postgres") as look:
            row = look.execute("SELECT count(*) FROM minutebook_jobs.procrastinate_jobs").fetchone()
            return row[0]

    asyncio.run(plan())
    assert waiting() == 1
    process = jobs_alone(tmp_path, database.url("app"), "--role", "jobs")
    try:
        until(lambda: waiting() == 0, 30, "the end of the wake-up")
    finally:
        process.send_signal(signal.SIGTERM)
        _, complained = process.communicate(timeout=30)
    assert process.returncode == 0, complained
