"""The times of `[linking]` reach the events and rows that count, on a real database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from in_loop import in_loop
from link_office import Office, office
from minutebook.commands.channels.ends import EndsForgotten
from minutebook.commands.linking.keeping import forget_ends
from minutebook.commands.signals import SILENCE
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.errors import NotVisible
from minutebook.domain.principals import SERVER
from minutebook.http.link_ends import ends_of
from minutebook.http.link_services import linking_of
from minutebook.infra.postgres.store import PostgresStore
from minutebook.infra.settings_load import load

TIMES = "[linking]\nchallengeTtl = '2m'\nactiveTtl = '3d'\ntombstoneTtl = '5d'\nrelinkWait = '2d'\n"


def under(made: Office, folder: Path, toml: str) -> Office:
    """The office with what a server would make of these settings."""
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    settings = load(folder, {})
    store = PostgresStore(made.pool, made.appender)
    made.linking = linking_of(settings, made.pool, store, b"k" * 32, SILENCE)
    made.ends = ends_of(settings, made.pool)
    return made


def moved(database: Any, table: str, column: str, days: float) -> None:
    with database.connect("postgres") as superuser:
        superuser.execute(f"UPDATE minutebook.{table} SET {column} = {column} - make_interval(secs => {days * 86_400})")


@in_loop
async def test_a_challenge_lasts_for_challenge_ttl(database: Any, tmp_path: Path) -> None:
    async with office(database) as plain:
        made = under(plain, tmp_path, TIMES)
        begun = await made.linking.begin(await made.web("ada"), SERVER)
        left = datetime.fromisoformat(begun.expires_at) - datetime.now(UTC)
        assert timedelta(seconds=110) < left <= timedelta(minutes=2)


@in_loop
async def test_an_unlinked_end_waits_for_relink_wait_and_is_known_for_tombstone_ttl(
    database: Any, tmp_path: Path
) -> None:
    async with office(database) as plain:
        made = under(plain, tmp_path, TIMES)
        await made.linking.unlink(await made.web("ada"), await made.link("ada", "7"), SERVER)
        with pytest.raises(NotVisible):
            await made.link("bob", "7")
        with database.connect("postgres") as superuser:
            found = "SELECT extract(epoch FROM i.free_at - i.updated_at) / 86400 FROM minutebook.linked_identities i"
            assert round(superuser.execute(found).fetchone()[0], 3) == 2
        moved(database, "linked_identities", "free_at", 4)
        moved(database, "linked_identities", "updated_at", 4)
        assert (await forget_ends(made.ends)).tombstones == 0
        moved(database, "linked_identities", "updated_at", 1.1)
        assert (await forget_ends(made.ends)).tombstones == 1


@in_loop
async def test_the_active_end_is_active_for_active_ttl_and_forgotten_then(database: Any, tmp_path: Path) -> None:
    async with office(database) as plain:
        made = under(plain, tmp_path, TIMES)
        chat = await made.chat("7")
        own = made.linking.own_key("acme", "telegram", "7")
        await made.ends.note("acme", chat.linked, own, Address("telegram", "7", Place("7")), "Seven")
        for days, is_active in ((2.9, True), (0.2, False)):
            moved(database, "ends", "spoke_at", days)
            (known,) = await made.ends.of_account("acme", chat.account)
            assert known.is_active is is_active
        assert await forget_ends(made.ends) == EndsForgotten()
        moved(database, "ends", "seen_at", 3.1)
        assert await forget_ends(made.ends) == EndsForgotten(1)


@in_loop
async def test_nobody_forgets_within_a_day(database: Any, tmp_path: Path) -> None:
    async with office(database) as made:
        chat = await made.chat("7")
        await made.ends.note("acme", chat.linked, chat.account, Address("telegram", "7", Place("7")), "Seven")
        with database.connect("app") as app:
            assert app.execute("SELECT f.ends FROM minutebook.forget_ends_v2(10, 0, 0) f").fetchone() == (0,)


@in_loop
async def test_the_policy_of_the_settings_is_the_one_that_links_are_judged_by(database: Any, tmp_path: Path) -> None:
    async with office(database) as plain:
        made = under(plain, tmp_path, "[linking]\npolicy = 'deny_all'\n")
        with pytest.raises(NotVisible):
            await made.link("ada", "7")
        await under(plain, tmp_path, "").link("ada", "7")
