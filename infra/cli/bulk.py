"""`minutebook deliveries bulk`: work on many deliveries, always planned first; and what nobody can prove."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from ...commands.deliveries.bulk import MAX_RATE
from ...commands.deliveries.operators import OPERATORS
from ...domain.deliveries.bulk import CLASSES
from .common import USAGE, fail
from .delivery_filter import ChannelName, ConversationId, Correlation, Destination, RunId, given, wish
from .online import Server, online_as, segment
from .render import remark, say
from .rooms import show_table

ALL = "/v1/ops/bulk"
RECONCILE = "/v1/ops/reconcile"
MAX_RUNS = 1000
"""Runs of one reconciliation."""

LOOK_S = 1.0
ENDED = ("done", "stopped", "expired")

bulk = typer.Typer(help="Many deliveries at once: plan, run, show, stop.", no_args_is_help=True)
online = online_as(OPERATORS)

Plan = Annotated[str, typer.Argument(metavar="PLAN", help="The plan's id.")]


@online
def plan_(
    server: Server,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="replay, revoke or purge.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; the log holds a code, and no other words.")],
    state: Annotated[str | None, wish("dead, waiting and so on.")] = None,
    channel: ChannelName = None,
    destination: Destination = None,
    correlation: Correlation = None,
    run: RunId = None,
    conversation: ConversationId = None,
    rate: Annotated[int, typer.Option(help="Deliveries a second.", min=1, max=MAX_RATE)] = 10,
    resend_unknown: Annotated[
        bool, typer.Option("--resend-unknown", help="A replay takes those that may have arrived, too.")
    ] = False,
) -> None:
    """Count what would be done, and do nothing; the answer is a plan to run."""
    wanted = given(
        state=state,
        channel=channel,
        destination=destination,
        correlation=correlation,
        run=run,
        conversation=conversation,
    )
    if not wanted:
        fail("Say which deliveries: --state, --channel, --destination, --correlation, --run or --conversation.", USAGE)
    body = {
        "action": action,
        "filter": wanted,
        "reason": reason,
        "ratePerSecond": rate,
        "resendUnknown": resend_unknown,
    }
    answer = server.tell("POST", ALL, body)

    def words() -> None:
        show_table(("CLASS", "DELIVERIES"), ([name, answer["counts"][name]] for name in CLASSES))
        say(f"plan {answer['planId']}  until {answer['expiresAt'][:19]}")

    server.answered(answer, words)


@online
def run(
    server: Server,
    plan: Plan,
    wait: Annotated[bool, typer.Option("--wait", help="Show the progress until it has ended.")] = False,
) -> None:
    """Do what a plan counted, for what has not changed since."""
    answer = server.tell("POST", f"{_path(plan)}/run", {})
    if not wait:
        server.answered(answer, lambda: remark(f"plan {plan} runs"))
        return
    found = server.get(_path(plan))
    while found["state"] not in ENDED:
        _line(found)
        time.sleep(LOOK_S)
        found = server.get(_path(plan))
    server.answered(found, lambda: _table(found))


@online
def show(server: Server, plan: Plan) -> None:
    """Show a plan, and what became of its deliveries so far."""
    found = server.get(_path(plan))
    server.answered(found, lambda: _table(found))


@online
def stop(server: Server, plan: Plan) -> None:
    """Touch no further delivery of a plan."""
    answer = server.tell("DELETE", _path(plan))
    server.answered(answer, lambda: remark(f"plan {plan} is stopped"))


@online
def reconcile(
    server: Server,
    channel: Annotated[str | None, wish("The channel's name; without it: all.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Write down what is found.")] = False,
) -> None:
    """Look at deliveries without proof of what became of them."""
    names = ("examined", "proven", "absent", "lapsed", "left")
    counts: dict[str, Any] = dict.fromkeys(names, 0)
    body: dict[str, Any] = {"repair": repair} if channel is None else {"repair": repair, "channel": channel}
    for _ in range(MAX_RUNS):
        report = server.tell("POST", RECONCILE, body)
        for name in names:
            counts[name] += report[name]
        if "nextCursor" not in report:
            break
        body["cursor"] = report["nextCursor"]
    server.answered(counts, lambda: show_table([name.upper() for name in names], [[counts[name] for name in names]]))


def _table(found: dict[str, Any]) -> None:
    _line(found)
    names = ("done", "skipped", "failed", "left")
    rows = ([class_, found["counts"][class_], *(of[name] for name in names)] for class_, of in found["byClass"].items())
    show_table(("CLASS", "PLANNED", *(name.upper() for name in names)), rows)


def _line(found: dict[str, Any]) -> None:
    said = found["progress"]
    say(
        f"{found['action']} {found['state']}: {said['done']} done, {said['skipped']} skipped, {said['failed']} failed,"
        f" {said['left']} left"
    )


def _path(plan_id: str) -> str:
    return f"{ALL}/{segment(plan_id)}"


for _name, _verb in (("plan", plan_), ("run", run), ("show", show), ("stop", stop)):
    bulk.command(_name)(_verb)
