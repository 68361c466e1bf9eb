"""`minutebook explain`: whether a record of a conversation is shown to somebody, and for auditors why."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..api_client import Api
from ..conversation_client import id_of
from .common import USAGE, fail
from .online import Server, online
from .render import say

RULES = {
    "owner_only": "the conversation is its owner's alone",
    "asker": "it is their own",
    "no_classes": "nothing in it is classified",
    "cleared": "they are cleared for all of its classes",
    "not_cleared": "they are not cleared for all of its classes",
    "clearance_unknown": "no clearance of theirs is recorded, so nothing classified is shown",
    "rejected": "it was rejected, and is its sender's alone",
    "not_a_participant": "they take no part in the conversation",
}
"""The rules of the server's answer, in words."""


@online
def explain(
    server: Server,
    conversation: Annotated[str, typer.Option(help="Its id, or your own name for it.")],
    ord_: Annotated[int, typer.Option("--ord", help="Number of the record.")],
    viewer: Annotated[str | None, typer.Option(help="Who is shown it, such as human:alice [default: you].")] = None,
) -> None:
    """Whether a record of a conversation is shown to somebody; to an auditor, why."""
    if ord_ < 1:
        fail("--ord must be 1 or more; `minutebook conversations history --json` shows each record's.", USAGE)

    async def run(api: Api) -> dict[str, Any]:
        conversation_id = await id_of(api, conversation)
        params: dict[str, str | int] = {} if viewer is None else {"viewer": viewer}
        return await api.call("GET", f"/v1/conversations/{conversation_id}/entries/{ord_}/explain", params=params)

    answer = server.run(run)

    def words() -> None:
        say("shown" if answer["shown"] else "not shown")
        if "rule" in answer:
            say(f"because {RULES.get(answer['rule'], answer['rule'])}")
            for name in ("classes", "missing", "labels"):
                value = answer.get(name)
                say(f"{name:<8} {'unknown' if value is None else ', '.join(value) or '-'}")

    server.answered(answer, words)
