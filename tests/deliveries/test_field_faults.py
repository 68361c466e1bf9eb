"""What went wrong elsewhere, over real sockets: B68 delivered twice, B70 one message that can never be delivered."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from delivery_desk import BRISK, Receiver, desk_of, logged, settled, states, wanted, webhook
from job_steps import running
from minutebook.commands.channels.ports import Receipt
from minutebook.commands.deliveries.kind import folded, rows_of
from minutebook.commands.deliveries.noting import Notes
from minutebook.commands.deliveries.planning import Said, Wanted
from minutebook.commands.ports import Append
from minutebook.domain.channels.messages import Address, Place
from minutebook.domain.channels.pieces import utf16_units
from minutebook.domain.decisions import Decision
from minutebook.domain.deliveries.decide import Sent, claim, settle
from minutebook.domain.deliveries.operate import replay
from minutebook.domain.deliveries.retry import MAX_SENDS, Policy
from minutebook.domain.deliveries.state import evolve
from minutebook.domain.events import Recorded
from minutebook.domain.principals import SERVER
from minutebook.infra.channels.telegram import TelegramChannel
from minutebook.infra.settings_channels import ChannelSettings
from msgspec.structs import replace
from outside import Outside, Reply, Request, now, serving
from ulid_transform import ulid_now

TALK = "conv" * 6 + "aa"
LONG = "<b>half open <a href='x' & 😀e\u0301 " * 640
BLOCKED, FUSSY = 13, 8


class BotApi(Outside):
    """Telegram as strict as it is: 4096 units after formatting, no unknown markup; one chat has blocked the bot."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.said: dict[int, list[str]] = defaultdict(list)
        self.calls: Counter[int] = Counter()
        self.refuses = ""

    def _take(self, request: Request) -> Reply:
        chat, text = request.json["chat_id"], request.json["text"]
        self.calls[chat] += 1
        shown = html.unescape(text)
        is_bad = re.search(r"<|&(?!lt;|gt;|amp;)", text) or sum(map(utf16_units, shown)) > 4096
        if is_bad or (self.refuses and self.refuses in shown):
            return Reply(400, b'{"ok":false,"error_code":400,"description":"Bad Request"}')
        if chat == BLOCKED:
            return Reply(403, b'{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}')
        self.said[chat].append(shown)
        return Reply(200, b'{"ok":true,"result":{"message_id":42}}')


def telegram(url: str) -> TelegramChannel:
    settings = ChannelSettings(kind="telegram", tenant="acme", token="77:t", base_url=url, allow_loopback=True)
    return TelegramChannel("tg", settings, now)


def to(chat: int, text: str) -> Wanted:
    return replace(wanted("tg", text=text, conversation=TALK), address=Address("tg", str(chat), Place(str(chat))))


def test_b70_what_can_never_be_delivered_blocks_nobody(database: Any) -> None:
    async def scenario() -> None:
        with serving(BotApi()) as api:
            async with desk_of(database.url(), {"tg": telegram(api.url)}) as desk:
                texts = [LONG if n == 3 else f"message {n}" for n in range(1, 11)]
                messages = [to(BLOCKED if n == 5 else 7, text) for n, text in enumerate(texts, 1)]
                ids = await desk.planner.plan([*messages, to(BLOCKED, "and later"), to(9, "somebody else")])
                async with running(desk.engine(database.url())):
                    ended = await settled(database, len(ids))
                lost = {ids[4], ids[10]}
                assert {each for each in ids if ended[each] == "dead"} == lost
                assert {ended[each] for each in ids if each not in lost} == {"accepted"}
                assert logged(database, ids[4])[-1][1]["reason"] == "http_403"
                assert api.calls[BLOCKED] == 2, "each once: a refusal for good is not tried again"
                pieces = [text for text in api.said[7] if not text.startswith("message")]
                assert len(pieces) > 4
                assert "".join(pieces).split() == LONG.split()
                assert [text for text in api.said[7] if text.startswith("message")] == [
                    f"message {n}" for n in range(1, 11) if n not in (3, 5)
                ]
                assert api.said[9] == ["somebody else"]

    asyncio.run(scenario())


