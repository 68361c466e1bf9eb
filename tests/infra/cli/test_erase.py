"""`minutebook erase`: where the words are, that they went, and why they do not."""

from __future__ import annotations

import httpx
from live_server import LiveServer, post
from verbs import verb

TOKEN = "ghp_" + "aB3" * 12


def test_it_says_where_the_words_are_and_then_that_they_went(
    server: LiveServer, owner: httpx.Client, room: str
) -> None:
    seq = post(owner, room, "by mistake")["seq"]
    fork = owner.post(f"/v1/rooms/{room}/fork", json={"seq": seq}).json()["id"]
    call = ("erase", room, seq, "--reason", f"it held {TOKEN}", "--data-dir", server.data_dir)
    assert verb(*call, "--dry-run").out == f"room:{room}: would be erased\nroom:{fork}: would be erased\n"
    assert "by mistake" in owner.get(f"/v1/rooms/{room}/events").text
    assert verb(*call).out == (
        f"room:{room}: erased, as entry {seq + 1} says\nroom:{fork}: erased, as entry {seq + 2} says\n"
    )
    assert verb(*call).out == f"room:{room}: was erased before\nroom:{fork}: was erased before\n"
    _, erased, named = owner.get(f"/v1/rooms/{room}/events").json()["events"]
    assert erased["payload"] == {"erased": True}
    assert named["payload"] == {
        "kind": "payload_erased", "erasedSeq": seq, "reason": "it held [REDACTED:github-token]",
    }  # fmt: skip
    assert named["redactions"] == ["github-token"]


def test_what_cannot_be_erased_is_said_in_a_sentence(server: LiveServer, owner: httpx.Client, room: str) -> None:
    seq = post(owner, room, "kept")["seq"]
    assert owner.post(f"/v1/rooms/{room}/hold", json={"reason": "lawsuit"}).status_code == 200
    for place, reason, code, words in (
        (seq, "x", 1, f"room:{room} is under legal hold; release it first"),
        (1, "x", 1, "says what the room is"),
        (99, "x", 1, "has no event 99"),
        (0, "x", 2, "1 or more"),
        (seq, "", 2, "--reason must have 1 to 256 bytes"),
        (seq, "ä" * 200, 2, "--reason must have 1 to 256 bytes"),
    ):
        done = verb("erase", room, place, "--reason", reason, "--data-dir", server.data_dir)
        assert (done.code, words in done.said) == (code, True), done.said
    assert verb("erase", "no-room", 2, "--reason", "x", "--data-dir", server.data_dir).code == 2
    assert "kept" in owner.get(f"/v1/rooms/{room}/events").text
