"""Exports and their verification, on logs that real databases hashed."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from minutebook.domain.errors import Invalid, Unavailable
from minutebook.infra import export_file
from minutebook.infra.chain import ZERO_HASH, ChainLink
from minutebook.infra.postgres import export
from minutebook.infra.postgres.export import (
    VerifyReport,
    export_all,
    export_stream,
    restricted_line,
    verify_database,
    verify_file,
)
from ulid_transform import ulid_now

APPEND = "SELECT outcome, seq FROM minutebook.append_v1(%s::text[], %s::json, %s::json, %s)"
PAGE = Path(__file__).parents[2] / "docs/explanation/hash-chain.md"
ROOM = "room:abcd2345"


def append(database: Any, stream: str, payloads: Sequence[Any], after: int = 0, **fields: Any) -> None:
    """Append payloads behind `after` as the app role; the first append creates the stream."""
    item: dict[str, Any] = {"n": 1, "s": 1, "expected": after, "count": len(payloads)}
    if after == 0:
        item |= {"kind": stream.partition(":")[0], "tenant": "default", "retention": 90}
    if fields.pop("seal", False):
        item["seal"] = True
    row: dict[str, Any] = {
        "i": 1,
        "t": "message",
        "v": 1,
        "ak": "human",
        "ai": "zoë",
        "ar": "owner",
        "o": "client",
        "rd": [],
        "cl": [],
    }
    events = [row | {"k": k, "id": ulid_now(), "p": payload} | fields for k, payload in enumerate(payloads, 1)]
    with database.connect() as connection:
        found = connection.execute(APPEND, ([stream], json.dumps([item]), json.dumps(events), after == 0)).fetchall()
    assert found == [("appended", after + len(payloads))]


PAYLOADS: list[Any] = [
    {"kind": "chat", "text": 'Grüße "quoted" \\ \u2028 line\nbreak 😀', "to": []},
    {"n": [1.10, 1e20, 0.5, 12345678901234567890123, True, None], "nested": {"b": {}, "a": []}},
    "just text",
    17,
    {"kind": "chat", "text": "x" * 300},
]


def fill(database: Any) -> None:
    """Three streams: a room with every optional field, a sealed one, and one of a foreign application."""
    append(database, ROOM, PAYLOADS[:3])
    append(database, ROOM, [17], 3, ar=None, ak="agent", r="abcdefgh", cb=2, rd=["a, b", "ünï"], oc="c", ok="events:1")
    append(database, ROOM, [{"text": "x" * 300}], 4, cl=["hr", ""], o="broker")
    append(database, "room:bbbb2222", [{"kind": "chat"}, {"kind": "chat"}], seal=True)
    append(database, "es:Shop:1", [{"state": "{}"}], o="broker")


@pytest.fixture
def exported(database: Any, tmp_path: Path) -> Path:
    """An export of everything, which verifies."""
    fill(database)
    path = tmp_path / "export.jsonl"
    with path.open("wb") as out:
        assert export_all(database.url("auditor"), out) == 8
    assert verify_file(path).ok
    return path


def test_database_and_export_verify(any_database: Any, tmp_path: Path) -> None:
    fill(any_database)
    steps: list[tuple[int, int]] = []
    report = verify_database(any_database.url("auditor"), progress=lambda done, total: steps.append((done, total)))
    assert report.findings == []
    assert (report.streams, report.events, report.erased) == (3, 8, 0)
    assert steps[-1] == (8, 8)
    path = tmp_path / "export.jsonl"
    with path.open("wb") as out:
        export_all(any_database.url("auditor"), out)
    steps.clear()
    from_file = verify_file(path, lambda done, total: steps.append((done, total)))
    assert from_file == report
    assert steps[-1] == (path.stat().st_size, path.stat().st_size)


def test_one_stream_by_room_id_or_name(database: Any) -> None:
    fill(database)
    url = database.url("auditor")
    for name in ("abcd2345", ROOM):
        report = verify_database(url, name)
        assert (report.ok, report.streams, report.events) == (True, 1, 5)
    with database.connect("auditor") as connection:
        head = connection.execute("SELECT encode(head_hash, 'hex') FROM minutebook.streams WHERE name = %s", (ROOM,))
        assert (verify_database(url, ROOM).head,) == head.fetchone()
    with pytest.raises(Invalid):
        verify_database(url, "zzzz2222")
    with pytest.raises(Invalid):
        export_stream(url, "zzzz2222", io.BytesIO())


def test_line_holds_envelope_and_hash_fields(database: Any) -> None:
    fill(database)
    out = io.BytesIO()
    assert export_stream(database.url("auditor"), "abcd2345", out) == 5
    *lines, trailer = [json.loads(line) for line in out.getvalue().splitlines()]
    optional = {"runId", "causedBy", "originClient", "originKey"}
    keys = {"v", "id", "seq", "roomId", "actor", "type", "origin", "ts", "redactions", "payload", "schemaVersion"}
    keys |= {"classes", "payloadText", "salt", "commitment", "prevHash", "hash"}
    assert set(lines[0]) == keys
    assert set(lines[3]) == keys | optional
    assert lines[0]["roomId"] == "abcd2345"
    assert lines[0]["actor"] == {"kind": "human", "id": "zoë", "role": "owner"}
    assert "role" not in lines[3]["actor"]
    assert [line["payload"] for line in lines[:3]] == PAYLOADS[:3]
    assert trailer == {
        "trailer": True,
        "stream": ROOM,
        "logId": trailer["logId"],
        "count": 5,
        "fromSeq": 1,
        "throughSeq": 5,
        "head": lines[-1]["hash"],
        "sealed": False,
        "remaining": 0,
    }
    foreign = io.BytesIO()
    export_stream(database.url("auditor"), "es:Shop:1", foreign)
    assert json.loads(foreign.getvalue().splitlines()[0])["stream"] == "es:Shop:1"


def test_range_of_a_stream(database: Any, tmp_path: Path) -> None:
    fill(database)
    url, path = database.url("auditor"), tmp_path / "range.jsonl"
    for after, events in ((3, 2), (5, 0)):
        with path.open("wb") as out:
            assert export_stream(url, ROOM, out, after) == events
        report = verify_file(path)
        assert (report.ok, report.partial, report.events) == (True, 1, events)
        assert msgspec.json.decode(path.read_bytes().splitlines()[-1])["head"] == verify_database(url, ROOM).head
    for after in (-1, 6):
        with pytest.raises(Invalid):
            export_stream(url, ROOM, io.BytesIO(), after)


def test_reference_of_the_page_agrees(exported: Path, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    script = tmp_path / "reference.py"
    script.write_text(found[1], "utf-8")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, script, exported], capture_output=True, text=True, check=False)

    assert run().returncode == 0, run().stderr
    whole = exported.read_bytes()
    for place, (old, new) in enumerate(
        [(b"x" * 300, b"y" * 300), (b'"zo\xc3\xab"', b'"bob"'), (b"events:1", b"events:2")]
    ):
        exported.write_bytes(whole.replace(old, new))
        assert run().returncode == 1, place
    exported.write_bytes(b"\n".join(whole.splitlines()[:-1]) + b"\n")
    assert run().returncode == 1
    example = re.search(r"```jsonl\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert example is not None
    exported.write_text(example[1], "utf-8")
    assert run().returncode == 0
    assert verify_file(exported).ok


def lines_of(path: Path) -> list[bytes]:
    """The lines with their newlines."""
    return path.read_bytes().splitlines(keepends=True)


def changed(path: Path, change: Callable[[list[bytes]], None]) -> VerifyReport:
    """The report on the export after `change` was made to its lines: 1-5 and trailer 6, 7-8 and 9, 10 and 11."""
    lines = lines_of(path)
    change(lines)
    path.write_bytes(b"".join(lines))
    return verify_file(path)


def only(report: VerifyReport) -> tuple[int | None, str]:
    """Line and sentence of the one finding."""
    assert report.breaks == len(report.findings) == 1, report.findings
    return report.findings[0].line, report.findings[0].what


def edit(number: int, **members: Any) -> Callable[[list[bytes]], None]:
    """Sets members of a line, which is written anew in another style."""

    def change(lines: list[bytes]) -> None:
        lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | members, sort_keys=True).encode() + b"\n"

    return change


def test_line_that_was_written_anew_with_the_same_content_verifies(exported: Path) -> None:
    for number in range(1, 12):
        assert changed(exported, edit(number)).ok


def test_removed_repeated_and_moved_lines_are_found(exported: Path) -> None:
    whole = exported.read_bytes()
    cases: list[tuple[Callable[[list[bytes]], Any], tuple[int, str]]] = [
        (lambda lines: lines.pop(1), (2, "Event 2 is missing; event 3 follows event 1.")),
        (lambda lines: lines.pop(0), (1, "The stream should begin with event 1, but begins with 2.")),
        (lambda lines: lines.pop(4), (5, "Event 5 is missing; the stream should end at 5.")),
        (lambda lines: lines.insert(2, lines[1]), (3, "Event 2 comes twice.")),
        (lambda lines: lines.insert(2, lines.pop(3)), (3, "Event 3 is missing; event 4 follows event 2.")),
        (lambda lines: lines.pop(5), (6, f"The trailer of {ROOM} is missing before this line.")),
        (lambda lines: lines.insert(0, lines.pop(5)), (1, "Event 1 is missing; the stream should end at 5.")),
    ]
    for change, expected in cases:
        exported.write_bytes(whole)
        report = changed(exported, change)
        assert (report.findings[0].line, report.findings[0].what) == expected


def test_edited_members_are_found(exported: Path) -> None:
    whole = exported.read_bytes()
    hash_found = "The hash of event 1 is not the hash of what it says."
    payload_found = "The payload does not say what payloadText says."
    cases: list[tuple[Callable[[list[bytes]], None], int, str]] = [
        (edit(1, actor={"kind": "human", "id": "bob", "role": "owner"}), 1, hash_found),
        (edit(1, ts="2020-01-01T00:00:00.000000Z"), 1, hash_found),
        (edit(1, classes=["hr"]), 1, hash_found),
        (edit(1, originKey="k", originClient="c"), 1, hash_found),
        (edit(1, payload={"kind": "chat"}), 1, payload_found),
        (edit(2, payload={"n": [1.1, 1e20, 0.5, 12345678901234567890123, 1, None], "nested": {"b": {}, "a": []}}), 2,
         payload_found),
        (edit(4, payload=True), 4, payload_found),
        (edit(1, payloadText="{}", payload={}), 1, "The payload of event 1 is not what its commitment was made of."),
        (edit(1, payloadText=None, salt=None), 1, payload_found),
        (edit(1, hash="0" * 64), 1, hash_found),
        (edit(1, salt="no hex"), 1, "The salt is not hex."),
        (edit(1, v=2), 1, "This line is of version 2; this minutebook reads version 1."),
        (edit(1, seq="1"), 1, "This line is neither an event nor a trailer of an export."),
        (edit(1, stream="es:x:1"), 1,
         "This line does not say of which stream it is: it needs one of roomId and stream."),
        (edit(7, roomId="cccc2222"), 7, "The hash of event 1 is not the hash of what it says."),
        (edit(6, count=4), 6, "The trailer counts 4 events; there are 5."),
        (edit(6, head="0" * 64), 6, "The head hash is not the hash of the last event."),
        (edit(9, logId="x"), 9, "This stream is of another log than the ones before it."),
    ]  # fmt: skip
    for change, line, what in cases:
        exported.write_bytes(whole)
        report = changed(exported, change)
        assert (report.findings[0].line, report.findings[0].what) == (line, what)


def test_payload_taken_out_like_an_erasure_is_found(exported: Path) -> None:
    report = changed(exported, edit(1, payloadText=None, salt=None, payload={"erased": True}))
    assert only(report) == (6, "The payload of event 1 is gone, and no later event erased it.")


def test_repeated_member_name_is_found(exported: Path) -> None:
    def change(lines: list[bytes]) -> None:
        lines[0] = lines[0].replace(b'{"id"', b'{"ts":"2020-01-01T00:00:00.000000Z","id"', 1)

    assert only(changed(exported, change)) == (
        1,
        "A member name occurs twice in this line, or a number is none.",
    )


def test_each_broken_stream_is_found_once(exported: Path) -> None:
    def change(lines: list[bytes]) -> None:
        edit(1, type="turn")(lines)
        edit(3, type="turn")(lines)
        edit(8, type="turn")(lines)

    report = changed(exported, change)
    assert [(finding.stream, finding.seq, finding.line) for finding in report.findings] == [
        (ROOM, 1, 1),
        ("room:bbbb2222", 2, 8),
    ]
    assert (report.streams, report.events) == (3, 8)


@pytest.mark.parametrize(
    ("lines", "octets", "expected"),
    [
        (0, 0, (None, "The file is empty.")),
        (3, 0, (3, f"The file ends without the trailer of {ROOM}.")),
        (3, 40, (4, "The file was cut off within this line.")),
        (5, 60, (6, "The file was cut off within this line.")),
        (6, 0, (6, "The file ends here, though 2 more streams should follow.")),
        (9, 0, (9, "The file ends here, though 1 more streams should follow.")),
    ],
)
def test_truncated_file_is_found(exported: Path, lines: int, octets: int, expected: tuple[int | None, str]) -> None:
    whole = lines_of(exported)
    exported.write_bytes(b"".join(whole[:lines]) + (whole[lines][:octets] if octets else b""))
    assert only(verify_file(exported)) == expected


def test_removed_stream_is_found(exported: Path) -> None:
    def change(lines: list[bytes]) -> None:
        del lines[6:9]

    assert only(changed(exported, change)) == (8, "Here 1 streams should remain, not 0: some were removed.")


def test_exports_may_be_joined(database: Any, tmp_path: Path) -> None:
    fill(database)
    path = tmp_path / "joined.jsonl"
    with path.open("wb") as out:
        export_stream(database.url("auditor"), ROOM, out)
        export_stream(database.url("auditor"), "bbbb2222", out)
    report = verify_file(path)
    assert (report.ok, report.streams) == (True, 2)


def test_line_without_end_is_not_read_into_memory(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "MAX_LINE_BYTES", 2000)
    exported.write_bytes(exported.read_bytes() + b"[" * 5000)
    assert (
        only(verify_file(exported))[1] == "This line is longer than 2000 bytes, which no export writes; stopped here."
    )


@pytest.mark.parametrize("junk", [b"\n", b"\xff\xfe\n", b"[]\n", b"null\n", b"{}\n", b"[" * 100_000 + b"\n"])
def test_junk_is_found_and_raises_nothing(exported: Path, junk: bytes) -> None:
    report = changed(exported, lambda lines: lines.insert(1, junk))
    assert report.findings[0].line == 2


def test_restricted_lines_keep_their_place(exported: Path) -> None:
    lines = lines_of(exported)
    second = json.loads(lines[1])
    link = ChainLink(2, second["ts"], second["prevHash"], second["hash"])
    lines[1] = restricted_line(ROOM, second["id"], link)
    exported.write_bytes(b"".join(lines))
    report = verify_file(exported)
    assert (report.ok, report.restricted) == (True, 1)
    lines[1] = restricted_line(ROOM, second["id"], msgspec.structs.replace(link, hash=ZERO_HASH))
    exported.write_bytes(b"".join(lines))
    assert only(verify_file(exported))[0] == 3


def test_erased_payload_verifies(any_database: Any, tmp_path: Path) -> None:
    fill(any_database)
    append(any_database, ROOM, [{"kind": "payload_erased", "erasedSeq": 2}], 5, t="state_changed", o="broker")
    with any_database.connect("eraser") as connection:
        connection.execute(
            "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 2 AND stream_id ="
            " (SELECT id FROM minutebook.streams WHERE name = %s)",
            (ROOM,),
        )
    report = verify_database(any_database.url("auditor"))
    assert (report.findings, report.erased) == ([], 1)
    path = tmp_path / "export.jsonl"
    with path.open("wb") as out:
        export_stream(any_database.url("auditor"), ROOM, out)
    line = json.loads(lines_of(path)[1])
    assert (line["payload"], line["payloadText"], line["salt"]) == ({"erased": True}, None, None)
    report = verify_file(path)
    assert (report.findings, report.erased) == ([], 1)


TAMPERING = {
    "payload": ("UPDATE minutebook.events SET payload = '1' WHERE seq = 2", "is not what its commitment"),
    "erasure": ("UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 2", "no later event erased"),
    "actor": ("UPDATE minutebook.events SET actor_id = 'bob' WHERE seq = 2", "not the hash of what it says"),
    "time": ("UPDATE minutebook.events SET ts = ts + interval '1s' WHERE seq = 2", "not the hash of what it says"),
    "removed": ("DELETE FROM minutebook.events WHERE seq = 2", "Event 2 is missing"),
    "tail": ("DELETE FROM minutebook.events WHERE seq = 5", "should end at 5"),
    "emptied": ("DELETE FROM minutebook.events", "Event 1 is missing"),
    "size": ("UPDATE minutebook.events SET bytes = bytes + 1 WHERE seq = 2", "is not what its row says"),
    "version": ("UPDATE minutebook.streams SET version = 6", "should end at 6"),
    "head": ("UPDATE minutebook.streams SET head_hash = sha256('')", "The head hash"),
    "bytes": ("UPDATE minutebook.streams SET bytes = bytes + 1", "do not add up"),
    "orphans": ("DELETE FROM minutebook.streams", "that does not exist"),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_what_a_superuser_changed_is_found(database: Any, name: str) -> None:
    """A superuser who switches the guards off can change everything but what `verify` says about it."""
    append(database, ROOM, PAYLOADS)
    statement, sentence = TAMPERING[name]
    with database.connect("postgres") as connection:
        connection.execute("ALTER TABLE minutebook.events DISABLE TRIGGER USER")
        connection.execute("ALTER TABLE minutebook.streams DISABLE TRIGGER USER")
        connection.execute(statement)
    report = verify_database(database.url("auditor"))
    assert [sentence in finding.what for finding in report.findings] == [True], report.findings


def test_streams_that_others_write_meanwhile_verify(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads and events are of one snapshot: what commits between the two reads is neither missing nor too much."""
    append(database, ROOM, PAYLOADS)
    read_heads = export._chunk  # pyright: ignore[reportPrivateUsage]

    def then_another_writes(connection: Any, after: int) -> Any:
        heads = read_heads(connection, after)
        if heads:
            append(database, ROOM, ["more"], 5)
        return heads

    monkeypatch.setattr(export, "_chunk", then_another_writes)
    report = verify_database(database.url("auditor"))
    assert (report.findings, report.events) == ([], 5)


def test_many_streams_are_read_in_chunks(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minutebook.infra.postgres.export.CHUNK_STREAMS", 3)
    monkeypatch.setattr("minutebook.infra.postgres.export.CHUNK_EVENTS", 4)
    for number in range(2, 8):
        append(database, f"room:aaaaaaa{number}", list(range(number)))
    report = verify_database(database.url("auditor"))
    assert (report.findings, report.streams, report.events) == ([], 6, 27)
    out = io.BytesIO()
    assert export_all(database.url("auditor"), out) == 27


def test_refusals_say_what_to_do(database: Any, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="minutebook_auditor"):
        verify_database(database.url("retention"))
    with database.connect("postgres") as connection:
        connection.execute("DROP SCHEMA minutebook CASCADE")
    with pytest.raises(Invalid, match="minutebook migrate"):
        verify_database(database.url("postgres"))
    with pytest.raises(Unavailable):
        verify_database(f"postgresql://minutebook_auditor@/postgres?host={tmp_path}")
