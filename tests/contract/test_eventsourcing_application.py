"""The application recorder over the audit feed: the published contract, followers, and a whole application."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import TestCase
from uuid import UUID, uuid4

import psycopg
import pytest
from eventsourcing import persistence
from eventsourcing.application import AggregateNotFoundError, Application, Repository
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import EventStore, IntegrityError, Notification, StoredEvent
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.tests import persistence as published
from minutebook.domain.events import Opaque
from minutebook.domain.rooms.events import MessagePosted
from minutebook.infra import interop_feed
from minutebook.infra.interop import LogEvent, MsgspecTranscoder, RoomEventMapper, RoomLog, project_room
from minutebook.infra.interop_feed import MinutebookApplicationRecorder
from minutebook.infra.interop_log import LogAccess, LogStreams, OwnStreams
from minutebook.infra.interop_recorder import MinutebookRecorder
from minutebook.infra.postgres.export import verify_database
from ulid_transform import ulid_now

PAGE = Path(__file__).parents[2] / "docs/howto/eventsourcing.md"
ROOM = "abcd2345"
APPEND = "SELECT outcome FROM minutebook.append_v1(%s::text[], %s::json, %s::json, %s)"


def switch_feed(database: Any) -> None:
    """Turns the audit feed on."""
    with database.connect("postgres") as connection:
        connection.execute("SELECT minutebook.feed_switch_v1(true)")


@pytest.fixture
def access(database: Any) -> Iterator[LogAccess]:
    """Connections of the app role to a fresh database whose feed is on."""
    switch_feed(database)
    opened = LogAccess(database.url("app"))
    yield opened
    opened.close()


def shop(access: LogAccess) -> MinutebookApplicationRecorder:
    """The recorder of an application called Shop."""
    return MinutebookApplicationRecorder(access, OwnStreams("Shop"))


def stored(version: int, originator: UUID | str = "a", topic: str = "shop:Ordered") -> StoredEvent:
    """A stored event of the library."""
    return StoredEvent(originator, version, topic, b"{}")


def say(database: Any, after: int, *texts: str) -> None:
    """Chat messages in the room; the first append opens it."""
    opened = {"kind": "room_phase", "phase": "open", "owner": "human:anna", "driver": "human:anna",
              "dataClass": "internal", "retention": "90d", "title": "Plans"}  # fmt: skip
    payloads: list[Any] = [{"kind": "chat", "delivery": "none", "to": [], "text": text} for text in texts]
    kinds = ["message"] * len(texts)
    item: dict[str, Any] = {"n": 1, "s": 1, "expected": after, "count": len(texts)}
    if after == 0:
        payloads, kinds = [opened, *payloads], ["state_changed", *kinds]
        item |= {"kind": "room", "tenant": "default", "retention": 90, "count": len(payloads)}
    base: dict[str, Any] = {"i": 1, "v": 1, "ak": "human", "ai": "anna", "o": "client", "rd": [], "cl": []}
    rows = [
        base | {"k": k, "id": ulid_now(), "t": kind, "p": payload}
        for k, (kind, payload) in enumerate(zip(kinds, payloads, strict=True), 1)
    ]
    with database.connect() as connection:
        found = connection.execute(APPEND, ([f"room:{ROOM}"], json.dumps([item]), json.dumps(rows), after == 0))
        assert found.fetchall() == [("appended",)]


def raw_row(topic: str, version: int) -> dict[str, Any]:
    """An event of Shop as the append takes it."""
    payload = {"encoding": "text", "state": "{}"}
    base: dict[str, Any] = {"i": 1, "k": 1, "v": 1, "ak": "system", "ai": "es:Shop", "o": "client", "rd": [], "cl": []}
    return base | {"id": ulid_now(), "t": topic, "p": payload, "oc": "es:Shop", "ok": str(version)}


def case(access: LogAccess) -> type[TestCase]:
    """The published cases; made here, so that pytest does not collect them without a database."""

    class Contract(published.ApplicationRecorderTestCase[MinutebookApplicationRecorder]):
        def create_recorder(self) -> MinutebookApplicationRecorder:
            return MinutebookApplicationRecorder(access, OwnStreams("Contract"))

    return Contract


CASES = [name for name in dir(published.ApplicationRecorderTestCase) if name.startswith(("test_", "optional_test_"))]


@pytest.mark.parametrize("name", CASES)
def test_published_contract(any_database: Any, name: str) -> None:
    switch_feed(any_database)
    access = LogAccess(any_database.url("app"))
    try:
        case(access)(name).debug()
    finally:
        access.close()
    assert verify_database(any_database.url("auditor")).findings == []


def test_published_contract_is_run_whole() -> None:
    assert CASES == [
        "optional_test_insert_subscribe",
        "test_concurrent_no_conflicts",
        "test_concurrent_throughput",
        "test_insert_select",
        "test_performance",
    ]


def test_b01_follower_passes_over_nothing_that_commits_late(database: Any, access: LogAccess) -> None:
    """While an older transaction is open, what commits meanwhile has no number and no follower moves past it."""
    recorder = shop(access)
    recorder.insert_events([stored(1)])
    with database.connect() as late:
        late.execute("BEGIN")
        item = [{"n": 1, "s": 1, "expected": 0, "count": 1, "kind": "es", "tenant": "default"}]
        row = raw_row("shop:Late", 1)
        late.execute(APPEND, (["es:Shop:late"], json.dumps(item), json.dumps([row]), True))
        later = MinutebookRecorder(access, OwnStreams("Shop"))
        later.insert_events([stored(2)])
        assert [found.topic for found in recorder.select_notifications(None, 10)] == ["shop:Ordered"]
        assert recorder.max_notification_id() == 1
        late.execute("COMMIT")
    found = [(n.id, n.originator_id, n.originator_version) for n in recorder.select_notifications(None, 10)]
    assert found == [(1, "a", 1), (2, "late", 1), (3, "a", 2)]


def test_insert_answers_none_where_its_numbers_are_held_back(
    database: Any, access: LogAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interop_feed, "NUMBER_WAIT_S", 0.05)
    recorder = shop(access)
    with database.connect("postgres") as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT pg_current_xact_id()")
        assert recorder.insert_events([stored(1)]) is None
        assert recorder.select_events("a") == [stored(1)]
        assert recorder.select_notifications(None, 10) == []
        holder.execute("ROLLBACK")
    assert [found.id for found in recorder.select_notifications(None, 10)] == [1]


def test_numbers_are_answered_in_the_order_given(access: LogAccess) -> None:
    recorder = shop(access)
    recorder.insert_events([stored(1, "a"), stored(1, "b")])
    ids = recorder.insert_events([stored(2, "b"), stored(2, "a"), stored(3, "b")])
    assert ids is not None
    found = {n.id: (n.originator_id, n.originator_version) for n in recorder.select_notifications(None, 10)}
    assert [found[n] for n in ids] == [("b", 2), ("a", 2), ("b", 3)]
    assert sorted(found) == [1, 2, 3, 4, 5]


def test_other_applications_and_rooms_take_numbers_but_are_not_shown(database: Any, access: LogAccess) -> None:
    recorder, till = shop(access), MinutebookApplicationRecorder(access, OwnStreams("Till"))
    assert recorder.insert_events([stored(1)]) == [1]
    assert till.insert_events([stored(1)]) == [2]
    say(database, 0, "hello")
    assert recorder.insert_events([stored(2)]) == [5]
    assert [n.id for n in recorder.select_notifications(None, 10)] == [1, 5]
    assert [n.id for n in till.select_notifications(None, 10)] == [2]
    assert (recorder.max_notification_id(), till.max_notification_id()) == (5, 2)
    rooms = MinutebookApplicationRecorder(access, LogStreams("room"))
    assert [(n.id, n.originator_id, n.topic) for n in rooms.select_notifications(None, 10)] == [
        (3, ROOM, "state_changed"),
        (4, ROOM, "message"),
    ]
    assert MinutebookApplicationRecorder(access, OwnStreams("Sho")).max_notification_id() is None


def test_feed_that_is_off_says_what_to_do(database: Any) -> None:
    access = LogAccess(database.url("app"))
    recorder = shop(access)
    calls: list[Callable[[], Any]] = [
        lambda: recorder.insert_events([stored(1)]),
        lambda: recorder.select_notifications(None, 10),
        recorder.max_notification_id,
        recorder.subscribe,
    ]
    for call in calls:
        with pytest.raises(persistence.ProgrammingError, match="audit feed of this log is off"):
            call()
    assert recorder.select_events("a") == []
    access.close()


def take(subscription: Any, count: int) -> list[Notification]:
    """The next `count` notifications."""
    return [next(subscription) for _ in range(count)]


def test_subscription_outlives_its_connections(database: Any, access: LogAccess) -> None:
    """Killed listeners and pooled connections cost nothing but time: no event is lost and none comes twice."""
    recorder = shop(access)
    recorder.insert_events([stored(1)])
    with recorder.subscribe() as subscription:
        found = take(subscription, 1)
        for version in (2, 3, 4):
            with database.connect("postgres") as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND usename = 'minutebook_app'"
                )
            writer = LogAccess(database.url("app"))
            MinutebookRecorder(writer, OwnStreams("Shop")).insert_events([stored(version)])
            writer.close()
            found += take(subscription, 1)
    assert [n.originator_version for n in found] == [1, 2, 3, 4]


def test_subscription_needs_no_wake_up(database: Any, access: LogAccess) -> None:
    """An append that notifies nobody is found by the poll (law 8)."""
    recorder = shop(access)
    recorder.insert_events([stored(1)])
    with recorder.subscribe() as subscription:
        take(subscription, 1)
        item = [{"n": 1, "s": 1, "expected": 1, "count": 1}]
        row = raw_row("shop:Silent", 2)
        with database.connect() as connection:
            connection.execute(
                "SELECT * FROM minutebook.append_v1(%s::text[], %s::json, %s::json, false, false)",
                (["es:Shop:a"], json.dumps(item), json.dumps([row])),
            )
        assert take(subscription, 1)[0].topic == "shop:Silent"


def test_subscription_looks_once_at_what_is_not_its_own(
    database: Any, access: LogAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor moves with what was looked at, in windows, not only with what matched (house-style.md, 4.2)."""
    monkeypatch.setattr(interop_feed, "WINDOW", 7)
    till = MinutebookApplicationRecorder(access, OwnStreams("Till"))
    till.insert_events([stored(n) for n in range(1, 31)])
    recorder = shop(access)
    looks = [recorder.look(0, 500)]
    while not looks[-1].is_end:
        looks.append(recorder.look(looks[-1].through, 500))
    assert [look.through for look in looks] == [7, 14, 21, 28, 30]
    recorder.insert_events([stored(1)])
    with recorder.subscribe() as subscription:
        assert take(subscription, 1)[0].id == 31
    assert till.look(0, 3).through == 3


