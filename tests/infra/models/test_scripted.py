"""The scripted provider: what http.md says of the agent `echo`, word for word."""

from __future__ import annotations

import asyncio

import pytest
from conversation_scenes import RING
from in_loop import in_loop
from minutebook.commands.conversations.ports import (
    CallDelta,
    Message,
    ModelError,
    ModelPart,
    ModelRequest,
    TextDelta,
    Usage,
)
from minutebook.domain.conversations.counting import HeuristicCounter
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.prompt import Asked, Told, assemble
from minutebook.domain.conversations.summarizing import Covered, summary_request
from minutebook.domain.conversations.turn_events import WantedCall
from minutebook.infra.models.scripted import ScriptedProvider


def asked(*messages: Message | str) -> ModelRequest:
    """A request of these messages; a text is the user's."""
    return ModelRequest(
        system="",
        messages=tuple(each if isinstance(each, Message) else Message("user", each) for each in messages),
        tools=(),
        max_output_tokens=100,
    )


async def parts(request: ModelRequest) -> list[ModelPart]:
    """The whole answer."""
    return [part async for part in ScriptedProvider().stream(request)]


def texts(found: list[ModelPart]) -> list[str]:
    return [part.text for part in found if isinstance(part, TextDelta)]


@in_loop
async def test_the_words_come_back_one_delta_a_word() -> None:
    found = await parts(asked("hello there, you"))
    assert texts(found) == ["echo: ", "hello ", "there, ", "you"]
    assert found[-1] == Usage(input=3, output=4)


LOOK_ALIKES = ["!slow", "!slow 2", "!slow 999999 1", "!slow 2 99999", "!fail", "!fail 600", "!failed 500", "!tool",
               "!tool x", "!tool x [1]", "!tool x {", "!tool x {" + '"a":{' * 5000, "!hangar", "say !hang"]  # fmt: skip


@pytest.mark.parametrize("text", ["a\n\n b  ", "ñ 漢字 e\u0301", *LOOK_ALIKES], ids=lambda text: text[:20])
@in_loop
async def test_anything_else_is_echoed_to_the_character(text: str) -> None:
    assert "".join(texts(await parts(asked(text)))) == f"echo: {text}"


@in_loop
async def test_the_words_are_found_behind_the_fence_of_a_prompt() -> None:
    for text in ("hello\nyou", "!slow 2 1", "=== 0123456789abcdef01234567 ===\nx"):
        prompt = assemble(RING, "c", "Be brief.", None, (), Asked(Identity("human:ann"), text))
        request = ModelRequest(prompt.system, prompt.messages, (), 100)
        assert texts(await parts(request)) == texts(await parts(asked(text)))


@in_loop
async def test_the_script_of_a_question_is_not_followed_when_it_is_summed_up() -> None:
    for text in ("!hang", "!fail 500", "!slow 9 60000", "!tool a {}"):
        gone = Covered(1, Told(1, Asked(Identity("human:ann"), text), "completed", "so"))
        request = summary_request(RING, "c", "", None, (gone,), 10_000, HeuristicCounter()).prompt
        found = texts(await parts(ModelRequest(request.system, request.messages, (), 100)))
        assert found[0].startswith("echo: ")


@in_loop
async def test_only_the_last_words_of_the_user_count() -> None:
    request = asked("!fail 500", Message("assistant", "so be it"), "again")
    assert "".join(texts(await parts(request))) == "echo: again"


@in_loop
async def test_slow_numbers_its_words() -> None:
    assert texts(await parts(asked("!slow 3 1"))) == ["w1 ", "w2 ", "w3"]
    assert texts(await parts(asked("!slow 0 1"))) == []


@in_loop
async def test_slow_keeps_its_pace() -> None:
    began = asyncio.get_running_loop().time()
    await parts(asked("!slow 3 40"))
    assert asyncio.get_running_loop().time() - began >= 0.08


@pytest.mark.parametrize("status", [400, 429, 503])
@in_loop
async def test_fail_has_the_status(status: int) -> None:
    with pytest.raises(ModelError) as caught:
        await parts(asked(f"!fail {status}"))
    assert caught.value.status == status


@in_loop
async def test_a_tool_is_called_and_its_result_is_the_answer() -> None:
    said = '!tool vault {"name": "x", "deep": {"a": [1]}}'
    found = await parts(asked(said))
    call = WantedCall("call-1", "vault", {"name": "x", "deep": {"a": [1]}})
    assert found[:-1] == [CallDelta(call)]
    request = asked(said, Message("assistant", "", calls=(call,)), Message("tool", "two words", call_id="call-1"))
    assert texts(await parts(request)) == ["two ", "words"]


@in_loop
async def test_ids_of_calls_differ_in_a_turn() -> None:
    earlier = WantedCall("call-1", "vault", {})
    messages = (Message("assistant", "", calls=(earlier,)), Message("tool", "x", call_id="call-1"))
    found = await parts(asked("!tool a {}", *messages, Message("assistant", "x"), "!tool b {}"))
    assert found[0] == CallDelta(WantedCall("call-2", "b", {}))


@in_loop
async def test_hang_never_ends_but_can_be_cancelled() -> None:
    hanging = asyncio.create_task(parts(asked("!hang")))
    done, _ = await asyncio.wait({hanging}, timeout=0.05)
    assert not done
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


@in_loop
async def test_the_same_request_gets_the_same_answer() -> None:
    assert await parts(asked("one two")) == await parts(asked("one two"))
