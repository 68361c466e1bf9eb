"""The log as a persistence module of the eventsourcing library (docs/howto/eventsourcing.md).

`PERSISTENCE_MODULE=minutebook.infra.interop` gives an application of the library its place in the log; `RoomLog` opens
and follows the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from eventsourcing import persistence
from eventsourcing.application import Application
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    Mapper,
    StoredEvent,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType
from msgspec import Struct

from ..domain.events import Recorded, Registry
from ..domain.principals import DEFAULT_TENANT, Principal
from ..domain.rooms.events import ROOM_EVENTS
from ..domain.rooms.state import INITIAL, Room, evolve
from .interop_feed import MinutebookApplicationRecorder
from .interop_log import OWN_KIND, LogAccess, Logged, LogStreams, OwnStreams, Streams
from .interop_recorder import MinutebookRecorder
from .interop_snapshots import MinutebookSnapshotRecorder

DATABASE_URL = "MINUTEBOOK_DATABASE_URL"
LISTEN_URL = "MINUTEBOOK_DATABASE_LISTEN_URL"
TENANT = "MINUTEBOOK_TENANT"
KIND = "MINUTEBOOK_KIND"
"""`room` and the like reads streams of that kind; unset, the application has streams of its own."""

S = TypeVar("S")


class LogEvent(Struct, frozen=True):
    """An event of ours as the library hands it on: what it says, and where and when it was said.

    originator_version: its seq. ts: 27 characters, UTC. recorded: what our own folds take.
    """

    originator_id: str
    originator_version: int
    id: str
    ts: str
    recorded: Recorded[Any]


class Opened(Struct, Generic[S], frozen=True):
    """A stream folded up to `version`, in the form that the library's Repository asks for."""

    id: str
    version: int
    state: S


def projector(initial: S, evolve: Callable[[S, Recorded[Any]], S]) -> Callable[..., Opened[S] | None]:
    """A `projector_func` for the library's Repository out of a state and its `evolve`."""

    def project(aggregate: Opened[S] | None, events: Iterable[LogEvent]) -> Opened[S] | None:
        for event in events:
            state = initial if aggregate is None else aggregate.state
            aggregate = Opened(event.originator_id, event.originator_version, evolve(state, event.recorded))
        return aggregate

    return project


project_room = projector(INITIAL, evolve)
"""Folds the events of a room: `repository.get(room_id, projector_func=project_room)` is an Opened[Room]."""


class MsgspecTranscoder(Transcoder):
    """JSON by msgspec, for what has no types of the library's in it."""

    def encode(self, obj: Any) -> bytes:
        """Raises TypeError for what msgspec cannot encode."""
        return msgspec.json.encode(obj)

    def decode(self, data: bytes) -> Any:
        """Raises msgspec.DecodeError for what is not JSON."""
        return msgspec.json.decode(data)


class LogEventMapper(Mapper[str]):
    """Turns stored events of ours into LogEvents, and nothing back: such streams are read-only here."""

    registry: ClassVar[Registry[Any]] = Registry(())
    """What is declared; everything else decodes to Opaque."""

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """Always raises NotSupportedError."""
        raise persistence.NotSupportedError(
            f"Stream {domain_event.originator_id} is read-only here; use the commands of the server."
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """Raises Damaged for a stored event that is not what its name promises."""
        logged = msgspec.json.decode(stored_event.state, type=Logged)
        event = self.registry.decode(stored_event.topic, logged.schema_version, bytes(logged.payload))
        actor = Principal(logged.actor_kind, logged.actor_id)  # pyright: ignore[reportArgumentType]
        seq = stored_event.originator_version
        recorded = Recorded(seq, actor, logged.run_id, logged.origin_key, event, tuple(logged.classes))
        return LogEvent(str(stored_event.originator_id), seq, logged.id, logged.ts, recorded)


class RoomEventMapper(LogEventMapper):
    """LogEventMapper for rooms."""

    registry: ClassVar[Registry[Any]] = ROOM_EVENTS


class Factory(InfrastructureFactory[TrackingRecorder]):
    """Builds recorders from the environment: DATABASE_URL (of the app role), LISTEN_URL, TENANT, KIND.

    Raises InfrastructureFactoryError where there is no URL. `close` closes the connections.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._opened: LogAccess | None = None

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """`events`, or `snapshots`: the newest snapshot of each aggregate, kept beside the log."""
        if purpose == "snapshots":
            return MinutebookSnapshotRecorder(self._access(), self._streams())
        return MinutebookRecorder(self._access(), self._streams())

    def application_recorder(self) -> ApplicationRecorder:
        """Needs the audit feed of the log, from the first event on that is stored or followed."""
        return MinutebookApplicationRecorder(self._access(), self._streams())

    def tracking_recorder(self, tracking_recorder_class: type[TrackingRecorder] | None = None) -> TrackingRecorder:
        """Always raises NotSupportedError: a view and its tracking belong in a database of the application's own."""
        del tracking_recorder_class
        raise persistence.NotSupportedError(
            "The log keeps no tracking records; give the projection a PERSISTENCE_MODULE of its own"
            " (set <PROJECTION NAME>_PERSISTENCE_MODULE)."
        )

    def process_recorder(self) -> Any:
        """Always raises NotSupportedError, for the same reason."""
        return self.tracking_recorder()

    def close(self) -> None:
        """Close the connections; may be called twice."""
        if self._opened is not None:
            self._opened.close()

    def _access(self) -> LogAccess:
        if self._opened is None:
            url = self.env.get(DATABASE_URL)
            if not url:
                raise InfrastructureFactoryError(f"Set {DATABASE_URL} to the URL of the app role, minutebook_app.")
            self._opened = LogAccess(url, listen_url=self.env.get(LISTEN_URL))
        return self._opened

    def _streams(self) -> Streams:
        kind = self.env.get(KIND, OWN_KIND)
        if kind != OWN_KIND:
            return LogStreams(kind)
        return OwnStreams(self.env.name, self.env.get(TENANT, DEFAULT_TENANT))


_ROOM_LOG = {
    InfrastructureFactory.PERSISTENCE_MODULE: "minutebook.infra.interop",
    InfrastructureFactory.TRANSCODER_TOPIC: "minutebook.infra.interop:MsgspecTranscoder",
    InfrastructureFactory.MAPPER_TOPIC: "minutebook.infra.interop:RoomEventMapper",
    KIND: "room",
}


class RoomLog(Application[str]):
    """The rooms of a log as an application of the library: to open, at any seq, and to follow; never to write.

    Reading needs only the URL of the app role in MINUTEBOOK_DATABASE_URL, and passes by every right of the product:
    whoever has that URL may read everything. Following needs the audit feed.
    """

    name = "RoomLog"

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        """See Application; what this class needs wins over what the process has for its other applications."""
        found = super().construct_env(name, env)
        found.update({f"{name.upper()}_{key}": value for key, value in _ROOM_LOG.items()})
        return found

    def open(self, room_id: str, seq: int | None = None) -> Opened[Room]:
        """The room as its events up to `seq` left it, or all of them. Raises AggregateNotFoundError."""
        opened: Opened[Room] = self.repository.get(room_id, version=seq, projector_func=project_room)
        return opened
