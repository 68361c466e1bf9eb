"""Who sees what of a shared conversation over HTTP: history, streams, running replies, contexts (conversations.md,
Shared mode; rules 12 and 13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from bad_input import refused
from live_server import Frame, LiveServer, Stream
from talks import ask, frame, history, listen, reply, say, start, status, words

CANARY = "canary-8f2c-of-the-incident"

PLACEHOLDER = {"cursor", "ord", "turn", "role", "status", "asker"}
"""Every key of what is restricted."""

ASKERS_ALONE = {"id", "messageId", "truncated", "seen", "errorId", "usage"}


class People:
    """ann and carol are cleared for `secret`, bob is not. ann's are the conversations."""

    def __init__(self, server: LiveServer) -> None:
        self.ann = server.client("human:ann", "agents-member", "sec")
        self.bob = server.client("human:bob")
        self.carol = server.client("human:carol", "sec")

    def shared(self, **said: Any) -> str:
        """A new conversation of the three."""
        talk = start(self.ann, mode="shared", **said)
        for name in ("bob", "carol"):
            assert self.ann.put(f"/v1/conversations/{talk}/participants/human:{name}").status_code == 200
        return talk


@pytest.fixture(scope="module")
def people(server: LiveServer) -> People:
    return People(server)


@pytest.fixture(scope="module")
def told(people: People) -> str:
    """A conversation: ann asks openly (1), secretly (2), in vain (an edit of nothing); bob asks (3); ann is interrupted
    (4), secretly."""
    talk = people.shared()
    ask(people.ann, talk, "an open word")
    ask_secretly(people.ann, talk, f"the {CANARY}", messageId=f"mine-{CANARY}")
    say(people.ann, talk, f"never {CANARY}", editOf=77)
    ask(people.bob, talk, "my own words")
    say(people.ann, talk, "!slow 400 20", classes=["secret"])
    with listen(people.ann, talk, tail=0) as stream:
        frame(stream, "partial", "delta")
        assert people.ann.post(f"/v1/conversations/{talk}/interrupt", json={"seen": 2}).status_code == 202
        words_until(stream, "message")
    assert reply(people.ann, talk, 4)["status"] == "interrupted"
    return talk


def ask_secretly(client: httpx.Client, talk: str, text: str, **fields: Any) -> dict[str, Any]:
    """A question of the class `secret`, and so its answer."""
    turn = status(client, talk)["turns"] + 1
    say(client, talk, text, classes=["secret"], **fields)
    return reply(client, talk, turn)


def words_until(stream: Stream, event: str) -> list[Frame]:
    """Frames up to the reply's record."""
    found = stream.until(event)
    return found if found[-1].json["role"] == "assistant" else found + words_until(stream, event)


def test_shared_mode_filter_whole_cleared_or_a_placeholder(people: People, told: str) -> None:
    own, uncleared, cleared = (history(each, told) for each in (people.ann, people.bob, people.carol))
    assert [entry["ord"] for entry in own] == [entry["ord"] for entry in uncleared] == list(range(1, 10))
    assert [entry["ord"] for entry in cleared] == list(range(1, 10))
    assert [entry["turn"] for entry in own] == [1, 1, 2, 2, 0, 3, 3, 4, 4]
    assert [entry["status"] for entry in uncleared] == [
        *("accepted", "completed", "restricted", "restricted", "restricted"),
        *("accepted", "completed", "restricted", "restricted"),
    ]
    assert [place + 1 for place, entry in enumerate(cleared) if entry["status"] == "restricted"] == [5]
    for whole, theirs, entry in zip(own, uncleared, cleared, strict=True):
        for each in (theirs, entry):
            if each["status"] == "restricted":
                assert set(each) == PLACEHOLDER
                assert {name: each[name] for name in PLACEHOLDER - {"status"}} == {
                    name: whole[name] for name in PLACEHOLDER - {"status"}
                }
            elif each["asker"]["actor"] == "human:ann":
                assert each == {name: value for name, value in whole.items() if name not in ASKERS_ALONE}
                assert "classes" in each
    assert CANARY in str(cleared)
    assert uncleared[5]["id"], "their own record is whole"
    assert not ASKERS_ALONE & set(own[5]), "and of that others get no id, not even the owner"
    assert {"id", "messageId"} <= set(own[2])
    assert own[8]["seen"] == 2
    assert own[4]["reason"] == "edit-invalid"


