"""The times of `[delivery]` reach the events, streams and payloads that count, on a real database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from delivery_desk import Receiver, desk_of, logged, states, wanted, webhook
from in_loop import in_loop
from minutebook.commands.deliveries.keeping import Keeping
from minutebook.commands.deliveries.noting import Notes
from minutebook.domain.principals import SERVER
from minutebook.http.delivery_terms import keep_of, terms_of
from minutebook.infra.settings import Settings
from minutebook.infra.settings_load import load
from msgspec.structs import replace
from outside import serving, status
from ulid_transform import ulid_now

TIMES = """
[delivery]
attemptsTtl = "11d"
replayWindow = "2d"
orderWindow = "90s"
payloadTtl = "2h"
deadPayloadTtl = "3d"
"""
CONVERSATION = ulid_now().lower()


def settings_of(folder: Path) -> Settings:
    (folder / "minutebook.toml").write_text(TIMES, encoding="utf-8")
    return load(folder, {})


def aged(database: Any, hours: int) -> None:
    with database.connect("postgres") as superuser:
        superuser.execute(f"UPDATE minutebook.deliveries SET ended_at = ended_at - interval '{hours} hours'")


def time_from(event: dict[str, Any], name: str, start: datetime) -> timedelta:
    return datetime.fromisoformat(event[name]) - start


@in_loop
async def test_plans_and_payloads_have_the_times_of_the_settings(database: Any, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    terms = terms_of(settings)("hook")
    with serving(Receiver()) as receiver:
        channels = {"hook": webhook("hook", receiver.url)}
        policy = replace(terms.policy, timeout_s=0.5)
        async with desk_of(database.url(), channels, policy=policy, days=terms.days) as desk:
            accepted, dead = await desk.planner.plan([wanted(conversation=CONVERSATION), wanted()])
            receiver.mischief = [status(410)]
            receiver.troubles = lambda request: request.headers["webhook-id"].startswith(dead)
            await desk.drain()
            with database.connect("postgres") as superuser:
                rows = superuser.execute(
                    "SELECT s.retention_days, e.type, e.ts, e.payload FROM minutebook.events e"
                    " JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.kind = 'delivery'"
                ).fetchall()
            assert {days for days, _, _, _ in rows} == {11}
            waits = [time_from(payload, "orderUntil", at) for _, _, at, payload in rows if "orderUntil" in payload]
            (wait,) = waits
            assert abs(wait.total_seconds() - 90) < 5
            windows = [time_from(payload, "replayUntil", at) for _, _, at, payload in rows if "replayUntil" in payload]
            (window,) = windows
            assert abs(window.total_seconds() - 2 * 86_400) < 5
            assert logged(database, dead)[-1][0] == "delivery_died"
            keeping = Keeping(desk.board, desk.payloads, desk.store, desk.bulk, keep_of(settings))
            aged(database, 1)
            assert (await keeping.run()).payloads == 0
            aged(database, 2)
            assert (await keeping.run()).payloads == 1
            assert set(await desk.payloads.get([accepted, dead])) == {dead}
            aged(database, 70)
            assert (await keeping.run()).payloads == 1


@in_loop
async def test_what_is_planned_again_after_its_stream_was_sealed_stays_as_it_is(database: Any) -> None:
    """As an answer after a crash, or the notice of a day whose first one was revoked: nothing beside it gets on."""
    with serving(Receiver()) as receiver:
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}) as desk:
            first, second = wanted(), wanted()
            (revoked,) = await desk.planner.plan([first])
            assert await Notes(desk.store, lambda: datetime.now(UTC), ulid_now).cancel([revoked], "revoked", SERVER)
            assert (await Keeping(desk.board, desk.payloads, desk.store, desk.bulk).run()).sealed == 1
            ids = await desk.planner.plan([first, second])
            assert ids[0] == revoked
            await desk.drain()
            assert states(database) == {revoked: "cancelled", ids[1]: "accepted"}