def test_erased_event_is_passed_over(database: Any, access: LogAccess) -> None:
    recorder = shop(access)
    recorder.insert_events([stored(1), stored(2)])
    with database.connect("postgres") as connection:
        connection.execute("ALTER TABLE minutebook.events DISABLE TRIGGER USER")
        connection.execute("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 1")
    assert [n.originator_version for n in recorder.select_notifications(None, 10)] == [2]
    with pytest.raises(persistence.DataError, match="erased"):
        recorder.select_events("a")
    assert recorder.select_events("a", gt=1) == [stored(2)]


class Dog(Aggregate):
    """An aggregate as the library's users write it."""

    @event("Registered")
    def __init__(self, name: str) -> None:
        self.name = name
        self.tricks: list[str] = []

    @event("TrickAdded")
    def add_trick(self, trick: str) -> None:
        """Learns a trick."""
        self.tricks.append(trick)


class School(Application[UUID]):
    """An application as the library's users write it."""

    snapshotting_intervals = {Dog: 3}  # noqa: RUF012 - as in the library's own examples

    def register(self, name: str) -> UUID:
        """A new dog."""
        dog = Dog(name)
        self.save(dog)
        return dog.id

    def teach(self, *dogs_and_tricks: tuple[UUID, str]) -> None:
        """Several dogs at once."""
        dogs: list[Dog] = []
        for dog_id, trick in dogs_and_tricks:
            dog: Dog = self.repository.get(dog_id)
            dog.add_trick(trick)
            dogs.append(dog)
        self.save(*dogs)


