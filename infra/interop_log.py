"""How the log looks to the eventsourcing library: connections, errors, and which streams hold which aggregates."""

from __future__ import annotations

import base64
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, Protocol, cast
from uuid import UUID

import msgspec
import psycopg
from eventsourcing import persistence
from eventsourcing.persistence import StoredEvent
from msgspec import Raw, Struct
from psycopg_pool import ConnectionPool

from ..commands.ports import EventRow
from ..domain.ids import canonical_name
from ..domain.principals import DEFAULT_TENANT
from .postgres.errors import is_lost_connection
from .postgres.pool import CONNECT_TIMEOUT_S, POOL_TIMEOUT_S

STATEMENT_TIMEOUT_MS = 10_000
"""Longest statement of the library's threads, in milliseconds."""

OWN_KIND = "es"
"""Kind of the streams that applications of the library write: `es:<application>:<originator id>`."""

OWN_VERSION = 1
"""Schema version of an event that such an application wrote; its own `class_version` is inside its state."""

FIRST_VERSIONS = (0, 1)
"""Where the library's aggregates may begin to count. A stream's seq always begins at 1."""

MAX_STATE_BYTES = 4 * 1024 * 1024
"""Largest state of one event. However it must be escaped, its line in an export stays under MAX_LINE_BYTES."""

ERASED = b'{"erased": true}'

_AS_STRING = "="
"""Stands before a string id that would be taken for a UUID, or that begins with it."""

_SESSION: tuple[LiteralString, ...] = (
    "SET ROLE minutebook_app",
    "SET search_path = pg_catalog, pg_temp",
    "SET timezone = 'UTC'",
    "SET idle_in_transaction_session_timeout = 30000",
    # Every look-up goes by a primary key, whatever the statistics say.
    "SET enable_hashjoin = off",
    "SET enable_mergejoin = off",
)


class Row(Struct, frozen=True):
    """A stored event as reads hand it on. payload: PostgreSQL's text of it, None once it was erased."""

    seq: int
    id: str
    type: str
    schema_version: int
    actor_kind: str
    actor_id: str
    run_id: str | None
    origin_key: str | None
    ts: str
    payload: str | None
    classes: Sequence[str]


ROW = (
    "e.seq, e.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.run_id, e.origin_key,"
    " to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), e.payload::text,"
    " e.classes"
)
"""The columns of Row, of a table called `e`."""


class LogAccess:
    """Connections as the app role, for threads. `url` belongs to that role, or to a login that was granted it.

    listen_url: a direct one, where `url` goes through a transaction pooler. Close it when done.
    """

    def __init__(self, url: str, *, listen_url: str | None = None, max_size: int = 10) -> None:
        self._listen_url = listen_url or url
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            url,
            min_size=1,
            max_size=max_size,
            timeout=POOL_TIMEOUT_S,
            open=False,
            kwargs=_kwargs("minutebook interop"),
            configure=_configure,
            reconnect_timeout=5,
            name="minutebook-interop",
        )
        with translated():
            # The pool hides from its users why it cannot connect, so the first connection is made without it.
            with psycopg.connect(url, **_kwargs("minutebook interop")) as connection:
                _configure(connection)
            self._pool.open()

    @contextmanager
    def connection(self) -> Generator[psycopg.Connection[Any]]:
        """A connection in autocommit mode; errors are psycopg's."""
        with self._pool.connection() as connection:
            yield connection

    def rows(self, sql: str, parameters: Any = ()) -> list[Any]:
        """The rows of one read. Raises errors of the library's tree."""
        with translated(), self._pool.connection() as connection:
            return connection.execute(cast("LiteralString", sql), parameters, prepare=True).fetchall()

    def listening(self) -> psycopg.Connection[Any]:
        """A session of its own that listens to the wake-ups of the log."""
        connection = psycopg.connect(self._listen_url, **_kwargs("minutebook interop listener"))
        try:
            connection.execute("LISTEN minutebook")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close every pooled connection; may be called twice."""
        self._pool.close()


def _kwargs(name: str) -> dict[str, Any]:
    return {"autocommit": True, "connect_timeout": CONNECT_TIMEOUT_S, "application_name": name}


def _configure(connection: psycopg.Connection[Any]) -> None:
    for statement in _SESSION:
        connection.execute(statement)
    connection.execute("SELECT set_config('statement_timeout', %s, false)", (str(STATEMENT_TIMEOUT_MS),))


_ERRORS: tuple[tuple[type[psycopg.Error], type[persistence.PersistenceError]], ...] = (
    (psycopg.InterfaceError, persistence.InterfaceError),
    (psycopg.DataError, persistence.DataError),
    (psycopg.OperationalError, persistence.OperationalError),
    (psycopg.IntegrityError, persistence.IntegrityError),
    (psycopg.InternalError, persistence.InternalError),
    (psycopg.ProgrammingError, persistence.ProgrammingError),
    (psycopg.NotSupportedError, persistence.NotSupportedError),
    (psycopg.DatabaseError, persistence.DatabaseError),
    (psycopg.Error, persistence.PersistenceError),
)


def translate(error: psycopg.Error) -> persistence.PersistenceError:
    """The error of the library's tree with the same name. Never quotes a value of the statement."""
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.InvalidSchemaName):
        return persistence.ProgrammingError("This database holds no log; run `minutebook migrate` first.")
    if error.sqlstate in ("42501", "22023") and "role" in (error.diag.message_primary or ""):
        return persistence.ProgrammingError("Connect as minutebook_app, or as a login role that was granted it.")
    said = error.diag.message_primary
    if said is None:
        said = "The database cannot be reached." if is_lost_connection(error) else type(error).__name__
    return next(ours for theirs, ours in _ERRORS if isinstance(error, theirs))(said)


