"""Python callables as tools: the signature is the schema, arguments are checked by it."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from ...commands.conversations.ports import ToolResult, ToolSpec
from ...domain.conversations.identity import Identity
from ..python_callable import is_async, named_callable
from ..settings import SettingsError
from ..settings_conversations import ToolSettings
from .results import MAX_PROBLEM_CHARS, answered, failed, unreadable
from .threads import Outcome, Threads

ASKER = "asker"
"""A parameter of this name gets the Identity of whoever asked, and is no argument of the model's."""

MAX_DESCRIPTION_CHARS = 4096

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

log = structlog.get_logger(__name__)


class PythonTool:
    """One callable. Sync ones run in threads, async ones in the server's loop."""

    def __init__(self, key: str, name: str, declared: ToolSettings, function: Callable[..., Any], threads: Threads):
        """Raises SettingsError where the signature gives no schema."""
        self.data_class = declared.label
        self.is_idempotent = declared.idempotent
        self.groups = frozenset(declared.groups)
        self._function = function
        self._timeout_s = declared.timeout_seconds
        self._threads = threads
        self._is_async = is_async(function)
        self._arguments, self._wants_asker = _arguments_of(f"{key}.python", name, function)
        description = (inspect.getdoc(function) or "")[:MAX_DESCRIPTION_CHARS]
        self.spec = ToolSpec(name, description, _schema_of(f"{key}.python", self._arguments))

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """See Tool."""
        if (words := unreadable(arguments)) is not None:
            return words
        try:
            msgspec.convert(dict(arguments), self._arguments)
        except msgspec.ValidationError as error:
            return str(error)[:MAX_PROBLEM_CHARS]
        return None

    async def run(self, arguments: Mapping[str, Any], asker: Identity) -> ToolResult:
        """See Tool."""
        if (words := self.problem(arguments)) is not None:
            return failed(words)
        checked = msgspec.convert(dict(arguments), self._arguments)
        given = {name: getattr(checked, name) for name in self._arguments.__struct_fields__}
        if self._wants_asker:
            given[ASKER] = asker
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                outcome = await self._called(partial(self._function, **given))
                return answered(outcome.value) if outcome.error is None else self._failed(outcome.error)
        except asyncio.CancelledError:
            if cast("asyncio.Task[Any]", asyncio.current_task()).cancelling():
                raise
            return self._failed(asyncio.CancelledError("cancelled itself"))
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - data for the model
            if isinstance(error, TimeoutError) and limit.expired():
                log.warning("a tool took too long", tool=self.spec.name, seconds=self._timeout_s)
                return failed(f"the tool did not answer within {self._timeout_s} s; it may have done its work")
            return self._failed(error)

    async def _called(self, call: Callable[[], Any]) -> Outcome:
        if self._is_async:
            return Outcome(await cast("Awaitable[Any]", call()))
        outcome = await self._threads.run(call)
        return Outcome(await outcome.value) if inspect.isawaitable(outcome.value) else outcome

    def _failed(self, error: BaseException) -> ToolResult:
        # The message is for the model; in the log it could show what people asked for.
        log.warning("a tool failed", tool=self.spec.name, error=type(error).__name__)
        return failed(f"{type(error).__name__}: {error}")


def load_python_tool(key: str, name: str, declared: ToolSettings, folder: Path | None, threads: Threads) -> PythonTool:
    """The tool that `tools.<name>.python` names; modules beside the settings file are found, behind installed ones.

    Raises SettingsError with the key.
    """
    found = named_callable(f"{key}.python", declared.python or "", folder)
    return PythonTool(key, name, declared, found, threads)


def _arguments_of(key: str, name: str, function: Callable[..., Any]) -> tuple[type[msgspec.Struct], bool]:
    """The parameters as a struct, and whether the function wants to know who asked."""
    try:
        parameters = inspect.signature(function).parameters
        is_object = not isinstance(function, type) and not inspect.isroutine(function)
        hints = typing.get_type_hints(type(function).__call__ if is_object else function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise SettingsError(f"{key}: the signature cannot be read ({error}).") from None
    fields: list[Any] = []
    for each in parameters.values():
        if each.name == ASKER:
            continue
        if each.kind not in _NAMED:
            raise SettingsError(f"{key}: parameter {each.name} cannot be given by its name; a tool takes named ones.")
        if each.name not in hints:
            raise SettingsError(f"{key}: parameter {each.name} has no type; annotate it.")
        default = () if each.default is inspect.Parameter.empty else (_default(each.default),)
        fields.append((each.name, hints[each.name], *default))
    try:
        made = msgspec.defstruct(name.replace("-", "_"), fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{key}: the signature cannot be a schema ({error}).") from None
    return made, ASKER in parameters


def _default(value: Any) -> Any:
    def same() -> Any:
        return value

    return msgspec.field(default_factory=same) if isinstance(value, (list, dict, set)) else value


def _schema_of(key: str, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """One object schema, as all services want it; what it refers to is in its `$defs`."""
    try:
        (shown,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{key}: the signature cannot be a schema ({error}).") from None
    own = components.pop(shown["$ref"].rpartition("/")[2])
    own.pop("title", None)
    own.setdefault("properties", {})
    return own | ({"$defs": components} if components else {})
