"""The application recorder of the eventsourcing library: notification ids are positions of the audit feed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from eventsourcing import persistence
from eventsourcing.persistence import (
    ApplicationRecorder,
    ListenNotifySubscription,
    Notification,
    PersistenceError,
    ShutDown,
    StoredEvent,
    Subscription,
)
from msgspec import Struct

from .interop_log import ROW, Row
from .interop_recorder import FAR, MinutebookRecorder, Place

NUMBER_WAIT_S = 5.0
"""Longest wait for the positions of what was just stored; older transactions hold them back."""

NUMBER_PAUSE_S = (0.002, 0.005, 0.02, 0.05)
"""Pauses between two looks; the last one repeats."""

POLL_S = 1.0
"""Longest time between two looks of a subscription, whatever became of the wake-ups (law 8)."""

STOP_S = 0.1
"""A listener looks this often whether it should stop."""

RETRY_S = 0.5
"""Pause of a subscription after the database could not be reached."""

WINDOW = 20_000
"""Positions that a subscription passes in one look, however few of them are its own."""

# An advance takes a lock, so it is asked for only where something waits for its number.
_ADVANCE = "SELECT CASE WHEN EXISTS (SELECT FROM minutebook.feed_queue) THEN minutebook.feed_advance_v1() END"
_IS_ON = "SELECT l.audit_feed FROM minutebook.log l"
_TOP = "SELECT coalesce(max(f.position), 0) FROM minutebook.feed f"
_OWN_TOP = (
    "SELECT f.position FROM minutebook.feed f JOIN minutebook.streams s ON s.id = f.stream_id"
    " WHERE starts_with(s.name, %s) ORDER BY f.position DESC LIMIT 1"
)
_NUMBERS = (
    "SELECT s.name, f.seq, f.position FROM minutebook.feed f JOIN minutebook.streams s ON s.id = f.stream_id"
    " WHERE f.position > %s AND s.name = ANY(%s)"
)
_READ = (
    f"SELECT f.position, s.name, {ROW} FROM minutebook.feed f"  # noqa: S608 - constants only
    " JOIN minutebook.streams s ON s.id = f.stream_id"
    " JOIN minutebook.events e ON e.stream_id = f.stream_id AND e.seq = f.seq"
    " WHERE f.position >= %s AND f.position <= %s AND starts_with(s.name, %s)"
    " AND (%s OR e.payload IS NOT NULL)"
    " AND (%s::text[] IS NULL OR e.type = ANY(%s::text[])) ORDER BY f.position LIMIT %s"
)


class Look(Struct, frozen=True):
    """One look along the feed. through: every position up to it was seen; is_end: there was nothing behind it."""

    notifications: Sequence[Notification]
    through: int
    is_end: bool


class MinutebookApplicationRecorder(MinutebookRecorder, ApplicationRecorder):
    """Adds one sequence over all the streams, where the audit feed of the log is on.

    A position counts every event of the log, of other applications and of rooms as well, so the ids of one
    application ascend but are not dense in a log that others share. What has a position can never be overtaken by a
    later commit. Where the feed is off, whatever needs a position raises ProgrammingError; reading aggregates works.
    """

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Store all or none, then answer their positions in the order given.

        Positions come after the commit, and only once every older transaction of the server has ended. Where that takes
        longer than NUMBER_WAIT_S the answer is None: the events are stored, and followers get them a little later.
        """
        if not stored_events:
            return None
        self._require_feed()
        before = self._access.rows(_TOP)[0][0]
        places = self._store(stored_events, kwargs)
        try:
            return self._numbers(places, before)
        except (persistence.OperationalError, persistence.InterfaceError):
            return None  # stored all the same: an error would make the caller store it once more

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """At most `limit` of this recorder's events by ascending position, from `start` (or behind it) to `stop`.

        An event of an application whose payload was erased is passed over: there is nothing left to hand on.
        """
        self._require_feed()
        self._access.rows(_ADVANCE)
        first = (start or 0) + (0 if inclusive_of_start else 1)
        return self._read(first, FAR if stop is None else stop, limit, topics)

    def max_notification_id(self) -> int | None:
        """The highest position among this recorder's events, None where there are none."""
        self._require_feed()
        self._access.rows(_ADVANCE)
        rows = self._access.rows(_OWN_TOP, (self._streams.prefix,))
        return rows[0][0] if rows else None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Follow this recorder's events behind position `gt`; blocks at the end and goes on when there is more."""
        self._require_feed()
        return MinutebookSubscription(self, gt, topics)

    def look(self, after: int, limit: int, topics: Sequence[str] = ()) -> Look:
        """The next events behind `after`, and how far along the feed they reach."""
        self._access.rows(_ADVANCE)
        top: int = self._access.rows(_TOP)[0][0]
        end = min(top, after + WINDOW)
        found = self._read(after + 1, end, limit, topics)
        if len(found) == limit:
            return Look(found, found[-1].id, is_end=False)
        return Look(found, max(after, end), is_end=end >= top)

    def listening(self) -> psycopg.Connection[Any]:
        """A session of its own that hears of every append."""
        return self._access.listening()

    def _read(self, first: int, last: int, limit: int, topics: Sequence[str]) -> list[Notification]:
        wanted = list(topics) or None
        streams = self._streams
        rows = self._access.rows(_READ, (first, last, streams.prefix, streams.is_read_only, wanted, wanted, limit))
        return [self._notification(position, name, Row(*row)) for position, name, *row in rows]

    def _notification(self, position: int, name: str, row: Row) -> Notification:
        stored = self._streams.stored(self._streams.originator(name), row)
        return Notification(stored.originator_id, stored.originator_version, stored.topic, stored.state, id=position)

    def _require_feed(self) -> None:
        if self._access.rows(_IS_ON) != [(True,)]:
            raise persistence.ProgrammingError(
                "The audit feed of this log is off, so its events have no order among streams. Set auditFeed = true"
                " under [database], or let the owner run SELECT minutebook.feed_switch_v1(true)."
            )

    def _numbers(self, places: list[Place], before: int) -> list[int] | None:
        streams = list({place.stream for place in places})
        deadline = time.monotonic() + NUMBER_WAIT_S
        for attempt in itertools.count():
            self._access.rows(_ADVANCE)
            found = {(name, seq): position for name, seq, position in self._access.rows(_NUMBERS, (before, streams))}
            if all((place.stream, place.seq) in found for place in places):
                return [found[place.stream, place.seq] for place in places]
            if time.monotonic() >= deadline:
                return None
            time.sleep(NUMBER_PAUSE_S[min(attempt, len(NUMBER_PAUSE_S) - 1)])
        raise AssertionError("unreachable")


