"""The aggregate recorder: the library's published contract, and what it does not ask for."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import TestCase
from urllib.parse import parse_qs, quote, urlsplit
from uuid import UUID, uuid4

import pytest
from eventsourcing import persistence
from eventsourcing.persistence import IntegrityError, StoredEvent
from eventsourcing.tests import persistence as published
from hypothesis import given
from hypothesis import strategies as st
from minutebook.infra.interop_log import MAX_STATE_BYTES, LogAccess, LogStreams, OwnStreams
from minutebook.infra.interop_recorder import MinutebookRecorder
from minutebook.infra.interop_snapshots import MinutebookSnapshotRecorder
from minutebook.infra.postgres.export import verify_database
from ulid_transform import ulid_now


@pytest.fixture
def access(database: Any) -> Iterator[LogAccess]:
    """Connections of the app role to a fresh database."""
    opened = LogAccess(database.url("app"))
    yield opened
    opened.close()


@pytest.fixture
def recorder(access: LogAccess) -> MinutebookRecorder:
    """The recorder of an application called Shop."""
    return MinutebookRecorder(access, OwnStreams("Shop"))


def stored(
    version: int, originator: UUID | str = "a", state: bytes = b"{}", topic: str = "shop:Ordered"
) -> StoredEvent:
    """A stored event of the library."""
    return StoredEvent(originator, version, topic, state)


def case(access: LogAccess, new_id: Callable[[], UUID | str]) -> type[TestCase]:
    """The published cases; made here, so that pytest does not collect them without a database."""

    class Contract(published.AggregateRecorderTestCase):
        def create_recorder(self) -> MinutebookRecorder:
            return MinutebookRecorder(access, OwnStreams("Contract"))

        def new_originator_id(self) -> UUID | str:
            return new_id()

    return Contract


@pytest.mark.parametrize("new_id", [uuid4, lambda: str(uuid4()), lambda: f"order/{uuid4()}"])
@pytest.mark.parametrize("name", ["test_insert_and_select", "test_performance"])
def test_published_contract(any_database: Any, name: str, new_id: Callable[[], UUID | str]) -> None:
    access = LogAccess(any_database.url("app"))
    try:
        case(access, new_id)(name).debug()
    finally:
        access.close()
    report = verify_database(any_database.url("auditor"))
    assert report.findings == []
    assert report.events > 3


def test_published_contract_is_run_whole() -> None:
    names = [name for name in dir(published.AggregateRecorderTestCase) if name.startswith(("test_", "optional_test_"))]
    assert names == ["test_insert_and_select", "test_performance"]


def test_conflict_over_several_aggregates_stores_nothing(any_database: Any) -> None:
    access = LogAccess(any_database.url("app"))
    recorder = MinutebookRecorder(access, OwnStreams("Shop"))
    recorder.insert_events([stored(1, "a"), stored(1, "b")])
    for conflicting in (
        [stored(2, "a"), stored(1, "b")],
        [stored(1, "c"), stored(3, "b")],
        [stored(1, "c"), stored(2, "d")],
        [stored(2, "a"), stored(4, "a")],
    ):
        with pytest.raises(IntegrityError):
            recorder.insert_events(conflicting)
    assert [len(recorder.select_events(name)) for name in "abcd"] == [1, 1, 0, 0]
    recorder.insert_events([stored(2, "a"), stored(2, "b"), stored(3, "a")])
    assert [len(recorder.select_events(name)) for name in "ab"] == [3, 2]
    access.close()


def test_one_of_two_writers_wins_and_the_other_learns_it(recorder: MinutebookRecorder) -> None:
    """Both pass the look at the head, so that the append itself must tell them apart."""
    recorder.insert_events([stored(1, "a"), stored(1, "b")])
    start, outcomes = threading.Barrier(8), list[str]()

    def write(n: int) -> None:
        start.wait()
        try:
            recorder.insert_events([stored(2, "ab"[n % 2]), stored(2, "ba"[n % 2])])
            outcomes.append("stored")
        except IntegrityError:
            outcomes.append("refused")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["stored"]
    assert [len(recorder.select_events(name)) for name in "ab"] == [2, 2]


def test_conflict_that_the_append_alone_can_see_stores_nothing(database: Any, recorder: MinutebookRecorder) -> None:
    """One aggregate moves on between the look at its head and the append: the other one stays as it is, too."""
    recorder.insert_events([stored(1, "a"), stored(1, "b")])
    outcome = list[type[Exception] | None]()

    def write() -> None:
        try:
            recorder.insert_events([stored(2, "a"), stored(2, "b")])
            outcome.append(None)
        except IntegrityError as error:
            outcome.append(type(error))

    item = [{"n": 1, "s": 1, "expected": 1, "count": 1}]
    payload = {"encoding": "text", "state": ""}
    base: dict[str, Any] = {"i": 1, "k": 1, "v": 1, "ak": "system", "ai": "es:Shop", "o": "client", "rd": [], "cl": []}
    row = [base | {"id": ulid_now(), "t": "shop:Other", "p": payload, "oc": "es:Shop", "ok": "2"}]
    with database.connect() as other, database.connect("postgres") as watcher:
        other.execute("BEGIN")
        other.execute(
            "SELECT * FROM minutebook.append_v1(%s::text[], %s::json, %s::json, false)",
            (["es:Shop:b"], json.dumps(item), json.dumps(row)),
        )
        thread = threading.Thread(target=write)
        thread.start()
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while watcher.execute(waiting).fetchone() == (0,):
            assert thread.is_alive()
        other.execute("COMMIT")
        thread.join()
    assert outcome == [IntegrityError]
    assert [[event.topic for event in recorder.select_events(name)] for name in "ab"] == [
        ["shop:Ordered"],
        ["shop:Ordered", "shop:Other"],
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_versions_that_count_from_0_or_1(recorder: MinutebookRecorder, first: int) -> None:
    recorder.insert_events([stored(first + n) for n in range(5)])

    def versions(**bounds: Any) -> list[int]:
        return [event.originator_version - first for event in recorder.select_events("a", **bounds)]

    assert versions() == [0, 1, 2, 3, 4]
    assert versions(gt=first + 1) == [2, 3, 4]
    assert versions(lte=first + 1) == [0, 1]
    assert versions(gt=first, lte=first + 3, desc=True, limit=2) == [3, 2]
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(first)])
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(first + 6)])
    recorder.insert_events([stored(first + 5)])


def test_aggregate_cannot_begin_in_the_middle(recorder: MinutebookRecorder) -> None:
    with pytest.raises(IntegrityError, match="does not exist"):
        recorder.insert_events([stored(2)])


STATES = [b"", b"{}", b'{"b": 1, "a": [1.10, 1e3]}', "é\u2028\uffff😀".encode(), b"\x00", b"\xff\xfe", b'"\\u0000"']


@pytest.mark.parametrize("state", STATES)
def test_state_comes_back_byte_for_byte(recorder: MinutebookRecorder, state: bytes) -> None:
    recorder.insert_events([stored(1, state=state)])
    assert recorder.select_events("a") == [stored(1, state=state)]


def test_any_state_comes_back_byte_for_byte(recorder: MinutebookRecorder) -> None:
    @given(st.lists(st.one_of(st.binary(), st.text().map(str.encode)), min_size=1, max_size=5))
    def come_back(states: list[bytes]) -> None:
        originator = uuid4()
        events = [stored(n, originator, state) for n, state in enumerate(states)]
        recorder.insert_events(events)
        assert recorder.select_events(originator) == events

    come_back()


def test_state_that_is_too_large_is_refused(recorder: MinutebookRecorder) -> None:
    recorder.insert_events([stored(1, state=b"x" * MAX_STATE_BYTES)])
    with pytest.raises(persistence.DataError, match="at most"):
        recorder.insert_events([stored(2, state=b"x" * (MAX_STATE_BYTES + 1))])


@given(st.one_of(st.uuids(), st.text(), st.uuids().map(str), st.uuids().map(lambda found: f"={found}")))
def test_originator_ids_and_stream_names_map_both_ways(originator: UUID | str) -> None:
    streams = OwnStreams("Shop")
    found = streams.originator(streams.name(originator))
    assert found == originator
    assert type(found) is type(originator)


def test_applications_do_not_share_aggregates(access: LogAccess) -> None:
    shop, till = (MinutebookRecorder(access, OwnStreams(name)) for name in ("Shop", "Till"))
    shop.insert_events([stored(1)])
    assert till.select_events("a") == []
    with pytest.raises(ValueError, match="colon"):
        OwnStreams("Shop:a")


def test_events_carry_their_application_as_actor(recorder: MinutebookRecorder, database: Any) -> None:
    recorder.insert_events([stored(0)])
    with database.connect("auditor") as connection:
        row = connection.execute(
            "SELECT s.name, s.kind, e.seq, e.type, e.actor_kind, e.actor_id, e.origin_key"
            " FROM minutebook.events e JOIN minutebook.streams s ON s.id = e.stream_id"
        ).fetchone()
    assert row == ("es:Shop:a", "es", 1, "shop:Ordered", "system", "es:Shop", "0")


def test_rooms_are_read_only(access: LogAccess) -> None:
    rooms = MinutebookRecorder(access, LogStreams("room"))
    with pytest.raises(persistence.NotSupportedError, match="read-only"):
        rooms.insert_events([stored(1, "abcd2345")])
    assert rooms.select_events("abcd2345") == []


def test_tracking_is_refused(recorder: MinutebookRecorder) -> None:
    with pytest.raises(persistence.NotSupportedError, match="tracking"):
        recorder.insert_events([stored(1)], tracking=persistence.Tracking("upstream", 1))
    assert recorder.select_events("a") == []


def test_wrong_database_or_role_says_what_to_do(database: Any) -> None:
    with pytest.raises(persistence.ProgrammingError, match="minutebook_app"):
        LogAccess(database.url("retention"))
    with pytest.raises(persistence.OperationalError):
        LogAccess(database.url("app").replace(database.name, "nowhere"))


class Cutter:
    """A proxy before the database that can drop the answer to one statement and the connection with it.

    `cut` is called with what a client sends; where it answers true, the statement goes on to the server, and the client
    sees the connection break once the server has answered.
    """

    def __init__(self, server: str, cut: Callable[[bytes], bool]) -> None:
        self._server, self._cut = server, cut
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.cuts = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            doomed = threading.Event()
            for args in ((client, server, doomed, True), (server, client, doomed, False)):
                self._threads.append(threading.Thread(target=self._copy, args=args))
                self._threads[-1].start()

    def _copy(self, source: socket.socket, target: socket.socket, doomed: threading.Event, is_client: bool) -> None:
        with source:
            while data := _receive(source):
                if is_client and not doomed.is_set() and self._cut(data):
                    self.cuts += 1
                    doomed.set()
                elif not is_client and doomed.is_set():
                    break
                with_suppressed_send(target, data)
            for end in (source, target):
                _shut(end)

    def close(self) -> None:
        """Stop accepting and wait for what is open."""
        _shut(self._socket)
        self._socket.close()
        for thread in self._threads:
            thread.join()


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65_536)
    except OSError:
        return b""


def with_suppressed_send(target: socket.socket, data: bytes) -> None:
    """Send, whether or not anybody is still there."""
    try:
        target.sendall(data)
    except OSError:
        _shut(target)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        end.close()


@contextmanager
def cutter(database: Any, cut: Callable[[bytes], bool]) -> Generator[tuple[Cutter, LogAccess]]:
    """A database behind a Cutter."""
    parts = urlsplit(str(database.url("app")))
    query = parse_qs(parts.query)
    folder, port = query["host"][0], query.get("port", ["5432"])[0]
    proxy = Cutter(f"{folder}/.s.PGSQL.{port}", cut)
    url = (
        f"postgresql://minutebook_app@127.0.0.1:{proxy.port}/{quote(database.name)}?sslmode=disable&gssencmode=disable"
    )
    access = LogAccess(url)
    try:
        yield proxy, access
    finally:
        access.close()
        proxy.close()


@pytest.mark.parametrize("aggregates", [1, 2])
def test_lost_answer_is_no_conflict(database: Any, aggregates: int) -> None:
    """The commit lands, the connection breaks, the second try finds its own events (house-style.md, 4.2)."""
    armed = threading.Event()
    marker = b"shop:Ordered" if aggregates == 1 else b"COMMIT"

    def cut(sent: bytes) -> bool:
        if marker in sent and armed.is_set():
            armed.clear()
            return True
        return False

    with cutter(database, cut) as (proxy, access):
        recorder = MinutebookRecorder(access, OwnStreams("Shop"))
        armed.set()
        recorder.insert_events([stored(1, name) for name in "ab"[:aggregates]])
        assert proxy.cuts == 1
        assert [len(recorder.select_events(name)) for name in "ab"[:aggregates]] == [1] * aggregates
        armed.set()
        recorder.insert_events([stored(2, name) for name in "ab"[:aggregates]])
        assert proxy.cuts == 2
        with pytest.raises(IntegrityError):
            recorder.insert_events([stored(2, "a")])
        armed.set()
        with pytest.raises(IntegrityError):
            recorder.insert_events([stored(2, name) for name in "ab"[:aggregates]])
    assert verify_database(database.url("auditor")).findings == []


def test_newest_snapshot_is_kept(access: LogAccess, recorder: MinutebookRecorder) -> None:
    snapshots = MinutebookSnapshotRecorder(access, OwnStreams("Shop"))
    recorder.insert_events([stored(n) for n in (1, 2, 3, 4)])
    assert snapshots.select_events("a", desc=True, limit=1) == []
    for version in (2, 4, 3):
        snapshots.insert_events([stored(version, state=b"\x00%d" % version, topic="shop:Snapshot")])
    newest = [stored(4, state=b"\x004", topic="shop:Snapshot")]
    assert snapshots.select_events("a", desc=True, limit=1) == newest
    assert snapshots.select_events("a", desc=True, limit=1, lte=4) == newest
    assert snapshots.select_events("a", desc=True, limit=1, lte=3) == []
    snapshots.insert_events([stored(1, "nobody")])
    assert snapshots.select_events("nobody") == []