def test_b70_a_part_that_arrived_is_not_sent_again_by_a_replay(database: Any) -> None:
    async def scenario() -> None:
        with serving(BotApi()) as api:
            async with desk_of(database.url(), {"tg": telegram(api.url)}) as desk:
                api.refuses = "the middle"
                parts = tuple(Said("reply", text) for text in ("the begin", "the middle", "the end"))
                whole = replace(to(FUSSY, ""), parts=parts)
                (delivery_id,) = await desk.planner.plan([whole])
                await desk.drain()
                assert (states(database)[delivery_id], api.said[FUSSY]) == ("dead", ["the begin"])
                api.refuses = ""
                stream = f"delivery:{delivery_id}"
                head = await desk.store.head(stream)
                assert head is not None
                state = folded(await desk.store.read_for_fold(head.id, 0, 100))
                again = rows_of(replay(state, now(), BRISK, SERVER), ulid_now).rows
                await desk.store.append([Append(stream, head.version, again)])
                await desk.drain()
                assert states(database)[delivery_id] == "accepted"
                assert api.said[FUSSY] == ["the begin", "the middle", "the end"]

    asyncio.run(scenario())


class Ordered(Receiver):
    """Keeps what it took in the order in which each came first."""

    @property
    def order(self) -> list[str]:
        return [self.texts[key] for key in self.took]


def takes_and_is_silent(_request: Request, honest: Callable[[], Reply]) -> Reply:
    """Have the effect, and answer when nobody listens any more."""
    reply = honest()
    threading.Event().wait(1)
    return reply


def test_b68_a_slow_receiver_gets_each_message_under_one_key_and_in_order(database: Any) -> None:
    """Two workers, five receivers, one of which takes a message and answers after the attempt is over."""

    async def scenario() -> None:
        with contextlib.ExitStack() as stack:
            receivers = [stack.enter_context(serving(Ordered())) for _ in range(5)]
            channels = {f"hook{n}": webhook(f"hook{n}", each.url) for n, each in enumerate(receivers)}
            policy = Policy(first_s=0.05, growth=1, timeout_s=0.5)
            async with (
                desk_of(database.url(), channels, policy=policy) as one,
                desk_of(database.url(), channels, policy=policy) as other,
            ):
                slow = receivers[0]
                slow.mischief = [takes_and_is_silent]
                ids = await one.planner.plan(
                    [wanted(name, text=str(n), conversation=TALK) for n in range(20) for name in channels]
                )
                async with running(one.engine(database.url())), running(other.engine(database.url())):
                    ended = await settled(database, len(ids))
                assert set(ended.values()) == {"accepted"}
                for each in receivers:
                    assert each.order == [str(n) for n in range(20)]
                    again = {key: times for key, times in each.took.items() if times > 1}
                    assert again == ({f"{ids[0]}.1": 2} if each is slow else {})

    asyncio.run(scenario())


def test_a_delivery_that_was_tried_often_still_comes_to_its_end(database: Any) -> None:
    """However long its stream is by the bound of sends: all of it is read."""

    async def scenario(stack: contextlib.ExitStack) -> None:
        policy = Policy(attempts=MAX_SENDS, first_s=0, growth=1)
        receiver = stack.enter_context(serving(Receiver()))
        async with desk_of(database.url(), {"hook": webhook("hook", receiver.url)}, policy=policy) as desk:
            (delivery_id,) = await desk.planner.plan([wanted()])
            stream, moment = f"delivery:{delivery_id}", datetime.now(UTC)
            head = await desk.store.head(stream)
            assert head is not None
            state = folded(await desk.store.read_for_fold(head.id, 0, 10))
            at = head.version
            for _ in range(4):
                events: list[Any] = []
                for _ in range((MAX_SENDS - 4) // 4):
                    for decision in (
                        lambda state: claim(state, moment, policy, 0),
                        lambda state: settle(state, state.attempts, Sent("retry", "http_503"), moment, policy, 0),
                    ):
                        for new in decision(state).events:
                            events.append(new)
                            state = evolve(state, Recorded(0, SERVER, None, None, new.event))
                rows = rows_of(Decision(tuple(events)), ulid_now).rows
                (outcome,) = await desk.store.append([Append(stream, at, rows)])
                assert outcome.kind == "appended"
                at += len(rows)
            await desk.drain()
            assert states(database)[delivery_id] == "accepted"
            key = f"{delivery_id}.1"
            assert await Notes(desk.store, lambda: datetime.now(UTC), ulid_now).receipts(
                "hook", [Receipt(key, "delivered")]
            ) == 1  # fmt: skip

    with contextlib.ExitStack() as stack:
        asyncio.run(scenario(stack))