@contextmanager
def translated() -> Generator[None]:
    """Turns psycopg's errors into the library's, with the cause kept."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


class Streams(Protocol):
    """Which streams a recorder sees, and how their events look to the library.

    is_read_only: they are ours, not the library's; an event whose payload was erased is still handed on.
    """

    kind: str
    tenant: str
    prefix: str
    is_read_only: bool

    def name(self, originator_id: UUID | str) -> str:
        """The stream of an aggregate."""
        ...

    def originator(self, name: str) -> UUID | str:
        """The aggregate of a stream."""
        ...

    def first(self, origin_key: str | None) -> int:
        """The version of the event with seq 1, given its origin key."""
        ...

    def stored(self, originator_id: UUID | str, row: Row) -> StoredEvent:
        """A stored event in the library's form."""
        ...

    def to_row(self, event: StoredEvent, event_id: str) -> EventRow:
        """An event in the form that the append takes."""
        ...


class _State(Struct, frozen=True):
    """A state at rest: as readable text where it is text, else in base64; either way it comes back byte for byte."""

    encoding: str
    state: str


class OwnStreams:
    """The streams of one application of the library, which it alone writes.

    The application's name must have no colon. An aggregate's version is kept as the event's origin key, so that
    streams that count from 0 and from 1 both fit a seq that counts from 1. Raises ValueError for a bad name.
    """

    def __init__(self, application: str, tenant: str = DEFAULT_TENANT) -> None:
        if canonical_name(application) and ":" in application:
            raise ValueError("The name of an application must not contain a colon.")
        self.kind = OWN_KIND
        self.is_read_only = False
        self.tenant = tenant
        self.prefix = f"{OWN_KIND}:{application}:"
        self._writer = f"{OWN_KIND}:{application}"

    def name(self, originator_id: UUID | str) -> str:
        """See Streams."""
        if isinstance(originator_id, UUID):
            return f"{self.prefix}{originator_id}"
        mark = _AS_STRING if originator_id.startswith(_AS_STRING) or _as_uuid(originator_id) is not None else ""
        return f"{self.prefix}{mark}{originator_id}"

    def originator(self, name: str) -> UUID | str:
        """See Streams."""
        text = name.removeprefix(self.prefix)
        return text[1:] if text.startswith(_AS_STRING) else _as_uuid(text) or text

    def first(self, origin_key: str | None) -> int:
        """See Streams."""
        return int(origin_key or 1)

    def stored(self, originator_id: UUID | str, row: Row) -> StoredEvent:
        """See Streams. Raises DataError where the payload was erased."""
        if row.payload is None:
            raise persistence.DataError(f"The payload of event {row.origin_key} of {originator_id} was erased.")
        kept = msgspec.json.decode(row.payload, type=_State)
        state = base64.b64decode(kept.state) if kept.encoding == "base64" else kept.state.encode()
        return StoredEvent(originator_id, self.first(row.origin_key), row.type, state)

    def to_row(self, event: StoredEvent, event_id: str) -> EventRow:
        """See Streams. Raises DataError for a state over MAX_STATE_BYTES."""
        if len(event.state) > MAX_STATE_BYTES:
            raise persistence.DataError(
                f"The state has {len(event.state)} bytes; at most {MAX_STATE_BYTES} can be stored in one event."
            )
        return EventRow(
            event_id,
            event.topic,
            OWN_VERSION,
            Raw(msgspec.json.encode(_kept(event.state))),
            "system",
            self._writer,
            "client",
            origin_client=self._writer,
            origin_key=str(event.originator_version),
        )


class LogStreams:
    """The streams of one kind of ours, such as `room`, to read. An aggregate's id is what follows the colon."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.is_read_only = True
        self.tenant = DEFAULT_TENANT
        self.prefix = f"{kind}:"

    def name(self, originator_id: UUID | str) -> str:
        """See Streams."""
        return f"{self.prefix}{originator_id}"

    def originator(self, name: str) -> str:
        """See Streams."""
        return name.removeprefix(self.prefix)

    def first(self, origin_key: str | None) -> int:
        """See Streams: versions are seqs."""
        del origin_key
        return 1

    def stored(self, originator_id: UUID | str, row: Row) -> StoredEvent:
        """See Streams. The state is Logged as JSON."""
        logged = Logged(
            row.id,
            row.schema_version,
            row.actor_kind,
            row.actor_id,
            row.ts,
            Raw(ERASED if row.payload is None else row.payload.encode()),
            row.run_id,
            row.origin_key,
            row.classes,
        )
        return StoredEvent(originator_id, row.seq, row.type, msgspec.json.encode(logged))

    def to_row(self, event: StoredEvent, event_id: str) -> EventRow:
        """See Streams. Always raises NotSupportedError."""
        del event, event_id
        raise persistence.NotSupportedError(
            f"Streams of kind {self.kind} are read-only here: their rules and rights are in the commands of the server."
        )


class Logged(Struct, frozen=True):
    """The state of an event of ours in the library's StoredEvent. payload: as it is stored."""

    id: str
    schema_version: int
    actor_kind: str
    actor_id: str
    ts: str
    payload: Raw
    run_id: str | None = None
    origin_key: str | None = None
    classes: Sequence[str] = ()


def _kept(state: bytes) -> _State:
    try:
        text = state.decode()
    except UnicodeDecodeError:
        text = "\0"
    # jsonb holds every character but NUL.
    return _State("base64", base64.b64encode(state).decode()) if "\0" in text else _State("text", text)


def _as_uuid(text: str) -> UUID | None:
    """The UUID of its canonical text, None for any other text."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None
