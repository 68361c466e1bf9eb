"""`minutebook erase`: where the words are, that they went, and why they do not."""

from __future__ import annotations

import httpx
from live_server import LiveServer, post
from talks import ask, frame, history, listen, start, words
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


def test_the_turn_of_a_record_goes_from_a_conversation(server: LiveServer, owner: httpx.Client) -> None:
    talk = start(owner)
    ask(owner, talk, "keep this")
    with listen(owner, talk, tail=0) as stream:
        ask(owner, talk, "by mistake")
        words(stream, 2)
        call = ("erase", talk, 3, "--conversation", "--reason", "asked for", "--data-dir", server.data_dir)
        assert verb(*call, "--dry-run").out.count(": would be erased") == 4
        assert "by mistake" in owner.get(f"/v1/conversations/{talk}/history").text
        assert verb(*call).out.count(": erased, as entry") == 4
        # What those who follow it have buffered goes too: who comes again reads the log.
        with listen(owner, talk, "1.2") as again:
            assert [frame(again, "message").json["text"] for _ in range(2)] == ["", ""]
    found = history(owner, talk)
    assert [(each["text"], each.get("erased")) for each in found] == [
        ("keep this", None), ("echo: keep this", None), ("", True), ("", True),
    ]  # fmt: skip
    assert verb(*call).out.count(": was erased before") == 4
    assert ask(owner, talk, "go on")["text"] == "echo: go on"
    assert verb("verify", f"conversation:{talk}", "--data-dir", server.data_dir).code == 0
    late = verb("erase", talk, 99, "--conversation", "--reason", "x", "--data-dir", server.data_dir)
    assert (late.code, "has no record 99" in late.said) == (1, True)


def test_what_cannot_be_erased_is_said_in_a_sentence(server: LiveServer, owner: httpx.Client, room: str) -> None:
    seq = post(owner, room, "kept")["seq"]
    assert owner.post(f"/v1/rooms/{room}/hold", json={"reason": "lawsuit"}).status_code == 200
    for place, reason, code, sentence in (
        (seq, "x", 1, f"room:{room} is under legal hold; release it first"),
        (1, "x", 1, "says what the room is"),
        (99, "x", 1, "has no event 99"),
        (0, "x", 2, "1 or more"),
        (seq, "", 2, "--reason must have 1 to 256 bytes"),
        (seq, "ä" * 200, 2, "--reason must have 1 to 256 bytes"),
    ):
        done = verb("erase", room, place, "--reason", reason, "--data-dir", server.data_dir)
        assert (done.code, sentence in done.said) == (code, True), done.said
    assert verb("erase", "no-room", 2, "--reason", "x", "--data-dir", server.data_dir).code == 2
    assert "kept" in owner.get(f"/v1/rooms/{room}/events").text
