"""Both providers of services, against a real server that streams as those do: answers, faults, retries, secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from in_loop import in_loop
from minutebook.commands.conversations.ports import (
    Message,
    ModelError,
    ModelPart,
    ModelRequest,
    TextDelta,
    Usage,
)
from minutebook.infra.models import calling, service
from minutebook.infra.models.anthropic_messages import AnthropicMessages
from minutebook.infra.models.calling import MAX_RETRY_AFTER_S, MAX_TRIES, Pace
from minutebook.infra.models.openai_chat import OpenAiChat
from minutebook.infra.models.service import Failure
from model_service import (
    Reply,
    anthropic_block,
    anthropic_event,
    anthropic_start,
    anthropic_text,
    frame,
    model_service,
    openai_chunk,
    openai_text,
)

KEY = "sk-test-3f9c51d27be84a60"
WORDS = "who keeps the minutes of the fleet?"
HOST = "inner-host.example"
LEAK = f"key {KEY} at {HOST} refused: {WORDS}"

REQUEST = ModelRequest("Be brief.", (Message("user", WORDS),), (), 100)

Text = Callable[..., list[bytes]]


class Dialect:
    """One service: its provider, and how it says things."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_openai = name == "openai"
        self.text: Text = openai_text if self.is_openai else anthropic_text

    def provider(self, url: str, waits: list[float] | None = None, read_s: float = 5.0) -> Any:
        """A provider whose pauses are noted and not waited for."""
        noted: list[float] = [] if waits is None else waits

        async def wait(seconds: float) -> None:
            noted.append(seconds)

        pace = Pace(wait, lambda: 1.0)
        if self.is_openai:
            return OpenAiChat("m", f"{url}/v1", KEY, read_s, pace)
        return AnthropicMessages("m", url, KEY, read_s, pace)

    def some(self, *texts: str) -> list[bytes]:
        """The beginning of an answer of text, without its end."""
        if self.is_openai:
            return [openai_chunk({"content": text}) for text in texts]
        return [anthropic_start(), *anthropic_block(*({"type": "text_delta", "text": text} for text in texts))]

    def nothing(self) -> list[bytes]:
        """An answer that began and holds nothing yet."""
        return [openai_chunk({"role": "assistant", "content": ""})] if self.is_openai else [anthropic_start()]

    def error(self, code: str) -> bytes:
        """An error within an answer."""
        error = {"message": LEAK, "type": code}
        return frame({"error": error}) if self.is_openai else anthropic_event("error", error=error)

    def refusal(self, status: int, code: str = "some_error", **headers: str) -> Reply:
        """An answer that is an error."""
        body = frame({"error": {"message": LEAK, "type": code}}).removeprefix(b"data: ")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Reply([body], status, {"Content-Type": "application/json", **named})


@pytest.fixture(params=["openai", "anthropic"])
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return Dialect(request.param)


async def answer(provider: Any, request: ModelRequest = REQUEST) -> list[ModelPart]:
    """All parts; the provider is closed then."""
    try:
        return [part async for part in provider.stream(request)]
    finally:
        await provider.close()


async def failure(provider: Any) -> ModelError:
    """The error of an answer, which must hold nothing that a service said."""
    with pytest.raises(ModelError) as caught:
        await answer(provider)
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert not [secret for secret in (KEY, HOST, WORDS) if secret in str(error)]
    return error


async def collect(provider: Any, seen: list[ModelPart]) -> None:
    async for part in provider.stream(REQUEST):
        seen.append(part)  # noqa: PERF401 - what came before an error counts


