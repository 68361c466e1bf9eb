"""The embedded PostgreSQL: starting, joining, leaving, and coming back after every kind of sudden death."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import psycopg
import pytest
from minutebook.infra.postgres import embedded_cluster, embedded_host
from minutebook.infra.postgres.embedded import DatabaseStartError, EmbeddedPostgres
from scratch import SCRATCH

IS_ROOT = os.geteuid() == 0
AS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="needs root, to act as several users")

DEBIAN_15 = next(iter(Path("/usr/lib/postgresql").glob("15/bin")), None)
VERSIONS = [
    pytest.param(None, "18", id="18"),
    pytest.param(DEBIAN_15, "15", id="15", marks=pytest.mark.skipif(DEBIAN_15 is None, reason="no PostgreSQL 15 here")),
]

# Opens the data directory of argv and obeys lines on stdin; each answer is one line of JSON.
USER_PROCESS = """
import json, os, pwd, signal, sys
from pathlib import Path
import psycopg
from minutebook.infra.postgres.embedded import DatabaseStartError, EmbeddedPostgres

def say(**answer):
    print(json.dumps(answer), flush=True)

bin_dir = Path(sys.argv[2]) if sys.argv[2] else None
if sys.argv[3]:
    # Only now: Python itself may stand where that user cannot read.
    os.setgroups([]), os.setgid(65534), os.setuid(pwd.getpwnam(sys.argv[3]).pw_uid)
try:
    use = EmbeddedPostgres.open(Path(sys.argv[1]), bin_dir=bin_dir, fsync=False, start_timeout_s=20)
except DatabaseStartError as error:
    say(refused=error.detail)
    sys.exit(1)
signal.signal(signal.SIGINT, signal.SIG_IGN)
say(uid=os.geteuid())
for line in sys.stdin:
    if line.strip() == "query":
        with psycopg.connect(use.url()) as connection:
            say(rows=connection.execute("select count(*) from notes").fetchone()[0])
    elif line.startswith("connect "):
        try:
            psycopg.connect(line.split()[1]).close()
            say(connected=True)
        except psycopg.OperationalError as error:
            say(connected=False, why=str(error))
    else:
        use.close()
        say(closed=True)
"""


class UserProcess:
    """A second real process that uses a data directory."""

    def __init__(
        self, data_dir: Path, bin_dir: Path | None = None, user: str | None = None, *, wait: bool = True
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER_PROCESS, str(data_dir), str(bin_dir or ""), user or ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        self.start = self._answer() if wait else {}

    def ask(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> None:
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A fresh folder. Not `tmp_path`: a second pytest run shuts its parent to the server's account."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH)).resolve()
    yield folder
    for process in list(psutil.process_iter()):
        try:
            is_left = process.name() == "postgres" and Path(process.cwd()).is_relative_to(folder)
        except (psutil.Error, OSError):
            continue
        if is_left:
            process.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    """A stopped cluster of PostgreSQL 18 with a table `notes`, to be copied: initdb takes the longest."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH)).resolve()
    with opened(folder / "data") as use:
        run_sql(use, "create table notes ()")
    yield folder / "data"
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(place: Path) -> Path:
    """A data directory that does not exist yet."""
    return place / "data"


@pytest.fixture
def cluster(place: Path, made_once: Path) -> Path:
    """A data directory with a stopped cluster in it."""
    subprocess.run(["cp", "-a", str(made_once), str(place / "data")], check=True)
    return place / "data"


def opened(folder: Path, bin_dir: Path | None = None, start_timeout_s: float = 20) -> EmbeddedPostgres:
    return EmbeddedPostgres.open(folder, bin_dir=bin_dir, fsync=False, start_timeout_s=start_timeout_s)


def run_sql(use: EmbeddedPostgres, statement: str) -> Any:
    with psycopg.connect(use.url()) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def server_of(folder: Path) -> psutil.Process:
    process = embedded_cluster.postmaster(folder / "postgres")
    assert process is not None
    return process


def socket_dir_of(use: EmbeddedPostgres) -> Path:
    return Path(parse_qs(urlsplit(use.url()).query)["host"][0])


def server_uid(folder: Path) -> int:
    return (folder / "postgres").stat().st_uid


