"""Recorded SWE-agent runs become what a bridge pushes (rooms.md, the table of types)."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minutebook.domain.jsontext import check_body, compact
from minutebook.infra import swe_agent
from minutebook.infra.swe_agent import (
    CUT_MARK,
    DEFAULT_DELAY_S,
    MAX_ARGS_DEPTH,
    MAX_FILE_BYTES,
    MAX_LABEL_CHARS,
    MAX_PAYLOAD_BYTES,
    MAX_STEPS,
    MAX_TEXT_BYTES,
    Item,
    Run,
    TrajectoryError,
    read_run,
    with_run_id,
)

RECORDED = Path(__file__).parents[2].parent / "shared" / "data" / "agent-runs"
RUNS = {
    "function-calling-simple": 5,
    "humanevalfix-python-0": 5,
    "test-repo-i1": 5,
    "marshmallow-1867-function-calling": 11,
    "pydicom-1458": 12,
    "marshmallow-1867-from-source": 13,
}

needs_recordings = pytest.mark.skipif(
    not RECORDED.is_dir(), reason="the recorded runs (../shared/data/agent-runs) are not here"
)


def recorded(name: str) -> Run:
    return read_run(RECORDED / f"{name}.traj")


def written(folder: Path, recording: Any, name: str = "run.traj") -> Path:
    path = folder / name
    path.write_text(json.dumps(recording))
    return path


def read(folder: Path, recording: Any) -> Run:
    return read_run(written(folder, recording))


def step(action: str = "ls\n", **fields: Any) -> dict[str, Any]:
    return {"action": action, "observation": "a.py\n", "thought": "Look.", "response": "Look.\nls"} | fields


def payloads(run: Run, kind: str) -> list[dict[str, Any]]:
    return [item.payload for item in run.items if item.type == kind]


def assert_pushable(run: Run) -> None:
    """What rooms.md asks of a bridge: its types, gapless numbers, whole turns, sizes, storable values."""
    for stream in ("events", "status"):
        seqs = [item.seq for item in run.items if item.stream == stream]
        assert seqs == list(range(1, len(seqs) + 1))
    open_turn: str | None = None
    called: dict[str, Item] = {}
    for item in run.items:
        assert len(compact(item.payload)) < MAX_PAYLOAD_BYTES
        check_body(compact({"items": [{"payload": item.payload}]}))
        assert 0 <= item.delay_s < math.inf
        if item.caused_by_harness_seq is not None:
            assert 0 < item.caused_by_harness_seq < item.seq
        payload = item.payload
        match item.type:
            case "message":
                assert set(payload) == {"kind", "text", "to", "delivery"}
                assert (payload["kind"], payload["to"], payload["delivery"]) == ("chat", [], "none")
                assert payload["text"].strip()
                assert len(payload["text"].encode()) <= MAX_TEXT_BYTES
            case "turn":
                assert set(payload) == {"runId", "turnId", "phase"}
                assert payload["phase"] == ("completed" if open_turn else "started")
                assert open_turn in {None, payload["turnId"]}
                open_turn = payload["turnId"] if payload["phase"] == "started" else None
            case "tool_call":
                assert set(payload) == {"callId", "tool", "args", "decidedBy"}
                assert open_turn
                assert payload["callId"] not in called
                assert payload["tool"]
                called[payload["callId"]] = item
            case "tool_result":
                assert set(payload) == {"callId", "status", "output", "truncated", "bytes"}
                assert item.caused_by_harness_seq == called[payload["callId"]].seq
                assert payload["status"] in {"ok", "error", "rejected"}
                size = len(payload["output"].encode())
                assert size <= MAX_TEXT_BYTES
                assert payload["truncated"] == (size < payload["bytes"])
            case "state_changed":
                assert item.stream == "status"
                assert set(payload) == {"kind", "status"}
                assert payload["kind"] == "harness_status"
            case _:
                raise AssertionError(item.type)
    assert open_turn is None


@needs_recordings
@pytest.mark.parametrize(("name", "steps"), RUNS.items())
def test_recorded_runs_become_a_turn_per_step(name: str, steps: int) -> None:
    run = recorded(name)
    assert_pushable(run)
    counts = Counter(item.type for item in run.items)
    assert counts["turn"] == 2 * steps
    assert counts["tool_call"] == counts["tool_result"] == steps
    assert counts["message"] == steps + 1
    assert run.role == "implementer"


@needs_recordings
def test_all_recorded_runs_are_covered() -> None:
    assert {path.stem for path in RECORDED.glob("*.traj")} == set(RUNS)


@needs_recordings
def test_a_recorded_run_in_detail() -> None:
    run = with_run_id(recorded("test-repo-i1"), "abcd2345")
    assert run.title == "SyntaxError: invalid syntax"
    assert [item.type for item in run.items[:6]] == [
        "message",
        "turn",
        "message",
        "tool_call",
        "tool_result",
        "turn",
    ]
    assert run.items[3].payload == {
        "callId": "call-1",
        "tool": "find_file",
        "args": {"command": 'find_file "missing_colon.py"\n'},
        "decidedBy": None,
    }
    assert run.items[5].payload == {"runId": "abcd2345", "turnId": "turn-1", "phase": "completed"}
    assert payloads(run, "tool_result")[3]["output"] == "8.2\n"
    assert run.items[-1] == Item(
        "status", 1, "state_changed", {"kind": "harness_status", "status": "submitted"}, None, 0.0
    )


@needs_recordings
def test_functions_come_from_the_history() -> None:
    calls = payloads(recorded("marshmallow-1867-from-source"), "tool_call")
    assert [call["tool"] for call in calls][:5] == ["bash", "open", "bash", "create", "insert"]
    assert calls[2]["args"] == {"command": "pip install -e .[dev]"}
    assert calls[3]["args"] == {"filename": "reproduce.py"}
    assert len({call["callId"] for call in calls}) == 13


@needs_recordings
def test_failed_calls_are_told_from_their_output() -> None:
    statuses = [result["status"] for result in payloads(recorded("pydicom-1458"), "tool_result")]
    assert [i for i, status in enumerate(statuses) if status == "error"] == [2, 5, 6, 7]
    assert set(statuses) == {"ok", "error"}


@needs_recordings
def test_recorded_times_are_the_delays_before_results() -> None:
    run = recorded("marshmallow-1867-from-source")
    delays = [item.delay_s for item in run.items if item.type == "tool_result"]
    assert delays[2] == pytest.approx(1.951447)
    assert sum(item.delay_s for item in run.items) == pytest.approx(sum(delays))
    assert {i.delay_s for i in recorded("test-repo-i1").items if i.type == "tool_result"} == {DEFAULT_DELAY_S}


@needs_recordings
def test_a_run_of_history_only_has_no_exit_status() -> None:
    run = recorded("function-calling-simple")
    assert {item.stream for item in run.items} == {"events"}
    assert "\r\n" in payloads(run, "tool_result")[0]["output"]


def test_demonstrations_and_system_prompts_are_skipped(tmp_path: Path) -> None:
    history = [
        {"role": "system", "content": "SYSTEM"},
        {"role": "user", "content": "DEMO", "is_demo": True},
        {"role": "assistant", "content": "DEMO", "action": "demo", "is_demo": True},
        {"role": "user", "content": [{"type": "text", "text": "ISSUE:\n\nFix  it\n"}, {"type": "image"}]},
        {"role": "assistant", "content": "Listing.", "action": "ls -a"},
        {"role": "tool", "content": "a.py"},
        {"role": "assistant", "content": "No command here."},
        {"role": "user", "content": "Give a command."},
        {"role": "assistant", "content": "", "thought": "", "action": "submit"},
    ]
    run = read(tmp_path, {"history": history})
    assert_pushable(run)
    assert run.title == "Fix it"
    texts = [message["text"] for message in payloads(run, "message")]
    assert texts == ["ISSUE:\n\nFix  it\n\n", "Listing.", "No command here.", "Give a command."]
    assert [call["tool"] for call in payloads(run, "tool_call")] == ["ls", "submit"]
    assert [result["output"] for result in payloads(run, "tool_result")] == ["a.py"]


def test_several_functions_of_one_message_meet_their_results(tmp_path: Path) -> None:
    functions = [{"function": {"name": name, "arguments": f'{{"n": {n}}}'}} for n, name in enumerate("ab")]
    history = [{"role": "assistant", "content": "Both.", "tool_calls": functions}]
    history += [{"role": "tool", "content": text} for text in ("one", "two", "three")]
    run = read(tmp_path, {"history": history})
    assert_pushable(run)
    assert [(c["tool"], c["args"]) for c in payloads(run, "tool_call")] == [("a", {"n": 0}), ("b", {"n": 1})]
    assert [r["output"] for r in payloads(run, "tool_result")] == ["one", "two"]
    assert [m["text"] for m in payloads(run, "message")] == ["Both.", "three"]
    assert sum(item.delay_s for item in run.items) == DEFAULT_DELAY_S


def test_a_history_with_more_messages_than_steps_still_names_the_functions(tmp_path: Path) -> None:
    def spoken(action: str, tool: str) -> dict[str, Any]:
        call = {"function": {"name": tool, "arguments": '{"q": 1}'}}
        return {"role": "assistant", "content": "", "action": action, "tool_calls": [call]}

    history = [spoken("x", "lost"), spoken("a", "first"), spoken("b", "other"), spoken("a", "second")]
    history = [spoken("a", "shown") | {"is_demo": True}, *history]
    run = read(tmp_path, {"trajectory": [step("a"), step("a"), step("c d")], "history": history})
    assert [call["tool"] for call in payloads(run, "tool_call")] == ["first", "second", "c"]


def test_thoughts_come_before_responses_and_blanks_are_skipped(tmp_path: Path) -> None:
    steps = [step(), step(thought=" \n"), step(thought=None, response=""), {"action": "ls"}]
    run = read(tmp_path, {"trajectory": steps, "info": None})
    assert_pushable(run)
    assert [message["text"] for message in payloads(run, "message")] == ["Look.", "Look.\nls"]
    assert run.title == "run"


def test_an_observation_without_an_action_is_a_message(tmp_path: Path) -> None:
    run = read(tmp_path, {"trajectory": [step(" ", observation="Out of budget.", execution_time=2)]})
    assert_pushable(run)
    assert [message["text"] for message in payloads(run, "message")] == ["Look.", "Out of budget."]
    assert run.items[-1].delay_s == 2


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("fine", "ok"),
        ("12:Traceback (most recent call last):", "ok"),
        ("x\nTraceback (most recent call last):\n  File", "error"),
        ("bash: foo: command not found", "error"),
        ("/bin/bash: line 1: ./x: Permission denied", "error"),
        ("== 1 failed, 3 passed in 0.12s ==", "error"),
        ("2 errors in 0.05s", "error"),
        ("3 passed in 0.12s", "ok"),
        ("Operation 'vim' is not supported by this environment.", "rejected"),
    ],
)
def test_the_status_of_a_result(tmp_path: Path, output: str, status: str) -> None:
    assert payloads(read(tmp_path, {"trajectory": [step(observation=output)]}), "tool_result")[0]["status"] == status


def test_b42_law20_texts_are_repaired_and_line_ends_kept(tmp_path: Path) -> None:
    text = "a\0b\r\n\ud800c\ud83d\ude00"
    call = {"function": {"name": "to\0ol", "arguments": '{"k\\u0000": ["x\\u0000y\\ud800"]}'}}
    history = [{"role": "user", "content": text}, {"role": "assistant", "action": text, "tool_calls": [call]}]
    run = read(
        tmp_path,
        {
            "trajectory": [step(text, observation=text, thought=text)],
            "history": history,
            "info": {"exit_status": "sub\0mitted\n"},
        },
    )
    assert_pushable(run)
    clean = "ab\r\n\ufffdc\U0001f600"
    assert [message["text"] for message in payloads(run, "message")] == [clean, clean]
    assert payloads(run, "tool_result")[0]["output"] == clean
    called = payloads(run, "tool_call")[0]
    assert (called["tool"], called["args"]) == ("tool", {"k": ["xy\ufffd"]})
    assert payloads(run, "state_changed")[0]["status"] == "submitted"
    plain = read(tmp_path, {"trajectory": [step(text)]})
    assert payloads(plain, "tool_call")[0]["args"] == {"command": clean}


@pytest.mark.parametrize(
    "arguments",
    [
        "not json",
        "[1]",
        '"x"',
        '{"n": 1e400}',
        '{"n": NaN}',
        '{"n": 123456789012345678901}',
        '{"a":' * 99_999,
    ],
)
def test_b44_b45_arguments_that_a_room_cannot_store_become_the_command(tmp_path: Path, arguments: str) -> None:
    call = {"function": {"name": "tool", "arguments": arguments}}
    history = [{"role": "assistant", "content": "x", "action": "tool it", "tool_calls": [call]}]
    run = read(tmp_path, {"history": history})
    assert_pushable(run)
    assert payloads(run, "tool_call")[0]["args"] == {"command": "tool it"}


def test_b44_arguments_nest_only_as_deep_as_a_batch_allows(tmp_path: Path) -> None:
    for depth, kept in ((MAX_ARGS_DEPTH, True), (MAX_ARGS_DEPTH + 1, False)):
        call = {"function": {"name": "tool", "arguments": '{"a":' * depth + "1" + "}" * depth}}
        history = [{"role": "assistant", "content": "x", "action": "tool it", "tool_calls": [call]}]
        run = read(tmp_path, {"history": history})
        assert ("a" in payloads(run, "tool_call")[0]["args"]) is kept


def test_long_outputs_are_cut_between_characters(tmp_path: Path) -> None:
    output = "x" + "é" * MAX_TEXT_BYTES
    run = read(tmp_path, {"trajectory": [step(observation=output)]})
    assert_pushable(run)
    assert payloads(run, "tool_result")[0] == {
        "callId": "call-1",
        "status": "ok",
        "output": "x" + "é" * ((MAX_TEXT_BYTES - 1) // 2),
        "truncated": True,
        "bytes": 2 * MAX_TEXT_BYTES + 1,
    }


def test_outputs_of_exactly_the_limit_are_whole(tmp_path: Path) -> None:
    result = payloads(read(tmp_path, {"trajectory": [step(observation="x" * MAX_TEXT_BYTES)]}), "tool_result")[0]
    assert (len(result["output"]), result["truncated"], result["bytes"]) == (
        MAX_TEXT_BYTES,
        False,
        MAX_TEXT_BYTES,
    )


def test_long_messages_are_cut_with_a_mark(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "é" * MAX_TEXT_BYTES}]
    run = read(tmp_path, {"trajectory": [step(thought="x" * (MAX_TEXT_BYTES + 1))], "history": history})
    assert_pushable(run)
    texts = [message["text"] for message in payloads(run, "message")]
    assert all(text.endswith(CUT_MARK) for text in texts)
    assert len(texts[1].encode()) == MAX_TEXT_BYTES


@pytest.mark.parametrize("char", ["x", "\x01", "é", '"'])
def test_arguments_that_do_not_fit_are_cut(tmp_path: Path, char: str) -> None:
    call = {"function": {"name": "edit", "arguments": json.dumps({"text": char * MAX_PAYLOAD_BYTES})}}
    history = [{"role": "assistant", "content": "x", "action": "edit " + char * 99_999, "tool_calls": [call]}]
    for recording in (
        {"history": history},
        {"trajectory": [step("edit " + char * 99_999, observation=char * 99_999)]},
    ):
        run = read(tmp_path, recording)
        assert_pushable(run)
        args = payloads(run, "tool_call")[0]["args"]
        assert args["truncated"] is True
        assert args["command"].startswith("edit " + char * 1_000)
        assert payloads(run, "tool_call")[0]["tool"] == "edit"


def test_names_and_labels_are_bounded(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "ISSUE:\n" + "t" * 500}]
    run = read(tmp_path, {"trajectory": [step("w" * 500)], "history": history, "info": {"exit_status": "s" * 500}})
    assert run.title == "t" * MAX_LABEL_CHARS
    assert payloads(run, "tool_call")[0]["tool"] == "w" * swe_agent.MAX_TOOL_CHARS
    assert payloads(run, "state_changed")[0]["status"] == "s" * MAX_LABEL_CHARS


MALFORMED: list[tuple[Any, str]] = [
    ([], "the file must be an object, it is a list"),
    ({}, "neither trajectory nor history holds a step"),
    ({"trajectory": [], "history": [{"role": "system", "content": ""}]}, "neither trajectory nor history"),
    ({"trajectory": {"0": {}}}, "trajectory must be a list, it is an object"),
    ({"trajectory": [step(), "x"]}, r"trajectory\[1\] must be an object, it is text"),
    (
        {"trajectory": [step(), {"observation": ""}]},
        r"trajectory\[1\]\.action must be text, it is missing or null",
    ),
    ({"trajectory": [step(action=3)]}, r"trajectory\[0\]\.action must be text, it is a number"),  # type: ignore[arg-type]
    ({"trajectory": [step(observation=["x"])]}, r"trajectory\[0\]\.observation must be text, it is a list"),
    ({"trajectory": [step(thought=True)]}, r"trajectory\[0\]\.thought must be text, it is a boolean"),
    ({"trajectory": [step(execution_time="1")]}, r"trajectory\[0\]\.execution_time must be a number"),
    ({"trajectory": [step(execution_time=-1)]}, r"trajectory\[0\]\.execution_time must be a number"),
    ({"trajectory": [step(execution_time=math.nan)]}, r"trajectory\[0\]\.execution_time must be a number"),
    ({"trajectory": [step(execution_time=10**400)]}, r"trajectory\[0\]\.execution_time must be a number"),
    ({"trajectory": [step(execution_time=True)]}, r"trajectory\[0\]\.execution_time must be a number"),
    ({"trajectory": [step()], "history": "x"}, "history must be a list, it is text"),
    ({"trajectory": [step()], "history": [7]}, r"history\[0\] must be an object, it is a number"),
    ({"trajectory": [step()], "info": "x"}, "info must be an object, it is text"),
    ({"trajectory": [step()], "info": {"exit_status": 1}}, r"info\.exit_status must be text"),
    ({"history": [{"role": "robot"}]}, r"history\[0\]\.role must be system, user, assistant or tool"),
    ({"history": [{"role": "assistant", "content": [1]}]}, r"history\[0\]\.content\[0\] must be an object"),
    ({"history": [{"role": "assistant", "tool_calls": 1}]}, r"history\[0\]\.tool_calls must be a list"),
    (
        {"history": [{"role": "assistant", "tool_calls": [{}]}]},
        r"history\[0\]\.tool_calls\[0\]\.function must be",
    ),
    (
        {"history": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
        r"history\[0\]\.tool_calls\[0\]\.function\.name",
    ),
]


@pytest.mark.parametrize(("recording", "sentence"), MALFORMED)
def test_malformed_recordings_are_named_with_their_place(tmp_path: Path, recording: Any, sentence: str) -> None:
    with pytest.raises(TrajectoryError, match=rf"^run\.traj: {sentence}"):
        read(tmp_path, recording)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff{}", b"[" * 100_000, b'{"trajectory": [' + b"1" * 5_000 + b"]}"])
def test_what_is_not_json_is_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "bad.traj"
    path.write_bytes(raw)
    with pytest.raises(TrajectoryError, match=r"^bad\.traj: not JSON in UTF-8"):
        read_run(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.traj", tmp_path):
        with pytest.raises(TrajectoryError, match="no such file"):
            read_run(path)


def test_too_large_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.traj"
    path.touch()
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(TrajectoryError, match="larger than"):
        read_run(path)


def test_too_many_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match=f"more than {MAX_STEPS} steps"):
        read(tmp_path, {"trajectory": [{"action": ""}] * (MAX_STEPS + 1)})


def test_with_run_id_leaves_the_given_run_alone(tmp_path: Path) -> None:
    run = read(tmp_path, {"trajectory": [step()]})
    named = with_run_id(run, "abcd2345")
    assert {turn["runId"] for turn in payloads(named, "turn")} == {"abcd2345"}
    assert {turn["runId"] for turn in payloads(run, "turn")} == {""}
    assert payloads(named, "tool_call") == payloads(run, "tool_call")


KEYS = ["trajectory", "history", "info", "action", "observation", "thought", "role", "content", "tool_calls"]
MORE_KEYS = ["function", "name", "arguments", "execution_time", "exit_status", "is_demo"]
scraps: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS + MORE_KEYS), inner, max_size=5),
    max_leaves=25,
)
entries: st.SearchStrategy[Any] = st.lists(st.dictionaries(st.sampled_from(KEYS + MORE_KEYS), scraps, max_size=5))
steps: st.SearchStrategy[Any] = st.builds(step, st.text(max_size=5), observation=st.none() | st.text() | scraps)
likely: st.SearchStrategy[Any] = st.builds(
    lambda *parts: dict(zip(("trajectory", "history", "info"), parts, strict=True)),
    st.lists(steps),
    st.none() | entries,
    st.none() | scraps,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(likely | scraps)
def test_any_file_gives_a_run_or_a_sentence(tmp_path: Path, recording: Any) -> None:
    path = written(tmp_path, recording)
    try:
        run = read_run(path)
    except TrajectoryError as error:
        sentence = str(error)
    else:
        assert_pushable(run)
        return
    assert sentence.startswith("run.traj: ")
