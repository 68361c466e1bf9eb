"""What the embedded server needs of the machine: an account, open paths, a private socket folder, runs."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

SERVER_ACCOUNT = "minutebook_postgres"
"""The system user that runs PostgreSQL when Minutebook runs as root: PostgreSQL refuses root."""

SERVER_PORT = 5432
"""Not a TCP port here: only the last part of the socket's file name."""

SOCKET_NAME = f".s.PGSQL.{SERVER_PORT}"

MAX_SOCKET_PATH_BYTES = 107 if sys.platform == "linux" else 103
"""Longest path of a Unix socket, its closing NUL not counted."""

ACCOUNT_TIMEOUT_S = 30.0
"""Longest wait for `useradd`."""

PASSED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""All that PostgreSQL's programs see of our environment: no key of ours, no PG* variable that redirects
them."""


class DatabaseStartError(Exception):
    """The embedded PostgreSQL cannot be had. `detail` is for the operator: what is wrong and what to do."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True)
class Account:
    """The unprivileged account that owns the cluster's files and runs its server, when we are root."""

    uid: int
    gid: int


def cluster_account(pgdata: Path) -> Account | None:
    """Who runs the server for `pgdata`: None for ourselves, or an Account when we are root.

    A cluster that exists keeps its owner. Raises DatabaseStartError when its owner cannot be used from here.
    """
    found = pgdata.stat() if pgdata.is_dir() else None
    if os.geteuid() != 0:
        if found and found.st_uid != os.geteuid():
            raise DatabaseStartError(
                f"{pgdata} belongs to {user_name(found.st_uid)}: run Minutebook as that user, or choose "
                "another data directory."
            )
        return None
    if found is None or not any(pgdata.iterdir()):
        return _system_account()
    if found.st_uid == 0:
        raise DatabaseStartError(
            f"{pgdata} belongs to root, and PostgreSQL does not run as root: "
            f"give it to an account that may (`chown -R {SERVER_ACCOUNT} ...`)."
        )
    return Account(found.st_uid, found.st_gid)


def user_name(uid: int) -> str:
    """The login name of `uid`, or `uid N` where the machine knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _system_account() -> Account:
    found = _find_account()
    if found is None:
        failure = _create_account()
        # Another process may have made it between our look and our try.
        found = _find_account()
        if found is None:
            raise DatabaseStartError(
                f"PostgreSQL does not run as root, and its system user {SERVER_ACCOUNT} could not be made "
                f"({failure}). Make it (`useradd --system {SERVER_ACCOUNT}`), run Minutebook as another "
                "user, or set a database URL."
            )
    if found.uid == 0:
        raise DatabaseStartError(f"The system user {SERVER_ACCOUNT} must not have uid 0: PostgreSQL refuses root.")
    return found


def _find_account() -> Account | None:
    try:
        entry = pwd.getpwnam(SERVER_ACCOUNT)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)


def _create_account() -> str:
    command = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    command += ["--shell", "/usr/sbin/nologin", SERVER_ACCOUNT]
    try:
        done = run_program(command, None, timeout_s=ACCOUNT_TIMEOUT_S)
    except DatabaseStartError as error:
        return error.detail
    return last_lines(done.stderr, 1) or f"useradd ended with {done.returncode}"


def open_the_way(path: Path, account: Account) -> None:
    """Let `account` pass through the parents of `path`: search right only where it is missing, never read.

    Raises OSError where a folder's mode cannot be changed.
    """
    for folder in reversed(path.parents):
        status = folder.stat()
        if status.st_mode & stat.S_IXOTH or (status.st_uid == account.uid and status.st_mode & stat.S_IXUSR):
            continue
        folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)
        log.info("gave others the right to pass through (not to list) %s, for %s", folder, SERVER_ACCOUNT)


def open_install(install: Path) -> None:
    """Make the embedded programs readable by everybody (o+rX), for installs made under a strict umask."""
    for part in ("bin", "lib", "share"):
        for folder, _, files in os.walk(install / part):
            for name in (folder, *(str(Path(folder) / file) for file in files)):
                _open_one(Path(name))


def _open_one(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return
    wanted = stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
    if mode & wanted != wanted:
        path.chmod(stat.S_IMODE(mode) | wanted)


def socket_folder(pgdata: Path, account: Account | None) -> Path:
    """The folder for the server's socket, which only its owner (and root) can enter.

    That is `pgdata` where a client can name it: short enough, and without a comma, which separates hosts in a
    URL. Otherwise a private folder, made here, named after a hash of `pgdata`. Raises DatabaseStartError when
    there is none to be had.
    """
    name = os.fsencode(pgdata / SOCKET_NAME)
    if len(name) <= MAX_SOCKET_PATH_BYTES and b"," not in name and _is_utf8(name):
        return pgdata
    owner = account.uid if account else os.geteuid()
    leaf = f"minutebook-{owner}-{hashlib.sha256(os.fsencode(pgdata)).hexdigest()[:16]}"
    for base in _socket_bases():
        folder = base / leaf
        if len(os.fsencode(folder / SOCKET_NAME)) <= MAX_SOCKET_PATH_BYTES and os.access(base, os.W_OK | os.X_OK):
            make_private(folder, account)
            return folder
    raise DatabaseStartError(
        f"The path {pgdata} is too long for a Unix socket, and no folder for temporary files can hold the "
        "socket instead: choose a shorter data directory."
    )


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _socket_bases() -> list[Path]:
    # As root, only folders that the server's account can reach without our widening them.
    if os.geteuid() == 0:
        return [Path("/run"), Path("/var/run"), Path("/tmp")]  # noqa: S108 make_private checks who owns it
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    temporary = [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 likewise
    return [Path(runtime), *temporary] if runtime and Path(runtime).is_absolute() else temporary


def make_private(folder: Path, account: Account | None) -> None:
    """Make `folder` for the server's account alone; one that exists must be exactly that already.

    Raises DatabaseStartError for a folder that somebody else made or could enter.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    owner = account.uid if account else os.geteuid()
    found = folder.lstat()
    if account and found.st_uid == 0 and stat.S_ISDIR(found.st_mode):
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise DatabaseStartError(
            f"{folder} must be a folder of {user_name(owner)} that nobody else can enter, and it is not: "
            "remove it, or choose a shorter data directory."
        )


def run_program(
    argv: Sequence[str | Path], account: Account | None, *, timeout_s: float, log_fd: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs to its end, as `account`, in a session of its own.

    Its own session keeps a Ctrl-C at our terminal from it. With `log_fd` its stderr goes there. Raises
    DatabaseStartError when the program cannot be run, or takes longer than `timeout_s` seconds and is ended.
    """
    name = Path(argv[0]).name
    try:
        process = subprocess.Popen(  # noqa: S603 no shell, and every program is named by us
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if log_fd is None else log_fd,
            text=True,
            errors="replace",
            cwd="/",
            env=_environment(),
            umask=0o077,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except OSError as error:
        raise DatabaseStartError(f"{argv[0]} cannot be run: {error.strerror}.") from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            # The whole session: initdb has children of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise DatabaseStartError(f"{name} did not end within {timeout_s:.0f} s.") from error
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err or "")


def _environment() -> dict[str, str]:
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    # useradd lives in sbin, which the PATH of a service may lack.
    path = os.pathsep.join([passed.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    return {**passed, "PATH": path, "LC_ALL": "C"}


def last_lines(text: str, count: int) -> str:
    """The last `count` lines of `text` that are not blank, joined by newlines."""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-count:])
