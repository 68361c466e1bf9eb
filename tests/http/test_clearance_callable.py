"""A server whose clearance is a callable: asked for every frame of a conversation and for every read of a room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, follow, open_room, post, until
from minutebook.domain.ids import short_id
from talks import frame, history, listen, reply, say, start

CONFIG = """
[tools.vault]
dataClass = "secret"
[clearance]
python = "clearance_of_tests:cleared"
"""

MODULE = """
from pathlib import Path

SAID = Path(__file__).with_name("said")

def cleared(viewer, classes):
    word = dict(line.split() for line in SAID.read_text().splitlines()).get(viewer["actor"], "no")
    if word == "raises":
        raise LookupError("canary-of-the-callable")
    return {"yes": True, "one": 1, "text": "yes"}.get(word)
"""

CANARY = "the combination is 4711"


class Words:
    """What the callable answers by actor; read again for each question."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "said"
        self._by_actor: dict[str, str] = {}
        self.set(nobody="no")

    def set(self, **by_name: str) -> None:
        """From now on."""
        self._by_actor |= {f"human:{name}": word for name, word in by_name.items()}
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(f"{actor} {word}\n" for actor, word in self._by_actor.items()))
        fresh.replace(self._path)


@pytest.fixture(scope="module")
def desk(new_data_dir: Callable[[], Path]) -> Iterator[tuple[LiveServer, Words]]:
    folder = new_data_dir()
    (folder / "clearance_of_tests.py").write_text(MODULE)
    words = Words(folder)
    with LiveServer(folder, config=CONFIG) as server:
        yield server, words
        log = server.stderr_path.read_text()
        assert CANARY not in log
        assert "canary-of-the-callable" not in log


@pytest.mark.parametrize("word", ["no", "one", "text", "raises"])
def test_who_is_not_cleared_with_exactly_true_sees_placeholders(desk: tuple[LiveServer, Words], word: str) -> None:
    server, words = desk
    ann, carol = server.member("ann"), server.client("human:carol")
    words.set(ann="yes", carol=word)
    talk = secret_talk(ann)
    assert statuses(carol, talk) == ["restricted"] * 2
    assert statuses(ann, talk) == ["accepted", "completed"]
    words.set(carol="yes")
    until(lambda: statuses(carol, talk) == ["accepted", "completed"], what="a yes, asked anew")


def test_a_viewer_who_loses_clearance_in_mid_stream_sees_placeholders_from_there(
    desk: tuple[LiveServer, Words],
) -> None:
    server, words = desk
    ann, carol, bob = server.member("ann"), server.client("human:carol"), server.client("human:bob")
    words.set(ann="yes", carol="yes", bob="no")
    talk = secret_talk(ann)
    with listen(carol, talk) as stream, listen(bob, talk) as other:
        for _ in range(2):
            frame(stream, "message")  # a busy machine may have kept the callable's yes for longer than it waits
        until(lambda: statuses(carol, talk) == ["accepted", "completed"], what="a yes")
        assert [frame(other, "message").json["status"] for _ in range(2)] == ["restricted"] * 2
        words.set(carol="no", bob="yes")
        ask_secretly(ann, talk, 2)
        assert [frame(stream, "message").json["status"] for _ in range(2)] == ["restricted"] * 2
        until(lambda: statuses(bob, talk) == ["accepted", "completed"] * 2, what="a yes")


def test_rooms_obey_the_same_callable(desk: tuple[LiveServer, Words]) -> None:
    server, words = desk
    ann, cleo = server.member("ann"), server.member("cleo")
    words.set(cleo="no", ann="yes")
    room = open_room(ann)
    bridge = server.client(f"agent:{short_id(9301)}", room=room)
    bridge.post("/v1/bridge/hello")
    items = [
        {"stream": "events", "seq": 1, "type": "tool_call", "payload": CALL},
        {"stream": "events", "seq": 2, "type": "tool_result", "payload": RESULT},
    ]
    assert bridge.post("/v1/bridge/events", json={"items": items}).status_code == 200
    post(ann, room, "afterwards")
    last = ann.get(f"/v1/rooms/{room}").json()["throughSeq"]
    until(lambda: CANARY in ann.get(f"/v1/rooms/{room}/events").text, what="a yes")
    whole = cleo.get(f"/v1/rooms/{room}/events")
    assert CANARY not in whole.text
    assert [each["type"] for each in whole.json()["events"]].count("restricted") == 2
    with follow(cleo, room) as stream:
        assert stream.events(last) == whole.json()["events"]
    assert CANARY not in cleo.get(f"/v1/rooms/{room}/transcript", params={"minSeq": last}).text
    words.set(cleo="yes", ann="raises")
    until(lambda: CANARY in cleo.get(f"/v1/rooms/{room}/events").text, what="a yes")
    assert CANARY not in ann.get(f"/v1/rooms/{room}/events").text, "the owner is no exception"


CALL = {"callId": "c1", "tool": "vault", "args": {"q": CANARY}, "decidedBy": None}
RESULT = {"callId": "c1", "status": "ok", "output": CANARY, "truncated": False, "bytes": 1}


def statuses(client: httpx.Client, talk: str) -> list[str]:
    """Those of all records, as they are seen."""
    return [each["status"] for each in history(client, talk)]


def secret_talk(ann: httpx.Client) -> str:
    """A conversation of ann, bob and carol with one turn of the class `secret`."""
    talk = start(ann, mode="shared")
    for name in ("bob", "carol"):
        assert ann.put(f"/v1/conversations/{talk}/participants/human:{name}").status_code == 200
    ask_secretly(ann, talk, 1)
    return talk


def ask_secretly(ann: httpx.Client, talk: str, turn: int) -> None:
    """One more turn of that class."""
    say(ann, talk, CANARY, classes=["secret"])
    reply(ann, talk, turn)
