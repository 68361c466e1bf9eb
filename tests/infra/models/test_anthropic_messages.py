"""What only the messages of Anthropic do: roles that alternate, blocks, calls from fragments, usage."""

from __future__ import annotations

from in_loop import in_loop
from minutebook.commands.conversations.ports import (
    CallDelta,
    Message,
    ModelPart,
    ModelRequest,
    TextDelta,
    ToolSpec,
    Usage,
)
from minutebook.domain.conversations.turn_events import WantedCall
from minutebook.infra.models.anthropic_messages import AnthropicMessages
from minutebook.infra.models.calling import Pace
from minutebook.infra.models.wellformed import UNREADABLE
from model_service import (
    Reply,
    anthropic_block,
    anthropic_end,
    anthropic_event,
    anthropic_start,
    anthropic_text,
    model_service,
)

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
REQUEST = ModelRequest("Be brief.", (Message("user", "hello"),), (ToolSpec("vault", "Looks up.", SCHEMA),), 100)


async def no_wait(_: float) -> None:
    """A pause that is none."""


async def answer(url: str, request: ModelRequest = REQUEST) -> list[ModelPart]:
    provider = AnthropicMessages("m", url, "k", 5, Pace(no_wait))
    try:
        return [part async for part in provider.stream(request)]
    finally:
        await provider.close()


async def answered(*chunks: bytes) -> list[ModelPart]:
    async with model_service(Reply(chunks)) as running:
        return await answer(running.url)


def json_delta(text: str) -> dict[str, str]:
    return {"type": "input_json_delta", "partial_json": text}


@in_loop
async def test_results_of_tools_are_one_message_of_the_user_and_roles_alternate() -> None:
    calls = (WantedCall("c1", "vault", {"name": "é"}), WantedCall("c2", "vault", {}))
    messages = (
        Message("user", "one"),
        Message("assistant", "", calls=calls),
        Message("tool", "found", call_id="c1"),
        Message("tool", "", call_id="c2"),
        Message("user", "and?"),
        Message("assistant", "so", calls=(WantedCall("c3", "vault", {}),)),
        Message("tool", "x", call_id="c3"),
    )
    async with model_service(Reply(anthropic_text("ok"))) as running:
        await answer(running.url, ModelRequest("Be brief.", messages, REQUEST.tools, 100))
    body = running.asked[0].body
    assert (body["system"], body["max_tokens"]) == ("Be brief.", 100)
    assert body["tools"] == [{"name": "vault", "description": "Looks up.", "input_schema": SCHEMA}]
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "one"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "c1", "name": "vault", "input": {"name": "é"}},
                {"type": "tool_use", "id": "c2", "name": "vault", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "found"},
                {"type": "tool_result", "tool_use_id": "c2"},
                {"type": "text", "text": "and?"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "so"},
                {"type": "tool_use", "id": "c3", "name": "vault", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c3", "content": "x"}]},
    ]


@in_loop
async def test_without_system_words_and_tools_the_request_has_neither() -> None:
    async with model_service(Reply(anthropic_text("ok"))) as running:
        await answer(running.url, ModelRequest("", (Message("user", "one"),), (), 100))
    assert not {"system", "tools"} & running.asked[0].body.keys()


@in_loop
async def test_calls_are_put_together_from_fragments_and_thoughts_are_passed_over() -> None:
    parts = await answered(
        anthropic_start(),
        *anthropic_block({"type": "thinking_delta", "thinking": "hm"}, type="thinking", thinking="", signature=""),
        *anthropic_block({"type": "text_delta", "text": "Wait. "}, index=1),
        *anthropic_block(
            *(json_delta(text) for text in ("", '{"name": "\\ud83d', '\\ude00"}')),
            index=2, type="tool_use", id="c1", name="vault", input={},
        ),
        *anthropic_block(index=3, type="tool_use", id="c2", name="files", input={}),
        *anthropic_block(index=4, type="tool_use", id="c3", name="files", input={"at": "once"}),
        *anthropic_block(json_delta("{"), index=5, type="tool_use", id="c4", name="files", input={}),
        *anthropic_end(9),
    )  # fmt: skip
    assert parts == [
        TextDelta("Wait. "),
        CallDelta(WantedCall("c1", "vault", {"name": "😀"})),
        CallDelta(WantedCall("c2", "files", {})),
        CallDelta(WantedCall("c3", "files", {"at": "once"})),
        CallDelta(WantedCall("c4", "files", {UNREADABLE: "{"})),
        Usage(7, 9),
    ]


@in_loop
async def test_events_that_nobody_knows_are_passed_over() -> None:
    parts = await answered(
        anthropic_start(), anthropic_event("novelty", a=1), *anthropic_text("ok")[2:], anthropic_event("novelty")
    )
    assert parts == [TextDelta("ok"), Usage(7, 3)]
