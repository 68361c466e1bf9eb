"""What every decision of a room does: check the right, refuse a closed room, write as the caller."""

from __future__ import annotations

from ..errors import Invalid, NotVisible, Sealed, StaleEpoch
from ..events import Event, Recorded
from ..ids import is_room_id
from ..principals import Principal
from .commands import MAX_REASON_BYTES
from .context import Context, NewEvent
from .rights import Action, require, standing
from .state import Room, evolve


def allow(room: Room, context: Context, action: Action) -> None:
    """Refuse what the rights table does not allow the caller; raises what `require` raises."""
    require(room, context.room_id, context.tenant, context.caller, action)


def allow_client(room: Room, context: Context, action: Action) -> None:
    """As `allow`, for callers who are command-line clients; whoever is not is looked at elsewhere."""
    if context.caller.is_cli_client:
        allow(room, context, action)


def refuse_sealed(room: Room) -> None:
    """Raises Sealed in a closed room, to which nothing is appended."""
    if room.is_closed:
        raise Sealed("This room is closed; open a new one to go on.")


def refuse_stale(room: Room, epoch: int) -> None:
    """Raises StaleEpoch where the driver token moved since the caller looked."""
    if epoch != room.driver_epoch:
        raise StaleEpoch(
            "The driver token has moved since you looked; read the room again.",
            driver=room.driver,
            driverEpoch=room.driver_epoch,
        )


def allow_driver(room: Room, context: Context, action: Action, epoch: int) -> None:
    """For what only the driver may do: the caller could hold the token, the epoch is the newest, the caller holds it.

    The epoch comes before the token, so that whoever drove until now hears that it moved; a command-line client hears
    first that it never may. Raises what `require` raises, Sealed and StaleEpoch.
    """
    allow(room, context, "queue")
    allow_client(room, context, action)
    refuse_sealed(room)
    refuse_stale(room, epoch)
    allow(room, context, action)


def check_reason(reason: str | None) -> None:
    """Raises Invalid for a reason over its limit in bytes; its command bounds the characters only."""
    if reason is not None and len(reason.encode()) > MAX_REASON_BYTES:
        raise Invalid.at("$.reason", f"must be at most {MAX_REASON_BYTES} bytes")


def role_in(room: Room, context: Context) -> str | None:
    """The caller's role as the envelope says it: in the room, or of the running run."""
    have = standing(room, context.room_id, context.tenant, context.caller)
    if have == "run":
        return room.run.role if room.run is not None else None
    return have if have in ("watcher", "collaborator", "owner") else None


def run_of(room: Room, context: Context) -> str:
    """The run whose bridge the caller is. Raises NotVisible for everybody else, another room's run among them."""
    if standing(room, context.room_id, context.tenant, context.caller) not in ("run", "ended_run"):
        raise NotVisible
    return context.caller.principal.id


def person(text: str, path: str) -> Principal:
    """A human principal. Raises Invalid with `path` for anybody who cannot be a member."""
    principal = Principal.parse(text, path)
    if principal.kind == "agent" and not is_room_id(principal.id):
        raise Invalid.at(path, "is not a run id")
    if principal.kind != "human":
        raise Invalid.at(path, "only people are members; runs join by their bridge, systems by their token")
    return principal


def by_caller(room: Room, event: Event, context: Context, *, caused_by: int | None = None) -> NewEvent:
    """An event that the caller's command makes, with their role in the room."""
    principal = context.caller.principal
    run_id = principal.id if principal.kind == "agent" else None
    return NewEvent(event, principal, role_in(room, context), run_id, caused_by)


def after(room: Room, events: tuple[NewEvent, ...], version: int) -> Room:
    """The room once these events are stored behind event `version`."""
    for seq, new in enumerate(events, version + 1):
        room = evolve(room, Recorded(seq, new.actor, new.run_id, new.origin_key, new.event, new.classes))  # pyright: ignore[reportArgumentType]
    return room
