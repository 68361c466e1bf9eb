"""Links on a real database as the app role: one account an identity, whatever happens at once; no names at rest."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from in_loop import in_loop
from link_office import office
from minutebook.commands.deliveries.kind import rows_of
from minutebook.commands.ports import Append, Creation
from minutebook.domain.decisions import Decision, NewEvent
from minutebook.domain.errors import Conflict, MinutebookError, NotVisible
from minutebook.domain.linking.codes import MAX_WRONG
from minutebook.domain.linking.decide import End
from minutebook.domain.linking.events import LinkConfirmed
from minutebook.domain.principals import SERVER
from minutebook.domain.times import stamp
from ulid_transform import ulid_now

CANARY = "canary-4711"


@in_loop
async def test_a_chat_is_linked_muted_and_unlinked(database: Any) -> None:
    async with office(database) as made:
        before = await made.chat(CANARY)
        link_id = await made.link("ada", CANARY)
        chat, page = await made.chat(CANARY), await made.web("ada")
        assert chat.account == page.account != before.account
        await made.linking.change_push(chat, link_id, "off", SERVER)
        (link,) = await made.linking.links(page)
        assert (link.link_id, link.push, link.end) == (link_id, "off", chat.linked)
        await made.linking.unlink(chat, link_id, SERVER)
        assert await made.chat(CANARY) == before
        assert await made.linking.links(page) == ()
    with database.connect("auditor") as auditor:
        types = auditor.execute("SELECT e.type FROM minutebook.events e ORDER BY e.stream_id, e.seq").fetchall()
        assert [each for (each,) in types] == [
            *("link_begun", "link_presented", "link_confirmed", "push_changed", "unlinked")
        ]
        assert auditor.execute("SELECT count(*) FROM minutebook.link_challenges").fetchone() == (0,)


@in_loop
async def test_a_chat_begins_and_a_page_presents(database: Any) -> None:
    async with office(database) as made:
        chat, page = await made.chat("1"), await made.web("ada")
        begun = await made.linking.begin(chat, SERVER)
        shown = await made.linking.present(page, begun.code.lower(), SERVER)
        await made.linking.confirm(chat, shown.link_id, shown.consent_digest, "all", SERVER)
        assert (await made.chat("1")).account == page.account
        assert [each.end for each in await made.linking.links(page)] == [chat.linked]
        with pytest.raises(NotVisible):
            await made.linking.confirm(chat, shown.link_id, shown.consent_digest, "all", SERVER)


@in_loop
async def test_no_code_and_no_native_id_is_at_rest(database: Any) -> None:
    async with office(database) as made:
        begun = await made.linking.begin(await made.web(CANARY), SERVER)
        await made.linking.present(await made.chat(CANARY), begun.code, SERVER)
        await made.link("bob", CANARY + "2")
    with database.connect("postgres") as superuser:
        for table in ("events", "link_challenges", "linked_identities", "link_wrongs"):
            rows = superuser.execute(f"SELECT t::text FROM minutebook.{table} t").fetchall()
            assert rows, table
            assert not any(CANARY in row or begun.code in row for (row,) in rows)


@in_loop
async def test_an_identity_that_two_confirm_at_once_has_one_account(database: Any) -> None:
    async with office(database) as made:
        consents: list[tuple[End, str, str]] = []
        for who in ("ada", "bob", "cyd"):
            page = await made.web(who)
            begun = await made.linking.begin(page, SERVER)
            shown = await made.linking.present(await made.chat("1"), begun.code, SERVER)
            consents.append((page, shown.link_id, shown.consent_digest))
        outcomes = await asyncio.gather(
            *(made.linking.confirm(page, link, digest, "all", SERVER) for page, link, digest in consents),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in outcomes) == ["Answer", "NotVisible", "NotVisible"]
        linked = [page.account for page, _, _ in consents if await made.linking.links(page)]
        assert linked == [(await made.chat("1")).account]


@in_loop
async def test_the_database_refuses_a_second_account_whoever_was_asked(database: Any) -> None:
    """The guard itself, behind a command that knows nothing of the first link."""
    async with office(database) as made:
        link_id = await made.link("ada", "1")
        chat, page = await made.chat("1"), await made.web("bob")
        made_up = LinkConfirmed(link_id, "acme", page.account, "telegram", chat.native, "all", stamp(made.now()))
        rows = rows_of(Decision((NewEvent(made_up, SERVER),)), ulid_now).rows
        with pytest.raises(Conflict):
            await made.appender.append(
                [Append(f"account:{page.account}", 0, rows, create=Creation("account", "acme", 1))]
            )
        assert await made.linking.links(page) == ()
        assert await made.chat("1") == chat


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE minutebook.linked_identities SET holder = NULL",
        "DELETE FROM minutebook.linked_identities",
        "DELETE FROM minutebook.link_challenges",
        "SELECT minutebook.note_account()",
    ],
)
def test_the_app_role_makes_no_link_by_hand(database: Any, statement: str) -> None:
    with database.connect("app") as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute(statement)


@in_loop
async def test_an_end_that_left_goes_elsewhere_after_its_week(database: Any) -> None:
    async with office(database) as made:
        link_id = await made.link("ada", "1")
        await made.linking.unlink(await made.web("ada"), link_id, SERVER)
        with pytest.raises(NotVisible):
            await made.link("bob", "1")
        again = await made.link("ada", "1")
        await made.linking.unlink(await made.web("ada"), again, SERVER)
        with database.connect("postgres") as superuser:
            superuser.execute("UPDATE minutebook.linked_identities SET free_at = free_at - interval '7 days'")
        await made.link("bob", "1")


@in_loop
async def test_tries_at_once_are_as_few_as_one_after_another(database: Any) -> None:
    async with office(database) as made:
        end = (await made.chat("thief")).linked
        taken = await asyncio.gather(*(made.table.take_try("acme", end) for _ in range(6 * MAX_WRONG)))
        assert sum(taken) == MAX_WRONG
        assert await made.table.take_try("umbrella", end), "another tenant's end is another end"


@in_loop
async def test_wrong_codes_make_an_end_wait_an_hour(database: Any) -> None:
    async with office(database) as made:
        page = await made.web("ada")
        begun = await made.linking.begin(page, SERVER)
        thief = await made.chat("thief")

        async def guess(n: int) -> type[BaseException]:
            with pytest.raises(MinutebookError) as refused:
                await made.linking.present(thief, f"WRNG{n:04}", SERVER)
            return refused.type

        assert set(await asyncio.gather(*map(guess, range(4 * MAX_WRONG)))) == {NotVisible}
        with pytest.raises(NotVisible):
            await made.linking.present(thief, begun.code, SERVER)
        made.ahead = timedelta(hours=1, minutes=1)
        later = await made.linking.begin(page, SERVER)
        await made.linking.present(thief, later.code, SERVER)


@in_loop
async def test_a_code_that_works_clears_no_failures(database: Any) -> None:
    async with office(database) as made:
        thief = await made.chat("thief")
        for _ in range(MAX_WRONG - 1):
            with pytest.raises(NotVisible):
                await made.linking.present(thief, "WRNG0000", SERVER)
        own = await made.linking.begin(await made.web("thief"), SERVER)
        await made.linking.present(thief, own.code, SERVER)
        with pytest.raises(NotVisible):
            await made.linking.present(thief, "WRNG0001", SERVER)
        victim = await made.linking.begin(await made.web("ada"), SERVER)
        with pytest.raises(NotVisible):
            await made.linking.present(thief, victim.code, SERVER)


@in_loop
async def test_a_code_is_of_one_tenant_and_void_where_a_group_reads_it(database: Any) -> None:
    async with office(database) as made:
        begun = await made.linking.begin(await made.web("ada"), SERVER)
        with pytest.raises(NotVisible):
            await made.linking.present(await made.chat("1", "umbrella"), begun.code, SERVER)
        await made.linking.seen_in_group("umbrella", begun.code, SERVER)
        await made.linking.seen_in_group("acme", begun.code, SERVER)
        with pytest.raises(NotVisible):
            await made.linking.present(await made.chat("1"), begun.code, SERVER)
        other = await made.linking.begin(await made.web("ada"), SERVER)
        with pytest.raises(NotVisible):
            await made.linking.present(await made.chat("1"), other.code, SERVER, is_group=True)
        with pytest.raises(NotVisible):
            await made.linking.present(await made.chat("1"), other.code, SERVER)