@pytest.mark.parametrize("query", [{}, {"limit": 2}, {"limit": 3, "direction": "backward"}, {"cursor": "1.4"}])
def test_no_byte_of_what_is_restricted_reaches_a_viewer(people: People, told: str, query: dict[str, Any]) -> None:
    """On any page, and no class, id or time of it either."""
    cursor: Any = None
    for _ in range(20):
        params = query if cursor is None else {**query, "cursor": cursor}
        answer = people.bob.get(f"/v1/conversations/{told}/history", params=params)
        assert CANARY not in answer.text
        assert "secret" not in answer.text
        page = answer.json()
        assert all(set(each) == PLACEHOLDER for each in page["entries"] if each["ord"] in (3, 4, 5, 8, 9))
        if page["done"]:
            break
        cursor = page["nextCursor"]
    else:
        raise AssertionError("no end")


@pytest.mark.parametrize(("last", "query"), [(None, {}), (None, {"tail": 4}), ("1.3", {}), (None, {"cursor": "1.0"})])
def test_a_stream_shows_what_history_shows(people: People, told: str, last: str | None, query: dict[str, Any]) -> None:
    for client in (people.ann, people.bob, people.carol):
        entries = history(client, told)
        first = 5 if query.get("tail") else 3 if last else 0
        with listen(client, told, last, **query) as stream:
            found = [frame(stream, "message") for _ in entries[first:]]
        assert [each.json for each in found] == entries[first:]
        assert [each.id for each in found] == [each["cursor"] for each in entries[first:]]
        raw = "".join(each.data for each in found)
        assert ("secret" in raw) == (client is not people.bob)


@pytest.fixture
def streams(people: People) -> Iterator[tuple[str, dict[str, Stream]]]:
    """A new conversation that all three follow."""
    talk = people.shared()
    with ExitStack() as stack:
        yield (
            talk,
            {
                name: stack.enter_context(listen(getattr(people, name), talk, tail=0))
                for name in ("ann", "bob", "carol")
            },
        )


def test_shared_mode_live_deltas_a_running_reply_is_its_askers_alone(
    people: People, streams: tuple[str, dict[str, Stream]]
) -> None:
    talk, open_streams = streams
    say(people.ann, talk, f"!slow 12 10 {CANARY}", classes=["secret"])
    text, said = words(open_streams["ann"], 1)
    assert text
    assert said.json["text"].startswith(text)
    others = {name: words_until(open_streams[name], "message") for name in ("bob", "carol")}
    for name, found in others.items():
        assert [each.event for each in found] == ["status", "message", "message"], name
    assert [each.json for each in others["carol"][1:]] == history(people.carol, talk)
    assert [set(each.json) for each in others["bob"][1:]] == [PLACEHOLDER] * 2
    assert CANARY not in "".join(each.data for each in others["bob"])
    # The next turn is another's.
    say(people.bob, talk, "!slow 3 10")
    text, said = words(open_streams["bob"], 2)
    assert text
    found = words_until(open_streams["ann"], "message")
    assert {each.event for each in found} == {"message"}
    assert found[-1].json == history(people.ann, talk)[-1]


def test_who_comes_in_mid_reply_gets_the_part_that_is_theirs(people: People) -> None:
    talk = people.shared()
    say(people.ann, talk, "!slow 30 20")
    with listen(people.ann, talk, tail=0) as own:
        first = frame(own, "partial", "delta")
        assert first.json["text"].startswith("w1")
        with listen(people.carol, talk, tail=0) as other, listen(people.bob, talk, "1.1") as another:
            for stream in (other, another):
                found = words_until(stream, "message")
                assert not {"partial", "delta", "reset"} & {each.event for each in found}
                assert found[0].json.get("running") == {"turn": 1}, "that a turn runs, and nothing more"


def test_shared_mode_status_counts_ones_own_waiting_turns(people: People) -> None:
    talk = people.shared()
    say(people.ann, talk, "!slow 100 20")
    with listen(people.ann, talk) as stream:
        frame(stream, "delta")
    say(people.ann, talk, "one more")
    say(people.ann, talk, "and another")
    say(people.bob, talk, "mine")
    assert [status(each, talk)["queued"] for each in (people.ann, people.bob, people.carol)] == [2, 1, 0]
    assert [status(each, talk)["running"] for each in (people.ann, people.bob)] == [{"turn": 1}] * 2
    assert people.ann.post(f"/v1/conversations/{talk}/interrupt", json={}).status_code == 202
    reply(people.ann, talk, 4)


def test_shared_mode_a_context_is_its_askers_alone(people: People, told: str) -> None:
    for turn, asker in ((1, "ann"), (2, "ann"), (3, "bob"), (4, "ann")):
        for name in ("ann", "bob", "carol"):
            answer = getattr(people, name).get(f"/v1/conversations/{told}/turns/{turn}/context")
            if name == asker:
                assert answer.status_code == 200
            else:
                refused(answer, 404, "not_found")
