"""What people say: to each other, to the next run, into the running one (rooms.md, Messages)."""

from __future__ import annotations

from ..errors import Forbidden, Invalid, NoRunningRun, NotQueued, QueueFull, TooLarge
from ..events import Event
from ..principals import Principal
from .acting import allow, allow_client, allow_driver, by_caller, refuse_sealed
from .commands import InterruptRun, PostMessage, PromoteQueued, RemoveQueued
from .context import Context, Decision
from .events import InterruptRequested, MessagePosted, QueuedPromoted, QueuedRemoved, VerdictGiven
from .rights import Action, decide_right
from .run_state import InterruptDelivery, Run
from .state import Room

RETRY_AFTER_MS = 5_000
"""When whoever met a full queue may try again: what waits goes away at the pace of runs and of people."""

_RIGHTS: dict[str, Action] = {"chat": "chat", "review_verdict": "verdict", "task_state": "task_state"}


def post_message(room: Room, command: PostMessage, context: Context) -> Decision:
    """A message for those who read, and by its delivery for the next run or, from the driver, for the running one.

    Raises Forbidden, StaleEpoch, NoRunningRun, QueueFull, TooLarge, Invalid, Sealed.
    """
    allow(room, context, _RIGHTS[command.kind])
    if command.delivery == "queued":
        allow(room, context, "queue")
    refuse_sealed(room)
    if command.delivery == "steering":
        _check_steering(room, command, context)
    elif command.delivery == "queued" and len(room.queue) >= context.limits.queued:
        raise _full(f"{context.limits.queued} messages wait for the next run already; start it, or remove one.")
    size = len(command.text.encode())
    if size > context.limits.text_bytes:
        raise TooLarge(f"The text has {size} bytes; at most {context.limits.text_bytes} are taken.")
    if command.caused_by is not None and command.caused_by > context.version:
        raise Invalid.at("$.causedBy", "must be the seq of an event of this room")
    return Decision((by_caller(room, _message(command), context, caused_by=command.caused_by),))


def _check_steering(room: Room, command: PostMessage, context: Context) -> None:
    allow_client(room, context, "steer")
    if command.driver_epoch is None:
        raise Invalid.at("$.driverEpoch", "is required to steer; the snapshot of the room has it")
    allow_driver(room, context, "steer", command.driver_epoch)
    _open_for_delivery(room, context)


def _message(command: PostMessage) -> Event:
    to = tuple(str(Principal.parse(name, f"$.to[{place}]")) for place, name in enumerate(command.to))
    if command.kind == "review_verdict":
        if command.verdict is None or command.commit is None:
            missing = "verdict" if command.verdict is None else "commit"
            raise Invalid.at(f"$.{missing}", "is required in a review_verdict")
        if command.delivery != "none":
            raise Invalid.at("$.delivery", "must be none for a review_verdict: the next run's brief has it anyway")
        return VerdictGiven(command.text, command.verdict, command.commit, to)
    for name, value in (("verdict", command.verdict), ("commit", command.commit)):
        if value is not None:
            raise Invalid.at(f"$.{name}", "belongs to a review_verdict alone")
    return MessagePosted(command.text, to, command.delivery, command.kind)


def remove_queued(room: Room, command: RemoveQueued, context: Context) -> Decision:
    """Take a queued message back: its author may, and the driver. Raises NotQueued where it waits no longer."""
    allow(room, context, "unqueue")
    refuse_sealed(room)
    quote = next((quote for quote in room.queue if quote.seq == command.ref), None)
    if quote is None:
        raise _not_queued()
    if str(context.caller.principal) != quote.author:
        drives = decide_right(room, context.room_id, context.tenant, context.caller, "promote").allowed
        if not drives:
            raise Forbidden("Only its author and the driver may remove a queued message.")
    return Decision((by_caller(room, QueuedRemoved(command.ref), context, caused_by=command.ref),))


def promote_queued(room: Room, command: PromoteQueued, context: Context) -> Decision:
    """The driver sends a queued message into the running run now. Raises NoRunningRun, NotQueued, QueueFull."""
    allow_driver(room, context, "promote", command.driver_epoch)
    run = _open_for_delivery(room, context)
    if all(quote.seq != command.ref for quote in room.queue):
        raise _not_queued()
    event = QueuedPromoted(command.ref, run.run_id)
    return Decision((by_caller(room, event, context, caused_by=command.ref),))


def interrupt_run(room: Room, command: InterruptRun, context: Context) -> Decision:
    """The driver asks the running run to stop what it does; while one request waits, another adds nothing."""
    allow_driver(room, context, "interrupt", command.driver_epoch)
    run = _running(room)
    if any(isinstance(each, InterruptDelivery) for each in run.deliveries):
        return Decision()
    return Decision((by_caller(room, InterruptRequested(run.run_id), context),))


def _running(room: Room) -> Run:
    if room.run is None:
        raise NoRunningRun("No run is running; queue the message for the next one, or start a run.")
    return room.run


def _open_for_delivery(room: Room, context: Context) -> Run:
    run = _running(room)
    if len(run.deliveries) >= context.limits.deliveries:
        raise _full(f"{context.limits.deliveries} deliveries wait for this run already; see whether its bridge lives.")
    return run


def _full(detail: str) -> QueueFull:
    return QueueFull(detail, retryAfterMs=RETRY_AFTER_MS)


def _not_queued() -> NotQueued:
    return NotQueued("No message of this seq waits for the next run; it was removed, promoted or consumed.")