def write_pid_file(folder: Path, content: str) -> None:
    path = folder / "postgres" / "postmaster.pid"
    path.write_text(content)
    os.chown(path, server_uid(folder), -1)


def refusal(folder: Path, *, fsync: bool = False, start_timeout_s: float = 20) -> str:
    with pytest.raises(DatabaseStartError) as caught:
        EmbeddedPostgres.open(folder, fsync=fsync, start_timeout_s=start_timeout_s).close()
    return caught.value.detail


@pytest.mark.parametrize(("bin_dir", "major"), VERSIONS)
def test_starts_joins_and_keeps_data(data_dir: Path, bin_dir: Path | None, major: str) -> None:
    with opened(data_dir, bin_dir) as first:
        assert first.server_version.partition(".")[0] == major
        run_sql(first, "create table notes (word text)")
        run_sql(first, "insert into notes values ('kept')")
        server = server_of(data_dir)
        with opened(data_dir, bin_dir) as second:
            assert run_sql(second, "select word from notes") == "kept"
            assert server_of(data_dir) == server
        assert (
            run_sql(first, "select pg_encoding_to_char(encoding) from pg_database where datname = 'minutebook'")
            == "UTF8"
        )
        assert run_sql(first, "show timezone") == "UTC"
        assert run_sql(first, "show jit") == "off"
        assert run_sql(first, "show listen_addresses") == ""
    assert not embedded_cluster.is_alive(server)
    with opened(data_dir, bin_dir) as again:
        assert run_sql(again, "select word from notes") == "kept"


def test_fsync_is_on_unless_told_otherwise(data_dir: Path) -> None:
    with EmbeddedPostgres.open(data_dir) as use:
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
            assert run_sql(use, f"show {setting}") == "on"


def test_a_durable_use_refuses_a_server_that_may_lose_data(cluster: Path) -> None:
    with opened(cluster) as careless:
        assert "fsync off" in refusal(cluster, fsync=True)
        assert run_sql(careless, "select 1") == 1


@pytest.mark.parametrize(("bin_dir", "major"), VERSIONS)
def test_the_server_stops_only_after_its_last_user(data_dir: Path, bin_dir: Path | None, major: str) -> None:
    with opened(data_dir, bin_dir) as ours:
        run_sql(ours, "create table notes ()")
        server = server_of(data_dir)
        other = UserProcess(data_dir, bin_dir)
    assert server_of(data_dir) == server
    assert other.ask("query") == {"rows": 0}
    assert other.ask("close") == {"closed": True}
    assert not embedded_cluster.is_alive(server)
    other.end()


def test_close_may_be_called_twice(cluster: Path) -> None:
    first, second = opened(cluster), opened(cluster)
    first.close()
    first.close()
    assert run_sql(second, "select 1") == 1
    second.close()


def test_a_forked_child_that_closes_leaves_its_parent_a_user(cluster: Path) -> None:
    with opened(cluster) as use:
        child = os.fork()
        if child == 0:
            use.close()
            os._exit(0)
        os.waitpid(child, 0)
        opened(cluster).close()
        assert run_sql(use, "select 1") == 1


def test_a_killed_user_no_longer_counts(cluster: Path) -> None:
    other = UserProcess(cluster)
    server = server_of(cluster)
    other.kill()
    assert embedded_cluster.is_alive(server)
    with opened(cluster):
        assert server_of(cluster) == server
    assert not embedded_cluster.is_alive(server)


@pytest.mark.parametrize(("bin_dir", "major"), VERSIONS)
def test_starts_again_after_the_postmaster_was_killed(place: Path, bin_dir: Path | None, major: str) -> None:
    with EmbeddedPostgres.open(place / "data", bin_dir=bin_dir) as first:
        run_sql(first, "create table notes ()")
        server_of(place / "data").kill()
        with EmbeddedPostgres.open(place / "data", bin_dir=bin_dir) as second:
            assert run_sql(second, "select count(*) from notes") == 0


