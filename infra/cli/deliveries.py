"""`minutebook deliveries`: how they stand, and a dead letter again; for operators. Never what they say or to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ...commands.deliveries.operators import OPERATORS
from ..api_client import Api
from .bulk import bulk, reconcile
from .common import USAGE, fail
from .delivery_filter import ChannelName, ConversationId, Correlation, Destination, RunId, given, wish
from .online import Server, online_as, segment
from .render import remark, say
from .rooms import show_table

ALL = "/v1/ops/deliveries"
PAGE = 100
"""Deliveries asked for at a time; the server takes no more."""

MAX_LISTED = 10_000

FACTS = {
    "state": "state",
    "reason": "reason",
    "channel": "channel",
    "destination": "destination",
    "next attempt": "nextAttemptAt",
    "expires": "expiresAt",
    "correlation": "correlationId",
    "conversation": "conversationId",
    "run": "runId",
}
"""What is shown of one, by its name for people."""

deliveries = typer.Typer(
    help="Deliveries of your tenant: list, show, replay, revoke, purge, many at once; for operators.",
    no_args_is_help=True,
)
online = online_as(OPERATORS)

Id = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id.")]
Why = Annotated[
    str, typer.Option("--reason", help="Why; the log holds a code such as wrong_person, and no other words.")
]


@online
def list_(
    server: Server,
    state: Annotated[str | None, wish("planned, waiting, unknown, accepted, dead and so on.")] = None,
    channel: ChannelName = None,
    destination: Destination = None,
    correlation: Correlation = None,
    run: RunId = None,
    conversation: ConversationId = None,
    limit: Annotated[int, typer.Option(help="Deliveries at most.")] = 50,
) -> None:
    """List deliveries, newest first."""
    if not 1 <= limit <= MAX_LISTED:
        fail(f"--limit must be 1 to {MAX_LISTED}.", USAGE)
    params = given(
        state=state,
        channel=channel,
        destination=destination,
        correlation=correlation,
        run=run,
        conversation=conversation,
    )
    found, is_all = server.run(lambda api: _found(api, params, limit))

    def words() -> None:
        # Lines, not a table: an id is there to be copied, and a table folds it on a narrow terminal.
        for row in found:
            why = row.get("reason", "-")
            after = f"  next {row['nextAttemptAt'][:19]}" if "nextAttemptAt" in row else ""
            say(f"{row['id']}  {row['state']:<10}  {row['channel']}  attempts {row['attempts']}  {why}{after}")
        if not found:
            remark("No delivery is like that.")
        if not is_all:
            remark(f"There are more than these {limit}; choose with options, or give another --limit.")

    server.answered({"deliveries": found}, words)


async def _found(api: Api, params: Mapping[str, str], limit: int) -> tuple[list[dict[str, Any]], bool]:
    """At most so many, and whether these are all."""
    found: list[dict[str, Any]] = []
    asked: Mapping[str, str] = params
    while True:
        page = await api.call("GET", ALL, params={**asked, "limit": min(PAGE, limit - len(found))})
        found += page["deliveries"]
        if "nextCursor" not in page or len(found) >= limit:
            return found, "nextCursor" not in page
        asked = {**params, "cursor": page["nextCursor"]}


@online
def show(server: Server, delivery: Id) -> None:
    """Show a delivery and its attempts."""
    found = server.get(_path(delivery))

    def words() -> None:
        for label, name in FACTS.items():
            if name in found["delivery"]:
                say(f"{label:<12} {found['delivery'][name]}")
        if found["attempts"]:
            names = ("n", "part", "outcome", "reason", "nextAttemptAt")
            heads = ("ATTEMPT", "PART", "OUTCOME", "REASON", "NEXT ATTEMPT")
            show_table(heads, ([each.get(name) for name in names] for each in found["attempts"]))

    server.answered(found, words)


@online
def replay(
    server: Server,
    delivery: Id,
    reason: Why,
    resend_unknown: Annotated[
        bool, typer.Option("--resend-unknown", help="Although it may have arrived already.")
    ] = False,
) -> None:
    """Send a dead letter again, under the same keys."""
    _told(server, delivery, "replay", {"reason": reason, "resendUnknown": resend_unknown}, "is sent again")


@online
def revoke(server: Server, delivery: Id, reason: Why) -> None:
    """Let nothing of a delivery go out any more."""
    _told(server, delivery, "revoke", {"reason": reason}, "is revoked")


@online
def purge(server: Server, delivery: Id, reason: Why) -> None:
    """Erase a delivery's payload for good; what has not ended is revoked."""
    _told(server, delivery, "purge", {"reason": reason}, "has no payload any more")


def _told(server: Server, delivery: str, act: str, body: dict[str, Any], outcome: str) -> None:
    answer = server.tell("POST", _path(delivery, act), body)
    server.answered(answer, lambda: remark(f"{delivery} {outcome}; its state is {answer['state']}"))


def _path(delivery: str, *more: str) -> str:
    return "/".join([ALL, segment(delivery), *more])


_VERBS = {
    "list": list_,
    "show": show,
    "replay": replay,
    "revoke": revoke,
    "purge": purge,
    "reconcile": reconcile,
}
for _name, _verb in _VERBS.items():
    deliveries.command(_name)(_verb)
deliveries.add_typer(bulk, name="bulk")
