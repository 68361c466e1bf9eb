"""Ends that have spoken, on a real database: whose they are, what may be sent to them, and when they are forgotten."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from in_loop import in_loop
from link_office import Office, office
from minutebook.commands.channels.ends import TOKEN_CHANNEL, EndsForgotten
from minutebook.commands.linking.keeping import forget_ends
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.linking.decide import End
from minutebook.domain.linking.display import MAX_DISPLAY_CHARS, displayed
from minutebook.domain.principals import SERVER, Principal

CANARY = "canary-4711"


async def speak(made: Office, end: End, native_id: str, *, is_message: bool = True) -> None:
    """The end says something in its private chat."""
    place = Place(f"chat-{native_id}", "7") if end.channel != TOKEN_CHANNEL else Place("")
    await made.ends.note(
        end.tenant,
        end.linked,
        made.linking.own_key(end.tenant, end.channel, native_id),
        Address(end.channel, native_id, place),
        f"The {native_id}",
        is_message=is_message,
    )


def aged(database: Any, table: str, days: int) -> None:
    with database.connect("postgres") as superuser:
        columns = {"ends": ("seen_at", "spoke_at"), "linked_identities": ("updated_at", "free_at")}
        moved = ", ".join(f"{each} = {each} - interval '{days} days'" for each in columns[table])
        superuser.execute(f"UPDATE minutebook.{table} SET {moved}")


@in_loop
async def test_an_account_has_its_own_end_and_what_is_linked_to_it(database: Any) -> None:
    async with office(database) as made:
        chat, page = await made.chat("1"), await made.web("ada")
        await speak(made, chat, "1")
        await speak(made, page, "human:ada", is_message=False)
        (alone,) = await made.ends.of_account("acme", chat.account)
        assert (alone.end, alone.account, alone.push, alone.link_id) == (chat.linked, chat.account, "replies", "")
        assert (alone.address, alone.display) == (Address("telegram", "1", Place("chat-1", "7")), "The 1")
        link_id = await made.link("ada", "1")
        assert await made.ends.of_account("acme", chat.account) == []
        linked, own = await made.ends.of_account("acme", page.account)
        assert (linked.end, linked.account, linked.push, linked.link_id) == (
            *(chat.linked, page.account, "replies", link_id),
        )
        assert (own.end, own.is_active, linked.is_active) == (page.linked, False, True)
        await made.linking.change_push(page, link_id, "off", SERVER)
        assert (await made.ends.of_account("acme", page.account))[0].push == "off"
        assert await made.ends.one("acme", chat.linked) == (await made.ends.of_account("acme", page.account))[0]
        await made.linking.unlink(page, link_id, SERVER)
        assert [each.end for each in await made.ends.of_account("acme", page.account)] == [page.linked]
        again = await made.ends.one("acme", chat.linked)
        assert again is not None
        assert (again.account, again.push, again.link_id) == (chat.account, "replies", "")


@in_loop
async def test_the_end_that_spoke_last_is_first_and_active_for_a_month(database: Any) -> None:
    async with office(database) as made:
        page = await made.web("ada")
        for native in ("1", "2"):
            await speak(made, await made.chat(native), native)
            await made.link("ada", native)
        await speak(made, await made.chat("1"), "1")
        found = await made.ends.of_account("acme", page.account)
        assert [each.address.native_id for each in found] == ["1", "2"]
        aged(database, "ends", 31)
        assert [each.is_active for each in await made.ends.of_account("acme", page.account)] == [False, False]


@in_loop
async def test_an_own_end_is_muted_and_a_linked_one_has_its_push(database: Any) -> None:
    async with office(database) as made:
        chat = await made.chat("1")
        assert not await made.ends.mute("acme", chat.linked, is_muted=True)
        await speak(made, chat, "1")
        assert await made.ends.mute("acme", chat.linked, is_muted=True)
        await speak(made, chat, "1")
        (muted,) = await made.ends.of_account("acme", chat.account)
        assert muted.push == "off"
        await made.link("ada", "1")
        linked = await made.ends.one("acme", chat.linked)
        assert linked is not None
        assert linked.push == "replies"


@in_loop
async def test_an_account_speaks_as_its_person_else_as_a_guest(database: Any) -> None:
    async with office(database) as made:
        chat, page = await made.chat("1"), await made.web("ada")
        assert await made.ends.principal_of("acme", page.account) == Principal("guest", page.account)
        await speak(made, page, "human:ada", is_message=False)
        await speak(made, chat, "1")
        assert await made.ends.principal_of("acme", page.account) == Principal("human", "ada")
        assert await made.ends.principal_of("acme", chat.account) == Principal("guest", chat.account)
        assert await made.ends.principal_of("umbrella", page.account) == Principal("guest", page.account)


@in_loop
async def test_another_tenants_ends_are_nobodys(database: Any) -> None:
    async with office(database) as made:
        chat = await made.chat("1")
        await speak(made, chat, "1")
        assert await made.ends.of_account("umbrella", chat.account) == []
        assert await made.ends.one("umbrella", chat.linked) is None


@in_loop
async def test_what_is_over_is_forgotten_and_what_is_linked_stays(database: Any) -> None:
    async with office(database) as made:
        for native in ("stays", "left", "alone"):
            await speak(made, await made.chat(native), native)
        await speak(made, await made.web("ada"), "human:ada", is_message=False)
        await made.link("ada", "stays")
        gone = await made.link("bob", "left")
        await made.linking.unlink(await made.web("bob"), gone, SERVER)
        await made.table.take_try("acme", (await made.chat("thief")).linked)
        await made.linking.begin(await made.web("cyd"), SERVER)
        assert await forget_ends(made.ends) == EndsForgotten()
        aged(database, "ends", 31)
        aged(database, "linked_identities", 31)
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.link_wrongs SET until = until - interval '2 hours'")
            superuser.execute("UPDATE minutebook.link_challenges SET expires_at = expires_at - interval '2 days'")
        assert await forget_ends(made.ends) == EndsForgotten(2, 1, 3, 1)
        assert await forget_ends(made.ends) == EndsForgotten()
        page = await made.web("ada")
        assert len(await made.ends.of_account("acme", page.account)) == 2
        assert await made.ends.principal_of("acme", page.account) == Principal("human", "ada")
        await made.linking.begin(await made.web("cyd"), SERVER)


@pytest.mark.parametrize("statement", ["DELETE FROM minutebook.ends", "TRUNCATE minutebook.ends"])
def test_the_app_role_takes_no_end_by_hand(database: Any, statement: str) -> None:
    with database.connect("app") as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute(statement)


@in_loop
async def test_an_auditor_sees_no_native_id(database: Any) -> None:
    async with office(database) as made:
        await speak(made, await made.chat(CANARY), CANARY)
    with database.connect("auditor") as auditor:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            auditor.execute("SELECT native_id FROM minutebook.ends")
        auditor.rollback()
        assert auditor.execute("SELECT count(native) FROM minutebook.ends").fetchone() == (1,)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Ada  Lovelace", "Ada Lovelace"),
        ("\u202eada\u200b\n\tb", "ada b"),
        ("\x00", ""),
        ("x" * 500, "x" * MAX_DISPLAY_CHARS),
        ("a\ud800b", "ab"),
    ],
)
def test_what_an_end_is_shown_as_is_one_short_line(said: str, shown: str) -> None:
    assert displayed(said) == shown
