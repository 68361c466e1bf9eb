"""MCP servers as tools: real programs over stdin and stdout and over HTTP, and what may go wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_loop import in_loop
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents
from mcp_types import Tool as Listed
from minutebook.commands.conversations.ports import Tool
from minutebook.domain.conversations.identity import Identity
from minutebook.infra.agents import agents_of
from minutebook.infra.models.wellformed import UNREADABLE
from minutebook.infra.settings_conversations import McpSettings, ToolSettings
from minutebook.infra.settings_load import load
from minutebook.infra.tools import mcp_connection
from minutebook.infra.tools.mcp_connection import McpConnection
from minutebook.infra.tools.mcp_tool import McpTool, _as_result, tool_name, tools_of_server
from minutebook.infra.tools.results import CUT_MARK, MAX_OUTPUT_BYTES
from minutebook.infra.tools.toolbox import Toolbox

ASKER = Identity("human:ann", "acme")
PROGRAM = Path(__file__).parents[2] / "support" / "mcp_program.py"
NAMES = ["add", "hang", "leave", "odd", "pid", "refuse", "variable"]
SERVING_S = 20.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "FIRST_PAUSE_S", 0.05)


@contextlib.asynccontextmanager
async def box(folder: Path, toml: str, env: dict[str, str] | None = None) -> AsyncIterator[Toolbox]:
    """The tools of `[tools.s]`, opened."""
    (folder / "minutebook.toml").write_text(f"[tools.s]\n{toml}", "utf-8")
    opened = Toolbox(load(folder, env or {}), ["s"])
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


def by_name(opened: Toolbox) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in opened.tools_of(["s"])}


async def output(opened: Toolbox, tool: str, /, **arguments: Any) -> tuple[str, str]:
    result = await by_name(opened)[f"s_{tool}"].run(arguments, ASKER)
    return result.status, result.output


def stdio(more: str = "", environment: str = "") -> str:
    return f"mcp = {{ command = ['{sys.executable}', '{PROGRAM}'] {environment} }}\n{more}"


@in_loop
async def test_a_program_offers_its_tools_and_answers(tmp_path: Path) -> None:
    given = ", environment = { WORD = 'env:GIVEN' }"
    async with box(tmp_path, stdio("timeoutSeconds = 20\ndataClass = 'x'", given), {"GIVEN": "sesame-open"}) as opened:
        tools = by_name(opened)
        assert sorted(tools) == [f"s_{name}" for name in NAMES]
        add = tools["s_add"]
        assert (add.spec.description, add.data_class) == ("Adds two numbers.", "x")
        assert add.spec.schema["required"] == ["a", "b"]
        assert await output(opened, "add", a=2, b=3) == ("ok", "5")
        assert await output(opened, "variable", name="WORD") == ("ok", "sesame-open")
        assert await output(opened, "variable", name="MINUTEBOOK_DATABASE_URL") == ("ok", "unset")
        status, words = await output(opened, "refuse", words="not today")
        assert (status, "not today" in words) == ("error", True)
        _, odd = await output(opened, "odd")
        assert (odd[:3], odd.endswith(CUT_MARK), len(odd.encode()) <= MAX_OUTPUT_BYTES) == ("a\ufffdb", True, True)
        # One session: the same process answers every time.
        assert (await output(opened, "pid"))[1] == (await output(opened, "pid"))[1]


@in_loop
async def test_arguments_are_checked_before_the_server_sees_them(tmp_path: Path) -> None:
    async with box(tmp_path, stdio()) as opened:
        add = by_name(opened)["s_add"]
        assert add.problem({"a": 1, "b": 2}) is None
        assert "'b' is a required property" in (add.problem({"a": 1}) or "")
        assert "$.a" in (add.problem({"a": "x", "b": 2}) or "")
        assert "not a JSON object" in (add.problem({UNREADABLE: "{"}) or "")
        result = await add.run({"a": 1}, ASKER)
        assert (result.status, result.output) == ("error", add.problem({"a": 1}))


@in_loop
async def test_a_program_that_died_is_started_again(tmp_path: Path) -> None:
    async with box(tmp_path, stdio("timeoutSeconds = 20")) as opened:
        first = int((await output(opened, "pid"))[1])
        assert (await output(opened, "leave"))[0] == "error"
        second = int((await output(opened, "pid"))[1])
        assert second != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


@in_loop
async def test_an_idempotent_call_is_sent_again_where_the_server_died_before_it(tmp_path: Path) -> None:
    async with box(tmp_path, stdio("timeoutSeconds = 20\nidempotent = true")) as opened:
        first = int((await output(opened, "pid"))[1])
        os.kill(first, signal.SIGKILL)
        status, second = await output(opened, "pid")
        assert (status, second != str(first)) == ("ok", True)


@in_loop
async def test_a_call_has_its_limit_and_the_session_lives_on(tmp_path: Path) -> None:
    async with box(tmp_path, stdio("timeoutSeconds = 1")) as opened:
        first = await output(opened, "pid")
        status, words = await output(opened, "hang")
        assert (status, "within 1 s" in words) == ("error", True)
        assert await output(opened, "pid") == first


@in_loop
async def test_a_server_that_cannot_be_started_stops_nothing_and_its_tools_are_absent(tmp_path: Path) -> None:
    async with box(tmp_path, "mcp = { command = ['/no/such/program'] }") as opened:
        assert opened.tools_of(["s"]) == ()


@in_loop
async def test_only_the_tools_that_the_settings_name_are_offered(tmp_path: Path) -> None:
    async with box(tmp_path, stdio(environment=", only = ['add', 'nothing']")) as opened:
        assert list(by_name(opened)) == ["s_add"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def serving(port: int) -> None:
    """Until something listens there."""
    async with asyncio.timeout(SERVING_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return


@contextlib.contextmanager
def http_program(port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, str(PROGRAM), str(port)], stderr=subprocess.DEVNULL) as program:
        try:
            yield program
        finally:
            program.kill()


@in_loop
async def test_a_server_over_http_is_used_and_found_again_after_it_was_away(tmp_path: Path) -> None:
    port = free_port()
    toml = f"mcp = {{ url = 'http://127.0.0.1:{port}/mcp' }}\ntimeoutSeconds = 20"
    with http_program(port):
        await serving(port)
        async with box(tmp_path, toml) as opened:
            assert sorted(by_name(opened)) == [f"s_{name}" for name in NAMES]
            assert await output(opened, "add", a=2, b=3) == ("ok", "5")
            status, words = await output(opened, "refuse", words="not today")
            assert (status, "not today" in words) == ("error", True)
            assert (await output(opened, "leave"))[0] == "error"
            with http_program(port):
                assert await output(opened, "add", a=2, b=4) == ("ok", "6")


@in_loop
async def test_an_agent_has_the_tools_of_a_server_that_came_late(tmp_path: Path) -> None:
    port = free_port()
    text = f"[tools.s]\nmcp = {{ url = 'http://127.0.0.1:{port}/mcp', only = ['add'] }}"
    (tmp_path / "minutebook.toml").write_text(text, "utf-8")
    agents = agents_of(load(tmp_path, {}))
    await agents.start()
    before = agents["echo"]
    with http_program(port):
        async with asyncio.timeout(SERVING_S):
            await agents._toolbox._connections["s"]._open.wait()
        now = agents["echo"]
        await agents.close()
    assert (before.tools, [tool.spec.name for tool in now.tools]) == ((), ["s_add"])
    assert before.digest != now.digest


def connection(*tools: Listed, only: tuple[str, ...] = ()) -> tuple[McpConnection, ToolSettings]:
    declared = ToolSettings(mcp=McpSettings(url="http://127.0.0.1:9/mcp", only=only))
    made = McpConnection("s", declared.mcp or McpSettings(), lambda: None)
    made.listed = tools
    return made, declared


def listed(name: str, schema: dict[str, Any] | None = None) -> Listed:
    return Listed(name=name, input_schema=schema or {"type": "object"})


@pytest.mark.parametrize(
    "schema",
    [{"type": "string"}, {}, {"type": "object", "properties": 5}, {"type": "object", "$ref": "https://a.example/s"},
     {"type": "object", "properties": {"a": {"items": [{"$ref": "file:///etc/x"}]}}},
     {"type": "object", "description": "x" * 40_000}],
    ids=lambda schema: str(schema)[:40],
)  # fmt: skip
def test_a_tool_whose_schema_cannot_be_used_is_left_out(schema: dict[str, Any]) -> None:
    made, declared = connection(Listed(name="bad", input_schema=schema), listed("good"))
    assert [tool.spec.name for tool in tools_of_server(made, declared)] == ["s_good"]


def test_names_are_what_every_service_takes() -> None:
    assert tool_name("s", "a.b/c é") == "s_a_b_c__"
    long = [tool_name("s", "x" * 80 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {64}
    made, declared = connection(listed("a.b"), listed("a_b"))
    assert [tool.spec.name for tool in tools_of_server(made, declared)] == ["s_a_b"]


def test_a_pattern_of_a_server_holds_nobody_up() -> None:
    made, declared = connection()
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    assert McpTool(made, declared, listed("a", schema)).problem({"a": "a" * 40 + "b"}) is None


def test_references_within_a_schema_are_followed() -> None:
    made, declared = connection()
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    tool = McpTool(made, declared, listed("a", schema))
    assert tool.problem({"a": 1}) is None
    assert tool.problem({"a": "x"}) is not None


def test_content_becomes_text() -> None:
    blocks = [
        TextContent(type="text", text="one"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        ResourceLink(type="resource_link", uri="file:///x", name="x"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///y", text="two")),
    ]
    result = _as_result(CallToolResult(content=blocks))
    assert (result.status, result.output) == ("ok", "one\n[image, image/png]\n[resource, file:///x]\ntwo")
    structured = _as_result(CallToolResult(content=[], structured_content={"a": ["é", 1]}))
    assert (structured.status, structured.output) == ("ok", '{"a":["é",1]}')
    assert _as_result(CallToolResult(content=[], is_error=True)).status == "error"
