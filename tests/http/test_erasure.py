"""Law 10: what is erased is in no table and in no answer, here and in forks, and stays away after a rebuild."""

from __future__ import annotations

from typing import Any

import httpx
from bridges import Bridge, item
from live_server import LiveServer, until
from table_rows import rows
from verbs import verb

SAID = "the-words-that-must-go"
EVENTS = 210
"""More than a server takes in before it keeps a snapshot."""


def places(server: LiveServer) -> set[str]:
    """The tables that have the words."""
    with server.sql() as connection:
        return {table for table, row in rows(connection) if SAID in row}


def answers(client: httpx.Client, room: str) -> str:
    """All that anybody may read of a room."""
    paths = ("", "/events?limit=500", "/transcript?limit=500", "/export", "/approvals")
    found = [client.get(f"/v1/rooms/{room}{path}") for path in paths]
    assert [answer.status_code for answer in found] == [200] * len(found)
    return "".join(answer.text for answer in found)


def scene(server: LiveServer) -> tuple[Bridge, list[int]]:
    """A room that has the words in its queue, in a steering message, in a verdict and in what a tool answered; and in
    the snapshot of its state."""
    bridge = Bridge(server).hello()
    posts: list[dict[str, Any]] = [
        {"text": f"queued {SAID}", "delivery": "queued"},
        {"text": f"steered {SAID}", "delivery": "steering", "driverEpoch": 1},
        {"kind": "review_verdict", "text": f"judged {SAID}", "verdict": "changes", "commit": "0a1b2c3"},
    ]
    seqs: list[int] = []
    for body in posts:
        answer = bridge.alice.post(f"/v1/rooms/{bridge.room}/messages", json=body)
        assert answer.status_code == 201, answer.text
        seqs.append(answer.json()["seq"])
    result = {"callId": "c", "status": "ok", "output": f"read {SAID}", "truncated": False, "bytes": 9}
    items = [item(1, "tool_result", result), *(item(n) for n in range(2, EVENTS))]
    pushed = bridge.push(*items)
    assert pushed.status_code == 200, pushed.text
    seqs.append(pushed.json()["seq"] - len(items) + 1)
    return bridge, seqs


def test_law_10_erased_words_are_in_no_table_and_in_no_answer(server: LiveServer) -> None:
    bridge, seqs = scene(server)
    alice, room = bridge.alice, bridge.room
    head = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    fork = alice.post(f"/v1/rooms/{room}/fork", json={"seq": head}).json()["id"]
    twice = alice.post(f"/v1/rooms/{fork}/fork", json={"seq": head + 1}).json()["id"]
    assert alice.post(f"/v1/rooms/{twice}/close", json={}).status_code == 200
    wanted = {"minutebook.events", "minutebook.snapshots", "minutebook_views.room_list", "minutebook_views.transcript"}
    until(lambda: places(server) >= wanted, what="the words in snapshot and views")

    done = None
    for seq in seqs:
        done = verb("erase", room, seq, "--reason", "asked for", "--data-dir", server.data_dir, "--json")
        assert done.code == 0, done.said
        assert [each["wasThere"] for each in done.json["streams"]] == [True, True, True]
        assert [each["stream"] for each in done.json["streams"]] == [f"room:{each}" for each in (room, fork, twice)]
    until(lambda: not places(server), what="the last table without the words")
    for each in (room, fork, twice):
        assert SAID not in answers(alice, each)
        assert alice.get(f"/v1/rooms/{each}/events", params={"afterSeq": seqs[0] - 1, "limit": 1}).json()["events"][0][
            "payload"
        ] == {"erased": True}
    assert alice.get(f"/v1/rooms/{twice}").json()["sealed"] is True
    assert verb("verify", "--data-dir", server.data_dir).code == 0

    # What comes later brings nothing back: more events, another fork, a rebuild.
    bridge.push(*(item(n) for n in range(EVENTS, 2 * EVENTS)))
    now = alice.get(f"/v1/rooms/{room}").json()["throughSeq"]
    assert alice.post(f"/v1/rooms/{room}/fork", json={"seq": now}).status_code == 201
    for view in ("room_list", "transcript"):
        assert verb("rebuild", view, "--data-dir", server.data_dir).code == 0
    assert places(server) == set()