def environment(database: Any) -> dict[str, str]:
    """What an operator sets."""
    return {
        "PERSISTENCE_MODULE": "minutebook.infra.interop",
        "MINUTEBOOK_DATABASE_URL": database.url("app"),
    }


def test_application_of_the_library_lives_in_our_chain(any_database: Any) -> None:
    switch_feed(any_database)
    with School(environment(any_database)) as school:
        fido, rex = school.register("Fido"), school.register("Rex")
        for trick in ("roll over", "play dead", "fetch"):
            school.teach((fido, trick), (rex, trick))
        dog: Dog = school.repository.get(fido)
        assert (dog.name, dog.tricks, dog.version) == ("Fido", ["roll over", "play dead", "fetch"], 4)
        early: Dog = school.repository.get(fido, version=2)
        assert early.tricks == ["roll over"]
        assert school.snapshots is not None
        assert [snapshot.originator_version for snapshot in school.snapshots.get(fido)] == [3]
        first: Dog = school.repository.get(fido)
        second: Dog = school.repository.get(fido)
        first.add_trick("mine")
        second.add_trick("too late")
        school.save(first)
        with pytest.raises(IntegrityError):
            school.save(second)
        section = school.notification_log["1,10"]
        assert [n.originator_version for n in section.items][:2] == [1, 1]
        assert school.recorder.max_notification_id() == 9
    report = verify_database(any_database.url("auditor"))
    assert (report.findings, report.streams, report.events) == ([], 2, 9)
    with any_database.connect("auditor") as connection:
        names = connection.execute("SELECT s.name FROM minutebook.streams s ORDER BY s.id").fetchall()
    assert names == [(f"es:School:{fido}",), (f"es:School:{rex}",)]


