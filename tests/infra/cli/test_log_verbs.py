"""`minutebook verify`, `export`, `rebuild`, `sql`: the log and what is derived from it, mostly without a server."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from append_helpers import append, creation, events, triggers_off
from live_server import LiveServer, post
from minutebook.infra.postgres.migrate import migrate, sql_files
from verbs import at, verb

ROOMS = ("room:aaaaaaaa", "room:bbbbbbbb", "room:cccccccc")


@pytest.fixture
def rooms(database: Any) -> Any:
    """Three rooms of three events each."""
    with database.connect("app") as app:
        append(app, *(creation(*events(3), stream=name) for name in ROOMS))
    return database


def forge(database: Any, stream: str = ROOMS[1]) -> None:
    """What only somebody who switches the triggers off can do: another payload in the second event."""
    with database.connect("postgres") as superuser, triggers_off(superuser, "events"):
        superuser.execute(
            'UPDATE minutebook.events SET payload = \'{"text": "forged"}\' WHERE seq = 2 AND stream_id ='
            " (SELECT s.id FROM minutebook.streams s WHERE s.name = %s)",
            (stream,),
        )


def test_verify_recomputes_all_streams_or_one(rooms: Any, on_database: Any) -> None:
    done = on_database("verify", "--json")
    assert (done.code, done.json["ok"], done.json["streams"], done.json["events"]) == (0, True, 3, 9)
    assert sorted(done.json) == [
        "breaks", "erased", "events", "findings", "head", "logId", "ok", "partial", "restricted", "streams",
    ]  # fmt: skip
    for target in ("aaaaaaaa", "room:aaaaaaaa"):
        assert "the chain holds: 3 events of 1 streams" in on_database("verify", target).out


def test_verify_finds_a_forged_event_and_says_where(rooms: Any, on_database: Any) -> None:
    forge(rooms)
    done = on_database("verify")
    assert done.code == 1
    assert "1 faults: 9 events of 3 streams" in done.out
    assert "stream room:bbbbbbbb, seq 2:" in done.said
    assert on_database("verify", "bbbbbbbb").code == 1
    assert on_database("verify", "aaaaaaaa").code == 0
    finding = on_database("verify", "--json").json["findings"][0]
    assert (finding["stream"], finding["seq"]) == ("room:bbbbbbbb", 2)


def test_export_and_verify_the_file_without_a_database(rooms: Any, on_database: Any, tmp_path: Path) -> None:
    file = tmp_path / "room.jsonl"
    done = on_database("export", "aaaaaaaa", "--out", file, "--json")
    assert (done.code, done.json) == (0, {"events": 3, "file": str(file)})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [line.get("seq") for line in map(json.loads, file.read_text().splitlines())] == [1, 2, 3, None]
    nowhere = {"MINUTEBOOK_DATABASE_URL": "postgresql://127.0.0.1:1/none", "MINUTEBOOK_DATA_DIR": "/nonexistent"}
    assert verb("verify", file, env=nowhere).code == 0
    file.write_text(file.read_text().replace("number 2", "number 7"))
    changed = verb("verify", file, env=nowhere)
    assert (changed.code, "line 2, stream room:aaaaaaaa, seq 2" in changed.said) == (1, True), changed
    assert verb("verify", file, "--json", env=nowhere).json["findings"][0]["line"] == 2


def test_export_goes_to_stdout_whole_or_from_a_seq_on(rooms: Any, on_database: Any, tmp_path: Path) -> None:
    lines = on_database("export", "aaaaaaaa", "--after", 2).out.splitlines()
    assert [json.loads(line).get("seq") for line in lines] == [3, None]
    done = on_database("export", "--all")
    assert len(done.out.splitlines()) == 12
    file = tmp_path / "all.jsonl"
    file.write_text(done.out)
    assert "9 events of 3 streams" in verb("verify", file).out


def test_a_failed_export_leaves_what_was_there(rooms: Any, on_database: Any, tmp_path: Path) -> None:
    file = tmp_path / "room.jsonl"
    file.write_text("kept")
    assert on_database("export", "zzzzzzzz", "--out", file).code == 1
    assert file.read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["room.jsonl"]
    missing = on_database("export", "aaaaaaaa", "--out", tmp_path / "none" / "x.jsonl")
    assert (missing.code, "cannot be written (No such file or directory)" in missing.said) == (3, True), missing


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("export",), 2, "Name a room, or give --all."),
        (("export", "aaaaaaaa", "--all"), 2, "Name a room, or give --all."),
        (("export", "--all", "--after", 1), 2, "--after is for one room"),
        (("export", "aaaaaaaa", "--json"), 2, "--json needs --out"),
        (("export", "aaaaaaaa", "--after", 9), 1, "the stream ends at 3"),
        (("export", "zzzzzzzz"), 1, "there is no such stream"),
        (("verify", "zzzzzzzz"), 1, "there is no such stream"),
        (("verify", "nothing.jsonl"), 2, "neither a file nor"),
        (("rebuild", "nothing"), 2, "There is no projection 'nothing'; there are room_list, transcript."),
    ],
)
def test_a_wrong_call_gets_a_sentence(rooms: Any, on_database: Any, args: Any, code: int, words: str) -> None:
    done = on_database(*args)
    assert (done.code, words in done.said) == (code, True), done


def test_a_database_that_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    env = {"MINUTEBOOK_DATABASE_URL": "postgresql://127.0.0.1:1/none", "MINUTEBOOK_DATA_DIR": str(tmp_path)}
    for args in (("verify",), ("export", "--all"), ("rebuild", "--check"), ("doctor",), ("retention",), ("restored",)):
        done = verb(*args, env=env)
        assert (done.code, "cannot be reached" in done.said) == (3, True), (args, done)


def test_rebuild_builds_compares_and_finds_a_view_that_drifted(rooms: Any, on_database: Any) -> None:
    first = on_database("rebuild", "--json")
    assert first.code == 0
    assert [each["projection"] for each in first.json["projections"]] == ["room_list", "transcript"]
    assert all(each["isSwapped"] for each in first.json["projections"])
    assert on_database("rebuild", "--check").code == 0
    with rooms.connect("projector") as projector:
        projector.execute("UPDATE minutebook_views.transcript SET body = 'other' WHERE seq = 3 AND stream_id = 1")
    checked = on_database("rebuild", "--check")
    assert checked.code == 1
    assert "transcript: compared, 9 events of 3 streams; 1 of 3 compared streams differ" in checked.out
    assert "room:aaaaaaaa: 1 rows are missing or other, 1 too many or other" in checked.said
    assert on_database("rebuild", "room_list", "--check").code == 0
    answer = on_database("rebuild", "transcript", "--dry-run", "--json")
    assert (answer.code, answer.json["ok"]) == (1, False)
    assert answer.json["projections"][0]["differences"] == [{"stream": "room:aaaaaaaa", "missing": 1, "extra": 1}]
    with rooms.connect("projector") as projector:
        projector.execute("DELETE FROM minutebook_views.transcript WHERE seq IN (1, 2) AND stream_id = 1")
        projector.execute(
            "INSERT INTO minutebook_views.transcript SELECT t.stream_id, 99, t.ts, t.type, t.actor, t.run_id,"
            " t.classes, t.heading, t.body FROM minutebook_views.transcript t WHERE t.seq = 3 AND t.stream_id = 1"
        )
    answer = on_database("rebuild", "transcript", "--dry-run", "--json")
    assert answer.json["projections"][0]["differences"] == [{"stream": "room:aaaaaaaa", "missing": 3, "extra": 2}]
    assert on_database("rebuild", "transcript").code == 0
    assert on_database("rebuild", "--check").code == 0


def test_a_second_rebuild_at_once_is_refused(rooms: Any, on_database: Any) -> None:
    with rooms.connect("projector") as other:
        other.execute("SELECT pg_advisory_lock(7215003, hashtext('room_list'))")
        done = on_database("rebuild")
    assert (done.code, "Another rebuild of room_list is running" in done.said) == (3, True), done


def test_the_printed_sql_makes_a_database_that_needs_no_migrate(database: Any, tmp_path: Path) -> None:
    script = verb("sql").out
    assert [file.name for file in sql_files() if f"-- {file.name}\n" not in script] == []
    name = f"{database.name}_sql"
    with psycopg.connect(database.server.url("postgres", "postgres"), autocommit=True) as superuser:
        superuser.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        try:
            with psycopg.connect(database.server.url("postgres", name), autocommit=True) as fresh:
                fresh.execute(script.replace("\\set ON_ERROR_STOP on\n", ""))
            assert migrate(database.server.url("postgres", name), dry_run=True) == []
        finally:
            superuser.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_verbs_work_beside_a_running_server(
    server: LiveServer, owner: httpx.Client, room: str, tmp_path: Path
) -> None:
    post(owner, room, "hello")
    beside = ("--data-dir", server.data_dir)
    file = tmp_path / "x.jsonl"
    assert verb("export", room, "--out", file, *beside).code == 0
    assert verb("verify", file).code == 0
    assert verb("verify", room, *beside).code == 0
    assert verb("rebuild", *beside).code == 0
    assert verb("rebuild", "--check", *beside).code == 0
    assert owner.get(f"/v1/rooms/{room}/transcript", params={"minSeq": 2}).json()["lines"][1]["body"] == "hello"


def test_every_verb_has_help() -> None:
    for name in ("serve", "token", "demo", "tail", "play", "verify", "export", "rebuild", "doctor", "retention",
                 "migrate", "config", "sql", "restored"):  # fmt: skip
        assert verb(name, "--help").code == 0, name


def test_make_lists_every_target_and_runs_in_a_folder_with_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).write_text((Path(__file__).parents[3] / name).read_text())
    # This test may itself run under `make test`, whose flags would have the inner make say where it enters.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    told = subprocess.run(["make", "help"], cwd=folder, env=env, capture_output=True, text=True, check=True).stdout
    targets = [line.split()[1] for line in told.splitlines()]
    assert targets == ["help", "setup", "demo", "test", "check", "bench", "soak", "docs", "clean"]
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=folder, env=env, capture_output=True, check=True)


def test_a_pipe_that_is_closed_early_is_no_defect(rooms: Any, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
    command = [sys.executable, "-m", "minutebook.infra.cli.main", "export", "--all"]
    with subprocess.Popen(
        command, env=env | at(rooms, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert "Traceback" not in errors
