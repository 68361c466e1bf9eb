"""What the dispatcher must know of a kind of stream: how its events are read, folded and snapshotted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from ..domain.errors import Damaged
from ..domain.events import Recorded, Registry
from ..domain.principals import Principal
from .ports import EventStore, Head, StoredEvent

S = TypeVar("S")

PAGE = 2000
"""Events read at a time when a stream is folded, or looked through for a checkpoint."""

CHECKPOINTS = 8
"""Events of the checkpoint's type that are read at a time once the newest is found to be none."""


class Kind(msgspec.Struct, Generic[S], frozen=True):
    """One kind of stream. `schema` names the shape of the state in snapshots; change it with the state's type.

    passed_over: the state when an event of that type cannot be read, for deciding who may see the stream: what it may
    have taken from anybody must be gone.
    """

    name: str
    schema: str
    initial: S
    state_type: type[S]
    registry: Registry[Any]
    evolve: Callable[[S, Recorded[Any]], S]
    passed_over: Callable[[S, str], S]

    checkpoint_type: ClassVar[str | None] = None
    """Type of events that each hold the whole state: a fold begins at the newest one, and no snapshot is kept."""

    def is_checkpoint(self, event: StoredEvent) -> bool:  # noqa: ARG002 - for kinds that have one
        """Whether a fold may begin with this event of the checkpoint's type."""
        return True

    def fold(self, state: S, event: StoredEvent) -> S:
        """One stored event further. Raises Damaged where it cannot be read."""
        decoded = self.registry.decode(event.type, event.version, event.payload)
        actor = Principal(event.actor_kind, event.actor_id)  # pyright: ignore[reportArgumentType]
        return self.evolve(
            state, Recorded(event.seq, actor, event.run_id, event.origin_key, decoded, tuple(event.classes))
        )


def left_as_it_is(state: S, _type: str) -> S:
    """The passed_over of kinds whose events take nothing from anybody."""
    return state


class Loaded(msgspec.Struct, Generic[S], frozen=True):
    """A state and where its log stood. snapshot_seq: how far the newest snapshot reaches."""

    state: S
    head: Head
    snapshot_seq: int


async def load(store: EventStore, kind: Kind[S], stream: str, *, passes_over_damage: bool = False) -> Loaded[S] | None:
    """Fold a stream from its snapshot or checkpoint and what follows; None where there is no such stream.

    Raises as catch_up.
    """
    if kind.checkpoint_type is not None:
        head = await store.head(stream)
        if head is None:
            return None
        start = await _checkpoint(store, kind, kind.checkpoint_type, head)
        return await catch_up(store, kind, start, head, passes_over_damage=passes_over_damage)
    found = await store.load(stream, kind.schema)
    if found is None:
        return None
    head, snapshot = found
    state, seq = kind.initial, 0
    if snapshot is not None:
        try:
            state, seq = msgspec.json.decode(snapshot.state, type=kind.state_type), snapshot.seq
        except msgspec.MsgspecError:
            snapshot = None  # a cache of another shape; the log has the truth
    start = Loaded(state, msgspec.structs.replace(head, version=seq), seq)
    return await catch_up(store, kind, start, head, passes_over_damage=passes_over_damage)


async def _checkpoint(store: EventStore, kind: Kind[S], type_: str, head: Head) -> Loaded[S]:
    """The state at the newest checkpoint that is one, found from the head backwards; else before the first event."""
    before, limit = head.version + 1, 1
    while before > 1:
        start = max(1, before - PAGE)
        found = await store.read_back(head.id, type_, start, before, limit)
        for event in found:
            if kind.is_checkpoint(event):
                return Loaded(kind.fold(kind.initial, event), msgspec.structs.replace(head, version=event.seq), 0)
        before = start if len(found) < limit else found[-1].seq
        limit = CHECKPOINTS
    return Loaded(kind.initial, msgspec.structs.replace(head, version=0), 0)


async def catch_up(
    store: EventStore, kind: Kind[S], loaded: Loaded[S], head: Head, *, passes_over_damage: bool = False
) -> Loaded[S]:
    """Fold what lies between a loaded state and `head`.

    Raises Damaged at a hole, which the store's guards exclude, and at an event that cannot be read. With
    `passes_over_damage` such an event is passed over; the state is then good for rights alone, never for a decision.
    """
    state, seq = loaded.state, loaded.head.version
    while seq < head.version:
        events = await store.read_for_fold(head.id, seq, min(PAGE, head.version - seq))
        if not events or events[0].seq != seq + 1:
            raise Damaged("The log of this stream has a hole; run `minutebook doctor`.")
        for event in events:
            try:
                state = kind.fold(state, event)
            except Damaged:
                if not passes_over_damage:
                    raise
                state = kind.passed_over(state, event.type)
        seq = events[-1].seq
    return Loaded(state, head, loaded.snapshot_seq)
