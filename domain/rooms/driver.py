"""The driver token: who asks for it, gives it, takes it, and how it falls back (rooms.md, Driver token)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ..errors import Invalid
from ..principals import Principal
from .acting import allow, allow_driver, by_caller, check_reason, refuse_sealed
from .commands import GiveDriver, LapseDriver, RequestDriver, TakeDriver
from .context import Context, Decision, by_server
from .events import DriverMoved, DriverReason, DriverRequested
from .rights import CAN_DRIVE, human_drives
from .state import Room


def request_driver(room: Room, command: RequestDriver, context: Context) -> Decision:  # noqa: ARG001
    """Ask for the token, for all to see; a system holder yields at once.

    Asking again, or as the holder, adds nothing. The answer carries `driver` and `driverEpoch`, as of every command
    here.
    """
    allow(room, context, "driver_request")
    refuse_sealed(room)
    name = str(context.caller.principal)
    if name == room.driver or (human_drives(room) and name in room.driver_requests):
        return Decision(answer=_answer(room.driver, room.driver_epoch))
    if human_drives(room):
        event = by_caller(room, DriverRequested(name), context)
        return Decision((event,), answer=_answer(room.driver, room.driver_epoch))
    return _moved_by_caller(room, name, "requested", context)


def give_driver(room: Room, command: GiveDriver, context: Context) -> Decision:
    """Hand the token to a collaborator or better, or back to the room's system holder."""
    allow_driver(room, context, "driver_give", command.driver_epoch)
    name = str(Principal.parse(command.to, "$.to"))
    if name == room.driver:
        return Decision(answer=_answer(room.driver, room.driver_epoch))
    member = room.members.get(name)
    if name != room.system_holder and (member is None or member.role not in CAN_DRIVE):
        raise Invalid.at("$.to", "must be a collaborator or an owner of the room, or its system holder")
    return _moved_by_caller(room, name, "given", context)


def take_driver(room: Room, command: TakeDriver, context: Context) -> Decision:
    """An owner or admin takes the token from whoever holds it, and says why."""
    allow(room, context, "driver_take")
    refuse_sealed(room)
    check_reason(command.reason)
    name = str(context.caller.principal)
    if name == room.driver:
        return Decision(answer=_answer(room.driver, room.driver_epoch))
    return _moved_by_caller(room, name, "taken", context, command.reason)


def lapse_driver(room: Room, command: LapseDriver, context: Context) -> Decision:
    """The sweep's: a person who is away or idle for too long loses the token to the system that held it last.

    Where no system ever held it, the token stays. A token that moved meanwhile is left alone.
    """
    allow(room, context, "sweep")
    heir = room.system_holder
    if room.is_closed or command.driver_epoch != room.driver_epoch or heir is None or not human_drives(room):
        return Decision(answer=_answer(room.driver, room.driver_epoch))
    away_s = (context.now - command.last_seen).total_seconds()
    idle_s = (context.now - command.last_acted).total_seconds()
    if away_s < context.timeouts.away_s and idle_s < context.timeouts.idle_s:
        return Decision(answer=_answer(room.driver, room.driver_epoch))
    epoch = room.driver_epoch + 1
    moved = DriverMoved(room.driver, heir, epoch, "lease_expired")
    return Decision((by_server(moved, f"driver:{epoch}"),), answer=_answer(heir, epoch))


def _moved_by_caller(
    room: Room, to: str, reason: DriverReason, context: Context, note: str | UnsetType = UNSET
) -> Decision:
    epoch = room.driver_epoch + 1
    event = DriverMoved(room.driver, to, epoch, reason, note)
    return Decision((by_caller(room, event, context),), answer=_answer(to, epoch))


def _answer(driver: str, epoch: int) -> dict[str, Any]:
    return {"driver": driver, "driverEpoch": epoch}
