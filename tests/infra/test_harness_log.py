"""A harness's log as numbered items: whatever it holds, however it grows, and the same ones at every start."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minutebook.infra.harness_log import MAX_LINE_BYTES, HarnessItem, HarnessLog, LogBroken, Recording
from minutebook.infra.swe_agent import Item


def line(number: int, **more: Any) -> str:
    return json.dumps({"type": "state_changed", "payload": {"kind": "harness_event", "n": number}, **more}) + "\n"


async def collect(log: HarnessLog, after: int = 0) -> list[HarnessItem]:
    return [item async for item in log.items(after)]


def read(path: Path, after: int = 0) -> list[HarnessItem]:
    return asyncio.run(collect(HarnessLog(path, follow=False), after))


def payloads(items: list[HarnessItem]) -> list[Any]:
    return [json.loads(item.payload) for item in items]


def test_an_items_number_is_its_lines_and_what_else_a_line_says_is_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(line(1, seq=99, actor={"kind": "human"}) + "\n  \n" + line(2, causedBy=1) + line(3, causedBy=9))
    items = read(log)
    assert [(item.seq, item.cause) for item in items] == [(1, None), (2, 1), (3, None)]
    assert [each["n"] for each in payloads(items)] == [1, 2, 3]
    assert [item.seq for item in read(log, 2)] == [3]
    assert read(log, 3) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("Traceback (most recent call last):\n", "unreadable_line"),
        ('{"type": "turn", "payload": {"a": }}\n', "unreadable_line"),
        ("[" * 100_000 + "\n", "unreadable_line"),
        ('{"type": 1, "payload": {}}\n', "unreadable_line"),
        ('["a"]\n', "unreadable_line"),
        (f'{{"type":"turn","payload":"{"x" * MAX_LINE_BYTES}"}}\n', "line_too_long"),
    ],
)
def test_a_line_that_is_no_item_is_stood_in_for(tmp_path: Path, bad: str, error: str) -> None:
    log = tmp_path / "log"
    log.write_text(line(1) + bad + line(3))
    items = read(log)
    assert [item.seq for item in items] == [1, 2, 3]
    assert payloads(items)[1] == {"kind": "harness_error", "error": error, "bytes": len(bad.rstrip("\n"))}
    assert payloads(items)[2]["n"] == 3


@pytest.mark.parametrize("value", ["NaN", '"\\ud800"', "1e400", "[Infinity]"])
def test_a_value_that_json_does_not_have_is_the_servers_to_judge(tmp_path: Path, value: str) -> None:
    log = tmp_path / "log"
    log.write_text(f'{{"type": "turn", "payload": {{"a": {value}}}, "causedBy": null}}\n')
    (item,) = read(log)
    assert (item.type, item.seq) == ("turn", 1)
    assert "a" in json.loads(item.payload)


def test_bytes_that_are_no_utf_8_are_an_unreadable_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"type":"turn","payload":{"a":"\xff"}}\n' + line(2).encode())
    assert [item.seq for item in read(log)] == [1, 2]


def test_a_bye_ends_it_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(1) + '{"type": "bye", "payload": {"reason": "stuck"}}\n' + line(3))
    log = HarnessLog(path)
    assert [item.seq for item in asyncio.run(collect(log))] == [1]
    assert log.reason == "stuck"
    path.write_text('{"type": "bye"}\n')
    log = HarnessLog(path)
    assert asyncio.run(collect(log)) == []
    assert log.reason == "finished"


def following(path: Path, script: Callable[[Callable[[int], Any]], Any]) -> list[HarnessItem]:
    """Follow while `script` writes; its argument waits until so many items are there."""

    async def body() -> list[HarnessItem]:
        found: list[HarnessItem] = []
        moved = asyncio.Event()

        async def listen() -> None:
            async for item in HarnessLog(path).items(0):
                found.append(item)
                moved.set()

        async def have(count: int) -> None:
            async with asyncio.timeout(10):
                while len(found) < count:
                    moved.clear()
                    await moved.wait()

        listening = asyncio.create_task(listen())
        try:
            await script(have)
            await listening
        finally:
            listening.cancel()
        return found

    return asyncio.run(body())


def test_it_waits_for_the_file_for_lines_and_for_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "later"

    async def script(have: Any) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(line(1).encode())
            await have(1)
            half = line(2).encode()
            file.write(half[:10])
            file.write(half[10:] + line(3).encode()[:5])
            await have(2)
            file.write(line(3).encode()[5:])
            await have(3)
            file.write(b'{"type":"bye"}\n')

    assert [each["n"] for each in payloads(following(path, script))] == [1, 2, 3]


@pytest.mark.parametrize("how", ["cut", "replaced", "gone"])
def test_a_log_that_does_not_only_grow_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "log"
    path.write_text(line(1) + line(2))

    async def script(have: Any) -> None:
        await have(2)
        if how == "cut":
            path.write_text(line(1))
        else:
            path.unlink()
        if how == "replaced":
            path.write_text(line(1) + line(2) + line(3))

    with pytest.raises(LogBroken):
        following(path, script)


@settings(max_examples=60, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.binary(max_size=40)), st.integers(0, 10))
def test_any_bytes_give_the_same_numbers_from_wherever_one_starts(
    tmp_path: Path, lines: list[bytes], after: int
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(lines))
    everything = read(path)
    assert [item.seq for item in everything] == list(range(1, len(everything) + 1))
    assert read(path, after) == everything[after:]


def test_a_recording_numbers_all_its_items_in_the_order_of_sending() -> None:
    waited: list[int] = []

    def wait_s(item: Item) -> float:
        waited.append(item.seq)
        return 0.0

    recorded = [
        Item("events", 1, "turn", {"a": 1}, None, 0.0),
        Item("status", 1, "state_changed", {"b": 1}, None, 0.0),
        Item("events", 2, "turn", {"c": 1}, 1, 0.0),
    ]

    async def body() -> list[HarnessItem]:
        return [item async for item in Recording(recorded, "finished", wait_s).items(1)]

    assert [(item.seq, item.payload, item.cause) for item in asyncio.run(body())] == [
        (2, b'{"b":1}', None),
        (3, b'{"c":1}', 1),
    ]
    assert waited == [1, 2]
