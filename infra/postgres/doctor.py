"""`minutebook doctor`: whether the log is guarded, whole and followed; each a named check with words for a person."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg

from ...commands.processes.answer_outbox import AnswerOutbox
from ...commands.processes.room_outbox import RoomOutbox
from ...commands.processes.unlink_outbox import UnlinkOutbox
from . import guards, views
from .errors import unavailable
from .export import verify_database
from .guards import Connection
from .listen import CHANNEL
from .migrate import MigrationError, pending
from .pool import CONNECT_TIMEOUT_S

OLD_S = 60
"""A transaction, or an event that a projection has not folded, is suspicious from this age on."""

HEAR_TIMEOUT_S = 2.0
"""Longest way of a NOTIFY to a listener (law 8's bound)."""

QUICK_STREAMS = 20
"""The newest streams that a quick examination looks into."""

MAX_SHOWN = 5
"""Faults that a detail spells out; it counts the rest."""


class Check(msgspec.Struct, frozen=True):
    """One finding, in the shape of http.md, Operations."""

    name: str
    ok: bool
    detail: str


class Urls(msgspec.Struct, frozen=True):
    """Where to look. listen: of the listener. activity: of a role that sees other sessions, if there is one."""

    auditor: str
    app: str
    listen: str
    activity: str


def examine(urls: Urls, *, quick: bool = False, told: Callable[[str], None] | None = None) -> list[Check]:
    """Every check, in a fixed order; `told` hears the name of each before it runs. Only reads, and one NOTIFY.

    `quick` looks into the newest QUICK_STREAMS streams only. A check that cannot be made is not ok. Raises Unavailable
    where the database cannot be reached at all.
    """
    try:
        return _examine(urls, told or _silent, quick=quick)
    except psycopg.OperationalError as error:
        raise unavailable(f"The database cannot be reached: {str(error).splitlines()[0]}") from error


def _examine(urls: Urls, told: Callable[[str], None], *, quick: bool) -> list[Check]:
    with psycopg.connect(urls.activity, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        if _one(connection, "SELECT to_regclass('minutebook.events') IS NULL")[0]:
            return [Check("migrations", False, "this database was not migrated; run `minutebook migrate`")]
    checks: list[Check] = []
    with psycopg.connect(urls.auditor, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        for name, look in _looks(urls, quick=quick):
            told(name)
            try:
                checks.append(look(name, connection))
            except psycopg.Error as error:
                words = error.diag.message_primary or str(error).splitlines()[0]
                checks.append(Check(name, False, f"could not be looked at: {words}"))
    return checks


def lanes_asleep(url: str) -> bool:
    """Whether no process of jobs has looked for due deliveries within OLD_S. `url` is the auditor's.

    A database that cannot be asked is not asleep: its own check has said so. Raises nothing.
    """
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            return not _one(connection, _LANES_SEEN, (OLD_S,))[0]
    except psycopg.Error:
        return False


def _silent(_name: str) -> None:
    pass


_Look = Callable[[str, Connection], Check]


def _looks(urls: Urls, *, quick: bool) -> Iterator[tuple[str, _Look]]:
    yield "database", _database
    yield "migrations", _migrations
    yield "triggers", lambda name, c: _listed(name, guards.trigger_faults(c), "every guard is there and always fires")
    yield "functions", lambda name, c: _listed(name, guards.function_faults(c), "as written, and not public")
    yield "rowSecurity", lambda name, c: _listed(name, guards.row_security_faults(c), "on, forced, with its policies")
    yield "grants", lambda name, c: _listed(name, guards.grant_faults(c), "each role has what it needs and no more")
    yield "roles", lambda name, c: _listed(name, guards.role_faults(c), "none could pass the guards by")
    yield "gaps", lambda name, c: _gaps(name, c, quick=quick)
    yield "chain", lambda name, c: _chain(name, c, urls.auditor, quick=quick)
    yield "projections", _projections
    yield "parked", _parked
    yield "jobs", _jobs
    yield "listener", lambda name, c: _listener(name, c, urls)
    yield "transactions", lambda name, _: _transactions(name, urls.activity)
    yield "auditFeed", _audit_feed


def _listed(name: str, faults: list[str], fine: str) -> Check:
    more = f" and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
    return Check(name, not faults, "; ".join(faults[:MAX_SHOWN]) + more if faults else fine)


def _one(connection: Connection, statement: Any, parameters: Any = None) -> tuple[Any, ...]:
    row = connection.execute(statement, parameters).fetchone()
    assert row is not None  # noqa: S101 - aggregates and settings always answer one row
    return row


def _database(name: str, connection: Connection) -> Check:
    version, read_only = _one(
        connection, "SELECT current_setting('server_version'), current_setting('default_transaction_read_only') = 'on'"
    )
    is_standby = _one(connection, "SELECT pg_is_in_recovery()")[0]
    words = f"PostgreSQL {version}"
    if is_standby or read_only:
        return Check(name, False, f"{words}, which takes no writes ({'a standby' if is_standby else 'read-only'})")
    return Check(name, True, words)


def _migrations(name: str, connection: Connection) -> Check:
    try:
        files = [file.name for file in pending(connection)]  # pyright: ignore[reportArgumentType]
    except MigrationError as error:
        return Check(name, False, str(error))
    return _listed(name, [f"{each} is not applied; run `minutebook migrate`" for each in files], "all applied")


_NEWEST = "SELECT coalesce(min(n.id), 0) FROM (SELECT s.id FROM minutebook.streams s ORDER BY s.id DESC LIMIT %s) n"

_GAPS = """
SELECT s.name, s.version, count(e.seq), coalesce(max(e.seq), 0)
FROM minutebook.streams s LEFT JOIN minutebook.events e ON e.stream_id = s.id
WHERE s.id >= %(first)s
GROUP BY s.id
HAVING count(e.seq) <> s.version OR coalesce(max(e.seq), 0) <> s.version OR coalesce(min(e.seq), 1) <> 1
    OR (s.version > 0 AND s.head_hash IS DISTINCT FROM (SELECT h.hash FROM minutebook.events h
                                                        WHERE h.stream_id = s.id AND h.seq = s.version))
ORDER BY s.id LIMIT 100
"""

_ORPHANS = """
SELECT DISTINCT e.stream_id FROM minutebook.events e
WHERE e.stream_id >= %(first)s AND NOT EXISTS (SELECT FROM minutebook.streams s WHERE s.id = e.stream_id) LIMIT 100
"""


def _gaps(name: str, connection: Connection, *, quick: bool) -> Check:
    first = _one(connection, _NEWEST, (QUICK_STREAMS,))[0] if quick else 0
    faults = [
        f"{stream}: version {version}, but {count} events up to {last}, or another head"
        for stream, version, count, last in connection.execute(_GAPS, {"first": first})
    ]
    faults += [
        f"events of stream {row[0]}, which is not there" for row in connection.execute(_ORPHANS, {"first": first})
    ]
    streams = _one(connection, "SELECT count(*) FROM minutebook.streams s WHERE s.id >= %s", (first,))[0]
    return _listed(name, faults, f"none in {streams} streams")


def _chain(name: str, connection: Connection, url: str, *, quick: bool) -> Check:
    if not quick:
        report = verify_database(url)
        faults = [f"{each.stream} at {each.seq}: {each.what}" for each in report.findings]
        return _listed(name, faults, f"holds over {report.events} events of {report.streams} streams")
    newest = connection.execute(
        "SELECT s.name FROM minutebook.streams s ORDER BY s.id DESC LIMIT %s", (QUICK_STREAMS,)
    ).fetchall()
    reports = [verify_database(url, row[0]) for row in newest]
    faults = [f"{each.stream} at {each.seq}: {each.what}" for report in reports for each in report.findings]
    return _listed(name, faults, f"holds over the newest {len(reports)} streams")


_LAG = """
SELECT count(*), coalesce(sum(s.version - coalesce(c.seq, 0)), 0)::bigint,
    coalesce(extract(epoch FROM clock_timestamp() - min(s.last_ts)), 0)::integer
FROM minutebook.streams s
LEFT JOIN minutebook_views.checkpoints c ON c.projection = %(name)s AND c.stream_id = s.id
WHERE s.kind = ANY (%(kinds)s) AND s.version > coalesce(c.seq, 0)
  AND NOT EXISTS (SELECT FROM minutebook_views.parked k WHERE k.projection = %(name)s AND k.stream_id = s.id)
"""


def _projections(name: str, connection: Connection) -> Check:
    faults: list[str] = []
    behind = 0
    for projection in views.PROJECTIONS.values():
        scope = {"name": projection.name, "kinds": list(projection.kinds)}
        streams, events, age_s = _one(connection, _LAG, scope)
        behind += events
        if age_s > OLD_S:
            faults.append(
                f"{projection.name} is {events} events of {streams} streams behind, the oldest {age_s} s old;"
                " is a server (or `serve --role projector`) running?"
            )
    return _listed(name, faults, f"{behind} events behind" if behind else "up to date")


def _parked(name: str, connection: Connection) -> Check:
    rows = connection.execute(
        "SELECT p.projection, coalesce(s.name, p.stream_id::text), p.seq, p.reason, p.attempts"
        " FROM minutebook_views.parked p LEFT JOIN minutebook.streams s ON s.id = p.stream_id"
        " WHERE p.projection NOT LIKE %s ORDER BY 1, 2",
        (f"%{views.SHADOW}",),
    )
    faults = [f"{view}: {stream} at {seq} ({reason}, {tries} tries)" for view, stream, seq, reason, tries in rows]
    return _listed(name, faults, "no stream")


_WAITING = """
SELECT count(*) FILTER (WHERE j.status = 'failed'), coalesce(extract(epoch FROM clock_timestamp() - min(
    greatest(j.scheduled_at, (SELECT max(e.at) FROM minutebook_jobs.procrastinate_events e WHERE e.job_id = j.id))
) FILTER (WHERE j.status = 'todo')), 0)::integer
FROM minutebook_jobs.procrastinate_jobs j
"""

_LATE_SWEEPS = """
SELECT w.name, extract(epoch FROM clock_timestamp() - w.done_at)::integer FROM minutebook_jobs.sweeps w
WHERE w.done_at < clock_timestamp() - make_interval(secs => 2 * w.every_s + %s) ORDER BY 1
"""

_LANES_SEEN = """
SELECT EXISTS (SELECT FROM minutebook_jobs.sweeps w
               WHERE w.name = 'lanes' AND w.done_at > clock_timestamp() - make_interval(secs => %s))
"""

_UNANSWERED = """
SELECT b.name, coalesce(extract(epoch FROM clock_timestamp() - min(s.last_ts)), 0)::integer
FROM minutebook_jobs.processes b
JOIN unnest(%s::text[], %s::text[]) AS f (process, kind) ON f.process = b.name
JOIN minutebook.streams s ON s.last_ts >= b.began_at AND s.kind = f.kind
LEFT JOIN minutebook_views.checkpoints c ON c.projection = 'process:' || b.name AND c.stream_id = s.id
WHERE s.version > coalesce(c.seq, 0)
  AND NOT EXISTS (SELECT FROM minutebook_views.parked k
                  WHERE k.projection = 'process:' || b.name AND k.stream_id = s.id)
  AND EXISTS (SELECT FROM minutebook_views.checkpoints a WHERE a.projection = 'process:' || b.name)
GROUP BY b.name ORDER BY 1
"""


def _followed() -> tuple[list[str], list[str]]:
    """Names of processes, and the kinds of streams that they follow."""
    pairs = [(each.name, kind) for each in (RoomOutbox, AnswerOutbox, UnlinkOutbox) for kind in each.kinds]
    return [name for name, _ in pairs], [kind for _, kind in pairs]


def _jobs(name: str, connection: Connection) -> Check:
    """Jobs that ended badly or wait for a worker, sweeps that did not come to their end, events without an answer."""
    failed, waits_s = _one(connection, _WAITING)
    faults = [f"{failed} jobs ended badly; see minutebook_jobs.procrastinate_jobs"] if failed else []
    late = [f"a job has waited for {waits_s} s"] if waits_s > OLD_S else []
    sweeps = connection.execute(_LATE_SWEEPS, (OLD_S,))
    late += [f"sweep {sweep} was last done {age_s} s ago" for sweep, age_s in sweeps]
    late += [
        f"process {process} has not answered an event of {age_s} s ago"
        for process, age_s in connection.execute(_UNANSWERED, _followed())
        if age_s > OLD_S
    ]
    if late:
        late[-1] += "; is a server (or `serve --role jobs`) running?"
    return _listed(name, faults + late, "none waits for long, none ended badly")


def _listener(name: str, connection: Connection, urls: Urls) -> Check:
    """A NOTIFY of stream 0, which is nobody's, from where the server appends to where it listens."""
    with (
        psycopg.connect(urls.listen, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as listening,
        psycopg.connect(urls.app, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as sending,
    ):
        listening.execute(f"LISTEN {CHANNEL}")  # pyright: ignore[reportArgumentType]
        began = time.monotonic()
        pid = sending.info.backend_pid
        sending.execute("SELECT pg_notify(%s, '0')", (CHANNEL,))
        heard = any(note.pid == pid for note in listening.notifies(timeout=HEAR_TIMEOUT_S, stop_after=1))
        while not heard and (left_s := began + HEAR_TIMEOUT_S - time.monotonic()) > 0:
            heard = any(note.pid == pid for note in listening.notifies(timeout=left_s, stop_after=1))
        took_ms = (time.monotonic() - began) * 1000
    if not heard:
        return Check(name, False, "a NOTIFY was not heard; through a transaction pooler, set database.listenUrl")
    servers = _one(
        connection,
        "SELECT count(*) FROM pg_stat_activity a"
        " WHERE a.application_name = 'minutebook listener' AND a.datname = current_database()",
    )[0]
    return Check(name, True, f"heard after {took_ms:.0f} ms; {servers} processes listen")


_TRANSACTIONS = """
SELECT a.pid, coalesce(a.application_name, ''), extract(epoch FROM clock_timestamp() - a.xact_start)::integer
FROM pg_stat_activity a
WHERE a.backend_xid IS NOT NULL AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
  AND (a.datname = current_database() OR (SELECT l.audit_feed FROM minutebook.log l))
UNION ALL
SELECT NULL, format('prepared transaction %s', p.gid), extract(epoch FROM clock_timestamp() - p.prepared)::integer
FROM pg_prepared_xacts p
ORDER BY 3 DESC
"""


def _transactions(name: str, url: str) -> Check:
    """Transactions that wrote: here, or with the audit feed on, which waits for all, anywhere in the cluster."""
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as seeing:
        rows = seeing.execute(_TRANSACTIONS).fetchall()
    faults = [
        f"{f'pid {pid}' if pid else application} has been open for {age_s} s{f' ({application})' if pid else ''}"
        for pid, application, age_s in rows
        if age_s is not None and age_s > OLD_S
    ]
    hidden = [str(pid) for pid, _, age_s in rows if age_s is None]
    if hidden and not faults:
        return Check(name, True, f"the age of pid {', '.join(hidden)} is hidden; grant pg_read_all_stats to see it")
    return _listed(name, faults, f"none has been open for longer than {OLD_S} s")


_FEED = """
SELECT count(*), coalesce(sum(q.to_seq - q.from_seq + 1), 0)::bigint,
    coalesce(extract(epoch FROM clock_timestamp() - min(e.ts) FILTER (
        WHERE q.txid >= pg_snapshot_xmin(pg_current_snapshot()))), 0)::integer
FROM minutebook.feed_queue q LEFT JOIN minutebook.events e ON e.stream_id = q.stream_id AND e.seq = q.from_seq
"""


def _audit_feed(name: str, connection: Connection) -> Check:
    if not _one(connection, "SELECT l.audit_feed FROM minutebook.log l")[0]:
        return Check(name, True, "off")
    ranges, events, held_s = _one(connection, _FEED)
    if held_s > OLD_S:
        return Check(
            name,
            False,
            f"events of {held_s} s ago wait for an older transaction (see transactions), or the database was restored"
            " without `minutebook restored`",
        )
    return Check(name, True, f"{events} events in {ranges} ranges wait for the next reader" if ranges else "up to date")
