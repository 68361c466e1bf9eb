"""The tools of an MCP server, as agents call them: named after it, arguments checked, content as text."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import jsonschema
import msgspec
import structlog
from jsonschema import exceptions, validators
from jsonschema.protocols import Validator
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool

from ...commands.conversations.ports import ToolResult, ToolSpec
from ...domain.conversations.identity import Identity
from ..models.wellformed import kept, repaired
from ..settings_conversations import ToolSettings
from .mcp_connection import McpConnection, Unreachable
from .results import MAX_PROBLEM_CHARS, answered, bounded, failed, unreadable

MAX_NAME_CHARS = 64
"""Of a tool's name, as every service of models takes it."""

MAX_DESCRIPTION_CHARS = 4096
MAX_SCHEMA_BYTES = 32_768

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")

_best_match: Any = cast("Any", exceptions).best_match
_extend: Any = cast("Any", validators).extend

log = structlog.get_logger(__name__)


class McpTool:
    """One tool of a server."""

    def __init__(self, connection: McpConnection, declared: ToolSettings, tool: Tool) -> None:
        """Raises ValueError where the schema is none that arguments can be checked with."""
        self.data_class = declared.label
        self.is_idempotent = declared.idempotent
        self.groups = frozenset(declared.groups)
        self._connection = connection
        self._timeout_s = declared.timeout_seconds
        self._name = tool.name
        schema: dict[str, Any] = kept(tool.input_schema)
        self._validator = _validator_of(schema)
        description = repaired(tool.description or "")[:MAX_DESCRIPTION_CHARS]
        self.spec = ToolSpec(tool_name(connection.name, tool.name), description, schema)

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        if (words := unreadable(arguments)) is not None:
            return words
        try:
            error: Any = _best_match(self._validator.iter_errors(dict(arguments)))
        except RecursionError:
            return "the arguments are nested too deeply"
        return None if error is None else f"{error.message[:MAX_PROBLEM_CHARS]} (at {error.json_path[:200]})"

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:  # noqa: ARG002 - see Tool
        """See Tool. A server is told nothing of who asked."""
        if (words := self.problem(arguments)) is not None:
            return failed(words)
        try:
            async with asyncio.timeout(self._timeout_s):
                return _as_result(await self._called(dict(arguments)))
        except MCPError as error:
            return failed(f"the tool's server refused the call: {error.message}")
        except Unreachable:
            log.warning("a tool's server lost a call", tool=self.spec.name)
            return failed("the connection to the tool's server was lost; the call may have done its work")
        except TimeoutError:
            log.warning("a tool took too long", tool=self.spec.name, seconds=self._timeout_s)
            return failed(f"the tool did not answer within {self._timeout_s} s; it may have done its work")

    async def _called(self, arguments: dict[str, Any]) -> CallToolResult:
        try:
            return await self._connection.call(self._name, arguments)
        except Unreachable:
            if not self.is_idempotent:
                raise
        return await self._connection.call(self._name, arguments)


def tools_of_server(connection: McpConnection, declared: ToolSettings) -> Iterator[McpTool]:
    """The tools that the server lists and the settings do not leave out; one that cannot be used is told of."""
    only = declared.mcp.only if declared.mcp is not None else ()
    taken: set[str] = set()
    for tool in connection.listed:
        if only and tool.name not in only:
            continue
        try:
            made = McpTool(connection, declared, tool)
        except (ValueError, RecursionError):
            made = None
        if made is None or made.spec.name in taken:
            log.warning("a tool of an MCP server cannot be used", tool=tool_name(connection.name, tool.name))
            continue
        taken.add(made.spec.name)
        yield made


def tool_name(server: str, name: str) -> str:
    """`<server>_<tool>` in the characters that every service takes; a long one ends in a digest of it."""
    whole = f"{server}_{_FOREIGN.sub('_', name)}"
    if len(whole) <= MAX_NAME_CHARS:
        return whole
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{whole[: MAX_NAME_CHARS - 9]}_{digest}"


def _validator_of(schema: dict[str, Any]) -> Validator:
    if schema.get("type") != "object" or len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise ValueError("not the schema of an object, or too large")
    if not all(reference.startswith("#") for reference in _references(schema)):
        # A library that follows it would fetch whatever the server names.
        raise ValueError("refers to something outside")
    kind = validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError:
        raise ValueError("no schema") from None
    # A pattern may take for ever; the server checks it once more, in its own time.
    return _extend(kind, {"pattern": _unchecked})(schema)


def _unchecked(*_: Any) -> Iterator[Any]:
    return iter(())


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in cast("dict[str, Any]", value).items():
            if name in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(inner, str):
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _references(inner)


def _as_result(result: CallToolResult) -> ToolResult:
    texts = [_as_text(block) for block in result.content]
    if not texts and result.structured_content is not None:
        made = answered(result.structured_content)
        return ToolResult("error", made.output) if result.is_error else made
    return ToolResult("error" if result.is_error else "ok", bounded("\n".join(texts)))


def _as_text(block: Any) -> str:
    """A block of content; what is no text is named."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}]"
        case "resource_link":
            return f"[resource, {block.uri}]"
        case "resource":
            return getattr(block.resource, "text", None) or f"[resource, {block.resource.uri}]"
        case other:
            return f"[{other}]"