def text_of(parts: Sequence[ModelPart]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


@in_loop
async def test_text_comes_as_it_is_streamed_and_usage_at_the_end(dialect: Dialect) -> None:
    async with model_service(Reply(dialect.text("Hel", "lo, ", "you"))) as running:
        parts = await answer(dialect.provider(running.url))
    assert parts == [TextDelta("Hel"), TextDelta("lo, "), TextDelta("you"), Usage(7, 3)]
    (asked,) = running.asked
    assert asked.path == ("/v1/chat/completions" if dialect.is_openai else "/v1/messages")
    assert (asked.body["model"], asked.body["stream"]) == ("m", True)
    assert asked.headers["authorization"] == f"Bearer {KEY}", asked.headers


@in_loop
async def test_the_first_part_comes_before_the_answer_is_whole(dialect: Dialect) -> None:
    async with model_service(Reply(dialect.some("first"), end="hang")) as running:
        provider = dialect.provider(running.url)
        async with aclosing(provider.stream(REQUEST)) as parts:
            assert await anext(parts) == TextDelta("first")
        # The iterator is closed, and with it the connection.
        await asyncio.wait_for(running.left.wait(), 5)
        await provider.close()


@in_loop
async def test_cancelling_closes_the_connection(dialect: Dialect) -> None:
    async with model_service(Reply(dialect.nothing(), end="hang")) as running:
        provider = dialect.provider(running.url)
        waiting = asyncio.create_task(anext(provider.stream(REQUEST)))
        await running.arrived.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(running.left.wait(), 5)
        await provider.close()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
@in_loop
async def test_what_passes_is_tried_again_with_growing_pauses(dialect: Dialect, status: int) -> None:
    waits: list[float] = []
    refused = dialect.refusal(status)
    async with model_service(refused, refused, Reply(dialect.text("ok"))) as running:
        assert text_of(await answer(dialect.provider(running.url, waits))) == "ok"
    assert waits == [0.5, 1.0]


@in_loop
async def test_there_is_an_end_to_trying(dialect: Dialect) -> None:
    waits: list[float] = []
    async with model_service(dialect.refusal(503)) as running:
        error = await failure(dialect.provider(running.url, waits))
        assert (len(running.asked), len(waits)) == (MAX_TRIES, MAX_TRIES - 1)
    assert error.status == 503
    assert "503" in str(error)


@pytest.mark.parametrize(
    ("header", "value", "pause"),
    [("retry_after", "3", 3.0), ("retry_after_ms", "2500", 2.5), ("retry_after", "3600", MAX_RETRY_AFTER_S),
     ("retry_after", "soon", 0.5), ("retry_after", "-5", 0.5)],
)  # fmt: skip
@in_loop
async def test_retry_after_is_honoured_up_to_a_bound(dialect: Dialect, header: str, value: str, pause: float) -> None:
    waits: list[float] = []
    async with model_service(dialect.refusal(429, **{header: value}), Reply(dialect.text("ok"))) as running:
        assert text_of(await answer(dialect.provider(running.url, waits))) == "ok"
    assert waits == [pause]


@pytest.mark.parametrize(("status", "code"), [(400, "invalid_request_error"), (401, "authentication_error"),
                                              (404, "model_not_found"), (429, "insufficient_quota")])  # fmt: skip
@in_loop
async def test_what_lasts_is_not_tried_again(dialect: Dialect, status: int, code: str) -> None:
    async with model_service(dialect.refusal(status, code)) as running:
        error = await failure(dialect.provider(running.url))
        assert len(running.asked) == 1
    assert error.status == status
    assert code in str(error)


@in_loop
async def test_a_server_that_is_not_there_is_tried_again_and_named_by_nobody(dialect: Dialect) -> None:
    async with model_service(Reply()) as running:
        url = running.url
    waits: list[float] = []
    error = await failure(dialect.provider(url, waits))
    assert (error.status, len(waits)) == (None, MAX_TRIES - 1)
    assert "127.0.0.1" not in str(error)


@in_loop
async def test_a_redirect_takes_the_key_nowhere(dialect: Dialect) -> None:
    async with model_service(Reply(dialect.text("stolen"))) as other:
        moved = Reply(status=307, headers={"Location": f"{other.url}/v1/messages"})
        async with model_service(moved) as running:
            await failure(dialect.provider(running.url))
        assert other.asked == []


@pytest.mark.parametrize("end", ["cut", "whole"])
@in_loop
async def test_an_answer_that_ends_in_its_middle_is_an_error_and_not_tried_again(dialect: Dialect, end: Any) -> None:
    seen: list[ModelPart] = []
    async with model_service(Reply(dialect.some("half"), end=end), Reply(dialect.text("other"))) as running:
        provider = dialect.provider(running.url)
        with pytest.raises(ModelError):
            await collect(provider, seen)
        await provider.close()
        assert (seen, len(running.asked)) == ([TextDelta("half")], 1)


@pytest.mark.parametrize("end", ["cut", "whole"])
@in_loop
async def test_an_answer_that_ends_before_it_said_anything_is_tried_again(dialect: Dialect, end: Any) -> None:
    async with model_service(Reply(dialect.nothing(), end=end), Reply(dialect.text("ok"))) as running:
        assert text_of(await answer(dialect.provider(running.url))) == "ok"


@in_loop
async def test_an_error_in_mid_stream_ends_the_answer_without_its_words(dialect: Dialect) -> None:
    async with model_service(Reply([*dialect.some("half"), dialect.error("overloaded_error")])) as running:
        error = await failure(dialect.provider(running.url))
        assert len(running.asked) == 1
    assert error.status == 529
    assert "overloaded_error" in str(error)


@in_loop
async def test_an_error_event_before_anything_was_said_is_tried_again(dialect: Dialect) -> None:
    broken = Reply([*dialect.nothing(), dialect.error("overloaded_error")])
    async with model_service(broken, Reply(dialect.text("ok"))) as running:
        assert text_of(await answer(dialect.provider(running.url))) == "ok"


@pytest.mark.parametrize(
    "chunk",
    [b"{not json", b"[]", b'"text"', b"17", b'{"choices": 5, "type": "content_block_delta", "delta": 5}',
     b'{"choices": [{"delta": {"tool_calls": [7]}}], "type": "content_block_start"}', b"[" * 100_000,
     f'{{"choices": [], "usage": {{"prompt_tokens": "{KEY}", "completion_tokens": 1, "output_tokens": "{KEY}"}},'
     f' "type": "message_delta", "delta": {{}}}}'.encode()],
    ids=lambda chunk: chunk[:24].decode(),
)  # fmt: skip
@in_loop
async def test_a_malformed_chunk_is_an_error_of_the_model(dialect: Dialect, chunk: bytes) -> None:
    broken = frame(chunk, None if dialect.is_openai else "content_block_delta")
    async with model_service(Reply([*dialect.some("half"), broken])) as running:
        await failure(dialect.provider(running.url))


@in_loop
async def test_an_answer_that_is_no_stream_is_an_error(dialect: Dialect) -> None:
    page = Reply([f"<html>{LEAK}</html>".encode()], headers={"Content-Type": "text/html"})
    async with model_service(page) as running:
        await failure(dialect.provider(running.url))


@in_loop
async def test_a_silent_service_is_left(dialect: Dialect) -> None:
    async with model_service(Reply(dialect.some("half"), end="hang")) as running:
        error = await failure(dialect.provider(running.url, read_s=0.1))
    assert "silent" in str(error)


@in_loop
async def test_an_answer_has_a_largest_size(dialect: Dialect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_ANSWER_BYTES", 4096)
    async with model_service(Reply([*dialect.some("half"), b": " + b"x" * 8192], end="hang")) as running:
        error = await failure(dialect.provider(running.url))
    assert "larger" in str(error)


@in_loop
async def test_characters_cut_by_chunks_of_bytes_are_joined(dialect: Dialect) -> None:
    whole = b"".join(dialect.text("naïve ", "漢字 ", "👩‍💻"))
    pieces = [whole[place : place + 1] for place in range(len(whole))]
    async with model_service(Reply(pieces)) as running:
        assert text_of(await answer(dialect.provider(running.url))) == "naïve 漢字 👩‍💻"


@in_loop
async def test_halves_of_a_character_in_two_events_are_joined_and_lone_ones_replaced(dialect: Dialect) -> None:
    # As JSON escapes: a service cut its text at UTF-16 code units.
    texts = ("a\ud83d", "\ude00b", "\ud83d", "c", "\udc00d\0", "e\ud83d")
    chunks = [chunk.decode("utf-8", "surrogatepass") for chunk in dialect.text(*texts)]
    escaped = ["".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in chunk) for chunk in chunks]
    async with model_service(Reply([chunk.encode() for chunk in escaped])) as running:
        parts = await answer(dialect.provider(running.url))
    assert text_of(parts) == "a😀b\ufffdc\ufffdd\ufffde\ufffd"


@in_loop
async def test_bytes_that_are_no_text_are_replaced(dialect: Dialect) -> None:
    whole = b"".join(dialect.text("ab", "cd")).replace(b"ab", b"a\xff\xed\xa0\x80b")
    async with model_service(Reply([whole])) as running:
        said = text_of(await answer(dialect.provider(running.url)))
    assert said.strip("abcd\ufffd") == ""
    assert said[0] == "a"
    assert said[-3:] == "bcd"


@in_loop
async def test_neither_key_nor_words_are_in_any_log(dialect: Dialect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with model_service(dialect.refusal(500), Reply(dialect.text("fine words"))) as running:
        await answer(dialect.provider(running.url))
    async with model_service(Reply([*dialect.some("x"), dialect.error("api_error")])) as running:
        await failure(dialect.provider(running.url))
    # Whatever a next version of the library has to say.
    assert logging.getLogger(dialect.name).getEffectiveLevel() >= logging.WARNING
    told = "\n".join(f"{record.getMessage()} {record.args} {record.exc_text}" for record in caplog.records)
    assert not [secret for secret in (KEY, WORDS, "fine words", LEAK) if secret in told]


def test_pauses_are_cut_by_chance_and_bounded() -> None:
    never, always = (calling._pause_s(20, Failure("x"), chance) for chance in (0.0, 1.0))
    assert (never, always) == (calling.MAX_PAUSE_S / 2, calling.MAX_PAUSE_S)