def test_an_orphan_that_does_not_leave_is_ended(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_cluster, "ORPHAN_GRACE_S", 0.2)
    busy = threading.Event()
    with opened(cluster) as first, psycopg.connect(first.url()) as connection:
        connection.add_notice_handler(lambda _: busy.set())

        def spin() -> None:
            with pytest.raises(psycopg.OperationalError):
                connection.execute("do $$ begin raise notice 'busy'; loop end loop; end $$")

        thread = threading.Thread(target=spin)
        thread.start()
        assert busy.wait(10)
        server_of(cluster).kill()
        with opened(cluster) as second:
            assert run_sql(second, "select 1") == 1
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["dead", "ourselves", "same account", "other cluster", "garbage", "empty", "half"])
def test_stale_pid_files_do_not_stop_a_start(cluster: Path, place: Path, kind: str) -> None:
    with opened(cluster) as use:
        full = (cluster / "postgres" / "postmaster.pid").read_text()
    sleeper = subprocess.Popen(["sleep", "600"], user=server_uid(cluster) if IS_ROOT else None)
    neighbour = opened(place / "neighbour") if kind == "other cluster" else None
    gone = subprocess.Popen(["true"])
    gone.wait()
    pids = {"dead": gone.pid, "ourselves": os.getpid(), "same account": sleeper.pid}
    if neighbour:
        pids["other cluster"] = server_of(place / "neighbour").pid
    texts = {"garbage": "\x00\xff not a pid\n", "empty": "", "half": full[:4]}
    text = texts.get(kind) if kind in texts else re.sub(r"\A\d+", str(pids[kind]), full)
    assert text is not None
    write_pid_file(cluster, text)
    lock = cluster / "postgres" / ".s.PGSQL.5432.lock"
    lock.write_text(text)
    with opened(cluster) as use:
        assert run_sql(use, "select count(*) from notes") == 0
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()
    if neighbour:
        assert run_sql(neighbour, "select 1") == 1
        neighbour.close()


def test_a_damaged_pid_file_of_a_live_server_is_no_reason_for_a_second_one(cluster: Path) -> None:
    with opened(cluster) as use:
        server = server_of(cluster)
        good = (cluster / "postgres" / "postmaster.pid").read_text()
        write_pid_file(cluster, "damaged")
        assert "answers" in refusal(cluster)
        write_pid_file(cluster, good)
        assert run_sql(use, "select 1") == 1
        assert server_of(cluster) == server


def test_a_server_that_does_not_answer_is_left_alone(cluster: Path) -> None:
    with opened(cluster) as use:
        server = server_of(cluster)
        server.suspend()
        try:
            detail = refusal(cluster, start_timeout_s=1)
        finally:
            server.resume()
        assert str(server.pid) in detail
        assert "does not accept connections" in detail
        assert run_sql(use, "select 1") == 1


def test_the_wait_for_another_start_is_bounded(cluster: Path) -> None:
    with (cluster / "postgres.start").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "Another process" in refusal(cluster, start_timeout_s=0.1)


@pytest.mark.parametrize("name", ["with space ünï 数", "a,b", "q'\"$HOME`id`%20\\", "x" * 90 + "/" + "y" * 90])
def test_any_path_will_do(data_dir: Path, name: str) -> None:
    folder = data_dir / name
    with opened(folder) as use:
        assert run_sql(use, "select current_database()") == "minutebook"
        sockets = socket_dir_of(use)
        assert (sockets == folder / "postgres") == (len(name) < 100 and "," not in name)
        status = sockets.stat()
        assert stat.S_IMODE(status.st_mode) == 0o700
        assert status.st_uid == server_uid(folder)
        with opened(folder) as second:
            assert second.url() == use.url()
    assert sockets.exists() == (sockets == folder / "postgres")


@AS_ROOT
def test_a_socket_folder_of_somebody_else_is_refused(data_dir: Path) -> None:
    folder = data_dir / ("z" * 120)
    with opened(folder) as use:
        sockets = socket_dir_of(use)
    sockets.mkdir(mode=0o700)
    try:
        os.chown(sockets, pwd.getpwnam("nobody").pw_uid, -1)
        assert str(sockets) in refusal(folder)
        os.chown(sockets, server_uid(folder), -1)
        sockets.chmod(0o755)
        assert str(sockets) in refusal(folder)
        sockets.rmdir()
        sockets.symlink_to(folder / "postgres")
        assert str(sockets) in refusal(folder)
    finally:
        sockets.unlink() if sockets.is_symlink() else sockets.rmdir()


