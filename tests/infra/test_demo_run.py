"""The run that the project ships for its demo."""

from __future__ import annotations

from collections import Counter
from importlib.resources import as_file, files

import pytest
from minutebook.domain.jsontext import compact
from minutebook.infra.swe_agent import MAX_PAYLOAD_BYTES, Run, read_run


@pytest.fixture(scope="module")
def demo() -> Run:
    with as_file(files("minutebook.infra") / "demo" / "release-notes.traj") as path:
        return read_run(path)


def test_the_demo_run_is_readable_and_whole(demo: Run) -> None:
    counts = Counter(item.type for item in demo.items)
    assert demo.title == "The oldest release never gets its notes"
    assert counts == {"turn": 20, "message": 11, "tool_call": 10, "tool_result": 10, "state_changed": 1}
    assert all(len(compact(item.payload)) < MAX_PAYLOAD_BYTES for item in demo.items)
    assert not any(item.payload["truncated"] for item in demo.items if item.type == "tool_result")


def test_the_demo_run_fails_before_it_succeeds(demo: Run) -> None:
    statuses = [item.payload["status"] for item in demo.items if item.type == "tool_result"]
    assert [number for number, status in enumerate(statuses, start=1) if status == "error"] == [5, 7]
    assert demo.items[-1].payload == {"kind": "harness_status", "status": "submitted"}


def test_the_demo_run_shows_its_tools(demo: Run) -> None:
    tools = [item.payload["tool"] for item in demo.items if item.type == "tool_call"]
    assert Counter(tools) == {"bash": 6, "edit": 3, "submit": 1}


def test_the_demo_run_takes_eight_to_ten_seconds(demo: Run) -> None:
    assert 8 <= sum(item.delay_s for item in demo.items) <= 10
