"""`minutebook conversations participants`, `add` and `remove`: who takes part in a shared conversation."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

import typer

from ..api_client import Api
from ..conversation_client import id_of
from .online import Server, online, segment
from .render import remark, say

Name = Annotated[str, typer.Argument(metavar="CONVERSATION", help="Its id, or your own name for it.")]
Person = Annotated[str, typer.Argument(metavar="PERSON", help="Such as human:bob.")]


@online
def participants(server: Server, conversation: Name) -> None:
    """Who takes part, the owner first."""

    async def run(api: Api) -> dict[str, Any]:
        return await api.call("GET", await _path(api, conversation))

    found = server.run(run)

    def words() -> None:
        for name in found["participants"]:
            say(name)

    server.answered(found, words)


@online
def add(server: Server, conversation: Name, person: Person) -> None:
    """Have a person take part in your shared conversation, from here on."""
    _change(server, "PUT", conversation, person, "takes part")


@online
def remove(server: Server, conversation: Name, person: Person) -> None:
    """Take a person out of it: their running turn stops, what waits of theirs is rejected, their streams end."""
    _change(server, "DELETE", conversation, person, "takes no part")


def _change(server: Server, method: Literal["PUT", "DELETE"], conversation: str, person: str, outcome: str) -> None:
    async def run(api: Api) -> dict[str, Any]:
        path = await _path(api, conversation)
        return await api.call(method, f"{path}/{segment(person)}", {}, key=uuid.uuid4().hex)

    server.answered(server.run(run), lambda: remark(f"{person} {outcome}"))


async def _path(api: Api, conversation: str) -> str:
    conversation_id = await id_of(api, conversation)
    return f"/v1/conversations/{conversation_id}/participants"