def test_a_cluster_of_another_version_is_named(cluster: Path) -> None:
    (cluster / "postgres" / "PG_VERSION").write_text("17\n")
    detail = refusal(cluster)
    assert "PostgreSQL 17" in detail
    assert "PostgreSQL 18" in detail


def test_a_loosened_cluster_is_shut_to_others_again(cluster: Path) -> None:
    (cluster / "postgres").chmod(0o750)
    with opened(cluster):
        assert stat.S_IMODE((cluster / "postgres").stat().st_mode) == 0o700


def test_a_folder_with_other_things_is_not_touched(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir(parents=True, mode=0o700)
    (data_dir / "postgres" / "mine.txt").write_text("mine")
    if IS_ROOT:
        os.chown(data_dir / "postgres", pwd.getpwnam("nobody").pw_uid, -1)
    assert "holds no PostgreSQL cluster" in refusal(data_dir)
    assert (data_dir / "postgres" / "mine.txt").read_text() == "mine"


def test_an_empty_cluster_folder_is_used(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir(parents=True)
    with opened(data_dir) as use:
        assert run_sql(use, "select 1") == 1
    assert stat.S_IMODE((data_dir / "postgres").stat().st_mode) == 0o700


def test_what_is_in_the_way_is_named(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "file").touch()
    assert "is not a folder" in refusal(data_dir / "file")
    assert "a file is in the way" in refusal(data_dir / "file" / "below")
    assert "control characters" in refusal(data_dir / "two\nlines")
    (data_dir / "postgres").touch()
    assert "must be a folder" in refusal(data_dir)


def test_a_failed_start_shows_the_end_of_the_log(cluster: Path) -> None:
    with (cluster / "postgres" / "postgresql.conf").open("a") as file:
        file.write("no_such_setting = 1\n")
    assert "no_such_setting" in refusal(cluster)


@AS_ROOT
def test_a_full_disk_is_named(place: Path) -> None:
    disk = place / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert "No space left on device" in refusal(disk / "data")
        assert [path.name for path in (disk / "data").glob("postgres*") if path.is_dir()] == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_unfinished_initdb_is_never_taken_for_a_cluster(data_dir: Path, place: Path) -> None:
    place.chmod(0o755)
    reached = place / "reached"
    os.mkfifo(reached)
    reached.chmod(0o666)
    programs = place / "bin"
    programs.mkdir()
    (programs / "postgres").symlink_to(embedded_cluster.find_programs(None, None).bin_dir / "postgres")
    initdb = programs / "initdb"
    initdb.write_text(f'#!/bin/sh\necho 18 > "$2/PG_VERSION"\necho $$ > "{reached}"\nexec sleep 600\n')
    initdb.chmod(0o755)
    starter = UserProcess(data_dir, programs, wait=False)
    stuck = int(reached.read_text())
    starter.kill()
    assert len(list(data_dir.glob("postgres.init-*/PG_VERSION"))) == 1
    with opened(data_dir) as use:
        assert run_sql(use, "select 1") == 1
    assert list(data_dir.glob("postgres.init-*")) == []
    os.kill(stuck, signal.SIGKILL)


def test_ctrl_c_at_the_terminal_does_not_reach_the_server(cluster: Path) -> None:
    other = UserProcess(cluster)
    server = server_of(cluster)
    assert os.getsid(server.pid) != os.getsid(other.process.pid)
    os.killpg(other.process.pid, signal.SIGINT)
    with opened(cluster) as use:
        assert run_sql(use, "select 1") == 1
        assert server_of(cluster) == server
    other.ask("close")
    other.end()


def test_pg_variables_of_the_caller_change_nothing(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "/nowhere", "PGDATA": "/nowhere", "PGUSER": "x"}.items():
        monkeypatch.setenv(name, value)
    with opened(data_dir) as use:
        assert run_sql(use, "select current_user") == "postgres"


def test_our_environment_does_not_reach_the_server(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINUTEBOOK_TEST_KEY", "sesame")
    with opened(cluster):
        assert "MINUTEBOOK_TEST_KEY" not in server_of(cluster).environ()


def test_law_28_the_server_log_quotes_no_value(cluster: Path) -> None:
    with opened(cluster) as use:
        run_sql(use, "create table words (word text primary key check (word <> 'opensesame'))")
        for statement in (
            "insert into words values ('opensesame')",
            "select 'opensesame'::int",
            "opensesame",
        ):
            with pytest.raises(psycopg.Error):
                run_sql(use, statement)
    assert "opensesame" not in (cluster / "postgres.log").read_text()


def test_a_long_log_is_emptied_at_the_next_start(cluster: Path) -> None:
    log = cluster / "postgres.log"
    log.write_bytes(b"x" * (embedded_cluster.MAX_LOG_BYTES + 1))
    opened(cluster).close()
    assert 0 < log.stat().st_size < embedded_cluster.MAX_LOG_BYTES


@AS_ROOT
def test_as_root_parents_gain_the_right_to_pass_and_no_more(place: Path) -> None:
    parent = Path(tempfile.mkdtemp(dir=place))
    try:
        with opened(parent / "data") as use:
            run_sql(use, "select 1")
            assert stat.S_IMODE(parent.stat().st_mode) == 0o701
            assert stat.S_IMODE((parent / "data").stat().st_mode) == 0o701
            cluster = (parent / "data" / "postgres").stat()
            assert stat.S_IMODE(cluster.st_mode) == 0o700
            assert cluster.st_uid == pwd.getpwnam(embedded_host.SERVER_ACCOUNT).pw_uid != 0
            assert server_of(parent / "data").uids().real == cluster.st_uid
            for name in ("postgres.start", "postgres.users", "postgres.log"):
                assert stat.S_IMODE((parent / "data" / name).stat().st_mode) == 0o600
    finally:
        shutil.rmtree(parent)


@AS_ROOT
def test_as_root_a_strict_umask_of_the_install_is_mended(place: Path) -> None:
    install = place / "install"
    for path in (install / "bin" / "postgres", install / "lib" / "x.so", install / "share" / "sub" / "a.sql"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(0o700 if path.name == "postgres" else 0o600)
        path.parent.chmod(0o700)
    embedded_host.open_install(install)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in install.rglob("*")}
    assert modes["postgres"] == 0o705
    assert modes["x.so"] == modes["a.sql"] == 0o604
    assert modes["sub"] == 0o705


@AS_ROOT
def test_another_user_of_the_machine_cannot_connect(place: Path) -> None:
    os.chown(place, pwd.getpwnam("nobody").pw_uid, -1)
    nobody = UserProcess(place / "nobodys", user="nobody")
    roots = Path(tempfile.mkdtemp(dir=SCRATCH))
    try:
        with opened(roots / "data") as use:
            answer = nobody.ask(f"connect {use.url()}")
    finally:
        shutil.rmtree(roots)
        nobody.ask("close")
        nobody.end()
    assert answer["connected"] is False
    assert "Permission denied" in answer["why"]


@AS_ROOT
def test_a_folder_of_somebody_else_is_not_safe_for_root(data_dir: Path) -> None:
    data_dir.mkdir()
    os.chown(data_dir, pwd.getpwnam("nobody").pw_uid, -1)
    assert "belongs to nobody" in refusal(data_dir)
    os.chown(data_dir, 0, -1)
    data_dir.chmod(0o777)
    assert "everybody can write" in refusal(data_dir)


@AS_ROOT
def test_an_ordinary_user_runs_the_server_as_itself(place: Path) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(place, nobody, -1)
    user = UserProcess(place / "data", user="nobody")
    server = server_of(place / "data")
    assert server.uids().real == user.start["uid"] == nobody
    assert user.ask("close") == {"closed": True}
    assert not embedded_cluster.is_alive(server)
    user.end()
    assert stat.S_IMODE((place / "data").stat().st_mode) == 0o700


@AS_ROOT
def test_an_ordinary_user_is_told_what_it_may_not_write(place: Path) -> None:
    place.chmod(0o755)
    user = UserProcess(place / "data", user="nobody")
    assert "give nobody the right to write there" in user.start["refused"]
    user.end()
    with opened(place / "roots"):
        pass
    place.joinpath("roots").chmod(0o777)
    for lock in place.glob("roots/postgres.*"):
        lock.chmod(0o666)
    user = UserProcess(place / "roots", user="nobody")
    assert f"belongs to {embedded_host.SERVER_ACCOUNT}" in user.start["refused"]
    user.end()