class MinutebookSubscription(ListenNotifySubscription[MinutebookApplicationRecorder]):
    """Follows the feed from a thread, woken by NOTIFY and at least every POLL_S.

    Wake-ups may be lost and the database may go away: the subscription looks again until it is stopped, and passes over
    no event and repeats none.
    """

    def __init__(self, recorder: MinutebookApplicationRecorder, gt: int | None, topics: Sequence[str]) -> None:
        self._stopping = threading.Event()
        super().__init__(recorder, gt, topics)
        self._listen_thread = threading.Thread(target=self._listen, name="minutebook-listen")
        self._listen_thread.start()

    def __exit__(self, *args: object, **kwargs: Any) -> None:
        try:
            super().__exit__(*args, **kwargs)
        finally:
            self._listen_thread.join()

    def stop(self) -> None:
        """End the iteration; what was read and not yet handed out is dropped."""
        self._stopping.set()
        super().stop()

    def _pull(self) -> None:
        while not self._stopping.is_set():
            self._has_been_notified.clear()
            after = self._last_notification_id or 0
            try:
                look = self._recorder.look(after, self._select_limit, self._topics)
            except (persistence.OperationalError, persistence.InterfaceError):
                self._stopping.wait(RETRY_S)
                continue
            if look.notifications:
                try:
                    self._notifications_queue.put(look.notifications)
                except ShutDown:
                    return
            # The library moves on with matching events alone, and so reads what does not match again and again.
            self._last_notification_id = look.through
            if look.is_end:
                return

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._recorder.listening() as connection:
                    # What committed between two sessions woke nobody.
                    self._has_been_notified.set()
                    self._hear(connection)
            except (psycopg.Error, PersistenceError, OSError):
                self._has_been_notified.set()
                self._stopping.wait(RETRY_S)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        looked = time.monotonic()
        while not self._stopping.is_set():
            heard = [*connection.notifies(timeout=STOP_S, stop_after=1)]
            if heard or time.monotonic() - looked >= POLL_S:
                self._has_been_notified.set()
                looked = time.monotonic()
