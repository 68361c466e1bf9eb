"""`minutebook conversations`: what one takes part in, how it stands, what was said, and all of it as a file."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..api_client import Api
from ..conversation_client import entries, id_of, newest, owned
from .chat_view import prompt_of, withheld
from .common import USAGE, fail
from .online import Server, online
from .participants import add, participants, remove
from .render import remark, say

MAX_HISTORY = 10_000

conversations = typer.Typer(
    help="Your conversations with agents: list, show, history, export, and who takes part.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Its id, or your own name for it.")]


@online
def list_(server: Server) -> None:
    """All that you take part in, newest first."""

    async def run(api: Api) -> list[dict[str, Any]]:
        return [line async for line in owned(api)]

    found = server.run(run)

    def words() -> None:
        for line in found:
            name = f"  {line['handle']}" if "handle" in line else ""
            say(f"{line['id']}  {line['startedAt'][:19]}  {line['state']:<6}  {line['agent']}{name}")
        if not found:
            remark("No conversation yet; `minutebook chat` starts one.")

    server.answered({"conversations": found}, words)


@online
def show(server: Server, conversation: Name) -> None:
    """How it stands: turns, what runs, what waits."""

    async def run(api: Api) -> dict[str, Any]:
        conversation_id = await id_of(api, conversation)
        return await api.call("GET", f"/v1/conversations/{conversation_id}")

    status = server.run(run)

    def words() -> None:
        running = status.get("running")
        shown = {**status, "running": f"turn {running['turn']}" if running else "-"}
        for name in ("id", "agent", "mode", "state", "turns", "running", "queued", "bargeIn", "generation"):
            say(f"{name:<10} {shown[name]}")

    server.answered(status, words)


@online
def history(
    server: Server,
    conversation: Name,
    limit: Annotated[int, typer.Option(help="Records from the end.")] = 50,
) -> None:
    """What was said last, oldest first."""
    if not 1 <= limit <= MAX_HISTORY:
        fail(f"--limit must be 1 to {MAX_HISTORY}; `minutebook conversations export` has everything.", USAGE)

    async def run(api: Api) -> list[dict[str, Any]]:
        return await newest(api, await id_of(api, conversation), limit)

    found = server.run(run)

    def words() -> None:
        for entry in found:
            _show(entry)

    server.answered({"entries": found}, words)


@online
def export(
    server: Server,
    conversation: Name,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file [default: stdout].")] = None,
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

    try:
        count = server.run(run)
    except OSError as error:
        fail(f"--output: {output} cannot be written ({error.strerror}).", USAGE)
    if output is not None:
        server.answered(
            {"records": count, "output": str(output)}, lambda: remark(f"{count} records in {output}")
        )  # fmt: skip


for _name, _verb in (("list", list_), ("show", show), ("history", history), ("export", export)):
    conversations.command(_name)(_verb)
for _verb in (participants, add, remove):
    conversations.command()(_verb)


def _show(entry: dict[str, Any]) -> None:
    words = withheld(entry)
    if words is not None:
        remark(words)
        return
    is_question = entry["role"] == "user"
    said = f"{prompt_of(entry)}{entry['text']}" if is_question else entry["text"]
    if said:
        say(said, "bold cyan" if is_question else "")
    if entry["status"] not in ("accepted", "completed"):
        reason = f" ({entry['reason']})" if "reason" in entry else ""
        remark(f"-- {entry['status']}{reason}")