def test_factory_without_a_url_says_what_to_set() -> None:
    with pytest.raises(persistence.InfrastructureFactoryError, match="MINUTEBOOK_DATABASE_URL"):
        School({"PERSISTENCE_MODULE": "minutebook.infra.interop"})


def test_room_opens_with_store_and_repository_alone(database: Any) -> None:
    """Needs no feed: an aggregate recorder is enough (house-style.md, 4.1)."""
    say(database, 0, "hello", "again")
    access = LogAccess(database.url("app"))
    store: EventStore[str] = EventStore(
        RoomEventMapper(MsgspecTranscoder()), MinutebookRecorder(access, LogStreams("room"))
    )
    repository: Repository[str] = Repository(store)
    room = repository.get(ROOM, projector_func=project_room)
    assert (room.id, room.version, room.state.owner, room.state.title) == (ROOM, 3, "human:anna", "Plans")
    assert repository.get(ROOM, version=1, projector_func=project_room).version == 1
    with pytest.raises(AggregateNotFoundError):
        repository.get("zzzz2222", projector_func=project_room)
    with pytest.raises(persistence.NotSupportedError):
        store.put([next(store.get(ROOM))])
    access.close()


def test_room_log_opens_caches_and_follows(database: Any) -> None:
    switch_feed(database)
    say(database, 0, "one")
    env = {"MINUTEBOOK_DATABASE_URL": database.url("app"), "AGGREGATE_CACHE_MAXSIZE": "10",
           "PERSISTENCE_MODULE": "eventsourcing.popo", "MAPPER_TOPIC": "eventsourcing.persistence:Mapper"}  # fmt: skip
    with RoomLog(env) as log:
        assert log.open(ROOM).version == 2
        with log.recorder.subscribe(gt=1) as subscription:
            heard = [log.mapper.to_domain_event(next(subscription))]
            say(database, 2, "two")
            heard.append(log.mapper.to_domain_event(next(subscription)))
        assert [(e.originator_id, e.originator_version) for e in heard] == [(ROOM, 2), (ROOM, 3)]
        said = [e.recorded.event for e in heard if isinstance(e, LogEvent)]
        assert [e.text for e in said if isinstance(e, MessagePosted)] == ["one", "two"]
        assert log.open(ROOM).version == 3
        assert log.open(ROOM, 1).version == 1


