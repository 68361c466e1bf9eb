"""`minutebook conversations`: what one has started, how it stands, what was said, and all of it as a file."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from ...domain.principals import DEFAULT_TENANT
from ..api_client import Api, TokenSource
from ..conversation_client import entries, id_of, newest, owned
from .access import (
    DEFAULT_URL,
    OPERATOR,
    PrincipalName,
    Tenant,
    Token,
    TokenFile,
    Url,
    client_of,
    guarded_call,
    tokens_of,
)
from .chat_view import PROMPT
from .common import USAGE, DataDir, Json, fail, print_json
from .render import remark, say

MAX_HISTORY = 10_000

T = TypeVar("T")

conversations = typer.Typer(help="Your conversations with agents: list, show, history, export.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Its id, or your own name for it.")]


@conversations.command("list")
def list_(
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """All that you have started, newest first."""

    async def run(api: Api) -> list[dict[str, Any]]:
        return [line async for line in owned(api)]

    with guarded_call():
        found = _call(url, tokens_of(data_dir, token, token_file, principal, tenant), run)
        if json:
            print_json({"conversations": found})
            return
        for line in found:
            name = f"  {line['handle']}" if "handle" in line else ""
            say(f"{line['id']}  {line['startedAt'][:19]}  {line['state']:<6}  {line['agent']}{name}")
        if not found:
            remark("No conversation yet; `minutebook chat` starts one.")


@conversations.command()
def show(
    conversation: Name,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    json: Json = False,
) -> None:
    """How it stands: turns, what runs, what waits."""

    async def run(api: Api) -> dict[str, Any]:
        conversation_id = await id_of(api, conversation)
        return await api.call("GET", f"/v1/conversations/{conversation_id}")

    with guarded_call():
        status = _call(url, tokens_of(data_dir, token, token_file, principal, tenant), run)
        if json:
            print_json(status)
            return
        running = status.get("running")
        for name, value in (
            ("id", status["id"]),
            ("agent", status["agent"]),
            ("state", status["state"]),
            ("turns", status["turns"]),
            ("running", f"turn {running['turn']}" if running else "-"),
            ("queued", status["queued"]),
            ("bargeIn", status["bargeIn"]),
            ("generation", status["generation"]),
        ):
            say(f"{name:<10} {value}")


@conversations.command()
def history(
    conversation: Name,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    limit: Annotated[int, typer.Option(help="Records from the end.")] = 50,
    json: Json = False,
) -> None:
    """What was said last, oldest first."""

    async def run(api: Api) -> list[dict[str, Any]]:
        return await newest(api, await id_of(api, conversation), limit)

    with guarded_call():
        if not 1 <= limit <= MAX_HISTORY:
            fail(f"--limit must be 1 to {MAX_HISTORY}; `minutebook conversations export` has everything.", USAGE)
        found = _call(url, tokens_of(data_dir, token, token_file, principal, tenant), run)
        if json:
            print_json({"entries": found})
            return
        for entry in found:
            _show(entry)


@conversations.command()
def export(
    conversation: Name,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file [default: stdout].")] = None,
    json: Json = False,
) -> None:
    """The whole history as JSON lines, oldest first, one record a line."""

    async def run(api: Api) -> int:
        conversation_id, count = await id_of(api, conversation), 0
        with nullcontext(sys.stdout.buffer) if output is None else output.open("wb") as file:
            async for entry in entries(api, conversation_id):
                file.write(msgspec.json.encode(entry) + b"\n")
                count += 1
            file.flush()
        return count

    with guarded_call():
        try:
            count = _call(url, tokens_of(data_dir, token, token_file, principal, tenant), run)
        except OSError as error:
            fail(f"--output: {output} cannot be written ({error.strerror}).", USAGE)
        if json and output is not None:
            print_json({"records": count, "output": str(output)})
        elif output is not None:
            remark(f"{count} records in {output}")


def _call(url: str, tokens: TokenSource, run: Callable[[Api], Coroutine[Any, Any, T]]) -> T:
    async def body() -> T:
        async with client_of(url) as client:
            return await run(Api(client, tokens))

    return asyncio.run(body())


def _show(entry: dict[str, Any]) -> None:
    is_question = entry["role"] == "user"
    said = f"{PROMPT}{entry['text']}" if is_question else entry["text"]
    if said:
        say(said, "bold cyan" if is_question else "")
    if entry["status"] not in ("accepted", "completed"):
        reason = f" ({entry['reason']})" if "reason" in entry else ""
        remark(f"-- {entry['status']}{reason}")