class Words(POPOTrackingRecorder):
    """A view as the library's users write it."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, text: str, tracking: persistence.Tracking) -> None:
        """A word and how far the view is, together."""
        with self._database_lock:
            self._assert_tracking_uniqueness(tracking)
            self.said.append(text)
            self._insert_tracking(tracking)


class Listening(Projection[Words]):
    """A projection of rooms as the library's users write it."""

    name = "Listening"
    topics = ("message",)

    @singledispatchmethod
    def process_event(self, domain_event: Any, tracking: persistence.Tracking) -> None:
        """Into the view."""
        assert isinstance(domain_event, LogEvent)
        said = domain_event.recorded.event
        assert isinstance(said, MessagePosted)
        self.view.say(said.text, tracking)


def test_projection_runner_of_the_library_projects_rooms(database: Any) -> None:
    switch_feed(database)
    say(database, 0, "one", "two")
    env = environment(database) | {"LISTENING_PERSISTENCE_MODULE": "eventsourcing.popo"}
    with ProjectionRunner(application_class=RoomLog, projection_class=Listening, view_class=Words, env=env) as runner:
        say(database, 3, "three")
        runner.wait(runner.app.recorder.max_notification_id(), timeout=10)
        assert runner.projection.view.said == ["one", "two", "three"]


def test_erased_and_unknown_events_of_a_room_are_opaque(database: Any) -> None:
    say(database, 0, "secret", "kept")
    with database.connect("postgres") as connection:
        connection.execute("ALTER TABLE minutebook.events DISABLE TRIGGER USER")
        connection.execute("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 2")
        connection.execute("UPDATE minutebook.events SET schema_version = 99 WHERE seq = 3")
    with RoomLog({"MINUTEBOOK_DATABASE_URL": database.url("app")}) as log:
        found: list[Any] = list(log.events.get(ROOM))
        assert [type(e.recorded.event) is Opaque for e in found] == [False, True, True]
        assert log.open(ROOM).version == 3


def test_stopped_subscription_leaves_no_thread(access: LogAccess) -> None:
    before = threading.active_count()
    for _ in range(3):
        with shop(access).subscribe():
            pass
    assert threading.active_count() == before


def test_page_runs_as_it_stands(database: Any, tmp_path: Path) -> None:
    switch_feed(database)
    say(database, 0, "hello", "again")
    text = PAGE.read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    shown = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    script = tmp_path / "page.py"
    script.write_text(code.replace("k3v7q2mz", ROOM), "utf-8")
    env = {**os.environ, "MINUTEBOOK_DATABASE_URL": database.url("app")}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, check=False, timeout=60)
    assert done.stderr == ""
    assert done.stdout == shown[1]


def test_wake_up_is_a_hint_and_needs_no_reading(access: LogAccess) -> None:
    with access.listening() as connection:
        shop(access).insert_events([stored(1, uuid4())])
        assert [notify.channel for notify in connection.notifies(timeout=5, stop_after=1)] == ["minutebook"]
        assert isinstance(connection, psycopg.Connection)
