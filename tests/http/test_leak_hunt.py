"""The leak hunt: canaries in all that is restricted in a shared conversation, and every byte that others receive.

The model is a parrot (support/parrot.py): whatever reaches a prompt comes out in the answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from canaries import Net, calls, canary, received
from live_server import NO_TLS, LiveServer, until
from minutebook.domain.ids import short_id
from parrot import Parrot, parrot
from talks import history, reply, say, start, status
from verbs import verb

PLACES = (
    *("a tool's output", "the error of a tool", "a provider's error", "a question that is marked restricted"),
    *("a quotation in a later question", "an edit", "a rejected message", "the output of an interrupted turn"),
    *("a message id", "a class of a label unknown to the policy", "an unclassified tool's output"),
)
OUTPUT, TOOL_ERROR, PROVIDER_ERROR, MARKED, QUOTED, EDIT, REJECTED, INTERRUPTED, MESSAGE_ID, ALIEN, UNCLASSIFIED = (
    PLACES
)
LATER, FIRST, SECOND = "what a removed one would have got", "what was seen", "what came after the clearance was lost"

TOOLS = '''
def vault():
    """The vault."""
    return "{output}"

def grumble():
    """Fails."""
    raise RuntimeError("it was {tool_error}")

def alien():
    """Of another world."""
    return "{alien}"

def plain():
    """Of no class."""
    return "{unclassified}"

def fickle():
    """Of tenant fickle."""
    return open("{folder}/fickle.txt").read()

def cleared(viewer, classes):
    return classes == {{open("{folder}/labels.txt").read()}}
'''

CONFIG = """
[database]
poolSize = 2
[agents.parrot]
provider = "openai"
baseUrl = "{url}"
apiKey = "none"
model = "parrot"
system = "You are a parrot."
tools = ["vault", "grumble", "alien", "plain", "fickle"]
contextWindow = 8000
reserveOutputTokens = 500
[agents.parrot.memory]
scope = "asker"
[tools.vault]
python = "leak_tools:vault"
dataClass = "secret"
[tools.grumble]
python = "leak_tools:grumble"
dataClass = "secret"
[tools.alien]
python = "leak_tools:alien"
dataClass = "alien"
[tools.plain]
python = "leak_tools:plain"
[tools.fickle]
python = "leak_tools:fickle"
dataClass = "fickle"
[clearance]
groups = {{ "sec" = ["secret"] }}
[clearance.tenants.fickle]
python = "leak_tools:cleared"
"""

PLACEHOLDER = {"cursor", "ord", "turn", "role", "status", "asker"}


class Listening:
    """Streams that are read to their end, each by a thread. `end` waits for them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(16)
        self._streams: dict[str, Any] = {}
        self._got: dict[str, bytes] = {}

    def begin(self, who: str, client: httpx.Client, talk: str, **query: Any) -> None:
        """Follow until the conversation is closed, or one is sent away."""
        path, begun = f"/v1/conversations/{talk}/events", threading.Event()
        own = httpx.Client(base_url=client.base_url, headers=client.headers, verify=NO_TLS, timeout=60)

        def read() -> bytes:
            got = b""
            with own, own.stream("GET", path, params=query) as response:
                for chunk in response.iter_raw():
                    got += chunk
                    self._got[who] = got
                    if b"event: status" in got:
                        begun.set()
            return got

        self._streams[who] = self._pool.submit(read)
        assert begun.wait(20), f"the stream of {who} did not begin"

    def wait_for(self, who: str, word: str) -> None:
        """Returns once the stream has brought it."""
        until(lambda: word.encode() in self._got.get(who, b""), 20, "a word of the stream")

    def end(self, who: str) -> bytes:
        """All of it."""
        return self._streams[who].result(30)


class Scene:
    """One shared conversation of olga's. cleo is cleared, uma and olga are not; rex was there, and is not any more."""

    def __init__(self, server: LiveServer, model: Parrot, words: dict[str, str]) -> None:
        self.server = server
        self.model = model
        self.words = words
        self.olga, self.cleo = server.member("olga"), server.client("human:cleo", "agents-member", "sec")
        self.uma, self.rex = server.member("uma"), server.member("rex")
        self.vic = server.client("human:vic", "agents-member", "sec")
        self.talk = start(self.olga, "parrot", mode="shared", bargeIn="interrupt")
        self.turns = 0
        for name in ("cleo", "uma", "rex", "vic"):
            self.join(name)
        self.listening = Listening()
        for who, client in (("olga", self.olga), ("uma", self.uma), ("rex", self.rex)):
            self.listening.begin(who, client, self.talk)
        self._tell()
        self._leave("rex")
        until(lambda: status(self.cleo, self.talk)["queued"] == 0, what="the queue's end")
        self.last = history(self.cleo, self.talk)[-1]["cursor"]

    def join(self, name: str) -> None:
        """Have somebody take part."""
        answer = self.olga.put(f"/v1/conversations/{self.talk}/participants/human:{name}", json={})
        assert answer.status_code == 200, answer.text

    def _leave(self, name: str) -> None:
        answer = self.olga.delete(f"/v1/conversations/{self.talk}/participants/human:{name}")
        assert answer.status_code == 200, answer.text

    def ask(self, client: httpx.Client, text: str, **fields: Any) -> dict[str, Any]:
        """A turn of somebody's, to its end."""
        self.turns += 1
        say(client, self.talk, f"asks:{text}", **fields)
        return reply(client, self.talk, self.turns)

    def _tell(self) -> None:
        words, cleo = self.words, self.cleo
        self.ask(self.uma, "good morning")
        assert words[OUTPUT] in self.ask(cleo, "use vault", messageId=words[MESSAGE_ID])["text"]
        assert words[TOOL_ERROR] in self.ask(cleo, "use grumble")["text"]
        assert self.ask(cleo, f"fail with {words[PROVIDER_ERROR]}")["reason"] == "model-error"
        self.ask(cleo, f"mark {words[MARKED]}", classes=["secret"])
        self.ask(cleo, f"quote {words[OUTPUT]} {words[QUOTED]}")
        self.edited = history(cleo, self.talk)[-2]["ord"]
        self.ask(cleo, f"rather {words[EDIT]}", editOf=self.edited)
        say(cleo, self.talk, f"asks:{words[REJECTED]} {'long ' * 6000}")
        say(cleo, self.talk, f"asks:{words[REJECTED]}", editOf=1)
        self._interrupt()
        self.ask(cleo, "use alien")
        self.ask(cleo, "use plain")
        self.ask(cleo, "use memory_write")
        assert words[OUTPUT] in self.ask(cleo, "use memory_read")["text"]
        self.ask(self.vic, "what was it?")
        for client in (self.uma, self.olga, self.uma):
            self.ask(client, f"by:uma what was said? {'tell me' * 3}")
        self.ask(self.uma, "by:uma use memory_read")
        say(self.uma, self.talk, "asks:by:uma edits", editOf=self.edited)

    def _interrupt(self) -> None:
        self.turns += 1
        self.model.held.clear()
        say(self.cleo, self.talk, f"asks:hold {self.words[INTERRUPTED]}")
        assert self.model.held.wait(15)
        answer = self.cleo.post(f"/v1/conversations/{self.talk}/interrupt", json={"turn": self.turns})
        assert answer.status_code == 202
        assert reply(self.cleo, self.talk, self.turns)["status"] == "interrupted"
        self.model.let_go.set()

    def net(self) -> Net:
        """What catches all of it."""
        return Net(self._canaries())

    def _canaries(self) -> list[Any]:
        return [canary(place)._replace(word=word) for place, word in self.words.items()]


@pytest.fixture(scope="module")
def words() -> dict[str, str]:
    """The canaries, by their places."""
    return {place: canary(place).word for place in (*PLACES, LATER, FIRST, SECOND)}


@pytest.fixture(scope="module")
def model() -> Generator[Parrot]:
    """The model's service."""
    with parrot() as serving:
        yield serving


@pytest.fixture(scope="module")
def hunted(new_data_dir: Callable[[], Path], model: Parrot, words: dict[str, str]) -> Generator[LiveServer]:
    """A server with the parrot and tools that tell canaries; its pool has two connections, which all viewers share."""
    folder = new_data_dir()
    tools = TOOLS.format(
        output=words[OUTPUT], tool_error=words[TOOL_ERROR], alien=words[ALIEN], unclassified=words[UNCLASSIFIED],
        folder=folder,
    )  # fmt: skip
    (folder / "leak_tools.py").write_text(tools)
    (folder / "labels.txt").write_text("fickle")
    with LiveServer(folder, config=CONFIG.format(url=model.url)) as running:
        yield running
        running.assert_no_token_in_logs()


@pytest.fixture(scope="module")
def scene(hunted: LiveServer, model: Parrot, words: dict[str, str]) -> Scene:
    """The conversation, told to its end, and open."""
    return Scene(hunted, model, words)


def viewers(scene: Scene) -> dict[str, httpx.Client]:
    """Everybody who is not cleared, however they are related to it."""
    client = scene.server.client
    return {
        "a participant": scene.uma,
        "its owner": scene.olga,
        "one who was removed": scene.rex,
        "a stranger": scene.server.member("eve"),
        "an admin": client("human:root", "agents-admin"),
        "an auditor": client("human:otto", "agents-auditor"),
        "a namesake of another tenant": client("human:cleo", "agents-member", "sec", tenant="elsewhere"),
        "one who acts for the cleared one": client("human:cleo", "agents-member", "sec", act="human:uma"),
        "nobody": client(),
    }


def test_the_cleared_one_finds_what_there_is(scene: Scene) -> None:
    """So that the hunts look for what is there."""
    told = json.dumps(history(scene.cleo, scene.talk))
    assert {place for place in PLACES if scene.words[place] not in told} == set()
    assert scene.words[PROVIDER_ERROR][::-1] not in told
    vics = json.dumps(history(scene.vic, scene.talk))
    assert scene.words[OUTPUT] in vics
    for place in (ALIEN, UNCLASSIFIED, REJECTED, MESSAGE_ID):
        assert scene.words[place] not in vics, place


def test_no_prompt_of_an_uncleared_asker_has_a_byte_of_it(scene: Scene) -> None:
    net = scene.net()
    asked = scene.model.asked_by("by:uma")
    net.look(asked, "a prompt")
    assert asked.count("what was said?") >= 3
    assert net.caught == []
    net.look(scene.model.asked_by("asks:quote"), "a prompt")
    assert net.caught, "the net holds"


def test_no_route_has_a_byte_of_it(scene: Scene) -> None:
    net = scene.net()
    fills = {
        "conversation_id": [scene.talk],
        "turn": ["1", "2", "5", str(scene.turns), str(scene.turns + 1)],
        "principal": [],
        "room_id": [scene.talk, short_id(5)],
        "run_id": [short_id(5)],
        "approval_id": [scene.talk],
        "ref": ["1"],
        "ord_": [str(scene.edited), "1", "999"],
        "job_id": [short_id(5)],
        "delivery_id": [scene.talk],
        "token": ["t0ken" * 8],
        **{key: ["nowhere"] for key in ("channel", "name", "issuer")},
        **{key: [scene.talk] for key in ("link_id", "plan_id", "continuation_id")},
    }
    bodies: dict[tuple[str, str], list[Any]] = {
        ("post", "/v1/conversations"): [{"agent": "parrot", "id": "x"}, {"agent": scene.talk}],
        ("post", "/v1/conversations/{conversation_id}/turns"): [{"text": "asks:hello", "editOf": "x"}, {"text": ""}],
    }
    document = scene.cleo.get("/v1/openapi.json").json()
    for who, client in viewers(scene).items():
        for operation, method, path, body in calls(document, fills, bodies):
            if path.endswith(("/stream", "/events", "/close")):
                continue
            net.heard(client.request(method, path, json=body), f"{operation} of {who}")
        _reads(scene, net, who, client)
    assert net.caught == []
    assert net.bytes > 100_000


def _reads(scene: Scene, net: Net, who: str, client: httpx.Client) -> None:
    path = f"/v1/conversations/{scene.talk}"
    last, ord_ = scene.last, int(scene.last.partition(".")[2])
    for query in (
        {"direction": "forward", "limit": 200}, {"direction": "forward", "limit": 1, "cursor": "1.2"},
        {"limit": 3}, {"asOf": last}, {"asOf": "1.4"}, {"viewer": "human:cleo"},
        {"asOf": last, "viewer": "human:cleo"}, {"asOf": "2099-01-01T00:00:00Z", "viewer": "human:vic"},
        {"cursor": "x"}, {"asOf": "x"}, {"viewer": "x"},
    ):  # fmt: skip
        net.heard(client.get(f"{path}/history", params=query), f"history {query} of {who}")
    until_ = f"id: {last}\n".encode()
    for query in ({"tail": 200}, {"cursor": "1.0"}, {"last_event_id": "1.3"}, {"last_event_id": f"1.{ord_ - 2}"}):
        net.look(received(client, f"{path}/events", until_, **query), f"a stream {query} of {who}")


def test_placeholders_have_exactly_their_keys_on_every_path(scene: Scene) -> None:
    full = history(scene.cleo, scene.talk)
    for client in (scene.uma, scene.olga):
        shown = history(client, scene.talk)
        assert [entry["ord"] for entry in shown] == list(range(1, len(full) + 1))
        for mine, theirs in zip(shown, full, strict=True):
            if mine["status"] == "restricted":
                assert set(mine) == PLACEHOLDER
                assert all(mine[key] == theirs[key] for key in PLACEHOLDER - {"status"})
            elif mine["asker"] != theirs["asker"] or "id" not in mine:
                assert not {"seen", "truncated", "errorId", "messageId", "usage"} & set(mine)
        cleos = [entry["status"] for entry in shown if entry["asker"]["actor"] == "human:cleo"]
        assert cleos == ["accepted", *["restricted"] * (len(cleos) - 1)], "what she asked before there was a secret"


def test_no_command_has_a_byte_of_it(scene: Scene) -> None:
    net = scene.net()
    for name in ("uma", "olga", "rex", "eve"):
        access = ("--url", scene.server.url, "--token", scene.server.token(f"human:{name}", "agents-member"))
        verbs = (
            ("conversations", "history", scene.talk), ("conversations", "list"), ("conversations", "show", scene.talk),
            ("conversations", "history", scene.talk, "--json"), ("conversations", "export", scene.talk),
        )  # fmt: skip
        for arguments in verbs if name == "uma" else verbs[:2]:
            done = verb(*arguments, *access)
            assert (done.code == 0) == (name in ("uma", "olga") or arguments[1] == "list"), done.said
            net.look(done.out + done.err, " ".join(arguments[:2]))
    access = ("--url", scene.server.url, "--token", scene.server.token("human:uma", "agents-member"))
    asked = ("explain", "--conversation", scene.talk, "--ord", str(scene.edited), "--viewer", "human:uma")
    for arguments in (asked, (*asked, "--json"), ("conversations", "participants", scene.talk)):
        done = verb(*arguments, *access)
        assert done.code == 0, done.said
        net.look(done.out + done.err, arguments[0])

    def talked() -> bool:
        # It leaves at the end of its input, which may be before anything has come.
        done = verb("chat", scene.talk, "--tail", "200", *access, stdin="")
        net.look(done.out + done.err, "chat")
        return "restricted" in done.said

    until(talked, 30, "what the chat shows")
    assert net.caught == []


def test_one_page_asked_by_two_in_turn_is_each_ones_own(scene: Scene) -> None:
    """Two connections for all of them, the same URL, many times, at once: nothing is kept too widely (law 11)."""
    path, query = f"/v1/conversations/{scene.talk}/history", {"limit": 30}
    expected = {client: client.get(path, params=query).content for client in (scene.cleo, scene.uma, scene.vic)}
    assert len(set(expected.values())) == 3
    with ThreadPoolExecutor(6) as pool:
        asked = [client for _ in range(12) for client in expected]
        answers = list(pool.map(lambda client: client.get(path, params=query).content, asked))
    assert all(answer == expected[client] for client, answer in zip(asked, answers, strict=True))


def test_who_is_removed_in_their_turn_gets_no_more_of_it(scene: Scene, model: Parrot, words: dict[str, str]) -> None:
    ron = scene.server.client("human:ron", "agents-member", "sec")
    talk = start(scene.olga, "parrot", mode="shared")
    put = scene.olga.put(f"/v1/conversations/{talk}/participants/human:ron", json={})
    assert put.status_code == 200
    scene.listening.begin("ron", ron, talk)
    model.held.clear()
    model.let_go.clear()
    say(ron, talk, f"asks:hold {words[LATER]}")
    assert model.held.wait(15)
    assert scene.olga.delete(f"/v1/conversations/{talk}/participants/human:ron").status_code == 200
    model.let_go.set()
    got = scene.listening.end("ron")
    assert b"not_found" in got
    assert words[LATER].encode() in got, "his question"
    assert words[LATER][::-1].encode() not in got, "what the model said since"
    until(lambda: history(scene.olga, talk)[-1]["role"] == "assistant", what="the reply")
    assert ron.get(f"/v1/conversations/{talk}/history").status_code == 404


def test_who_loses_their_clearance_in_mid_stream_gets_placeholders_from_there(
    hunted: LiveServer, scene: Scene, words: dict[str, str]
) -> None:
    mona, nick = (hunted.member(name, tenant="fickle") for name in ("mona", "nick"))
    talk = start(mona, "parrot", mode="shared")
    assert mona.put(f"/v1/conversations/{talk}/participants/human:nick", json={}).status_code == 200
    scene.listening.begin("nick", nick, talk)
    for turn, (place, labels) in enumerate(((FIRST, "fickle"), (SECOND, "none")), 1):
        (hunted.data_dir / "fickle.txt").write_text(words[place])
        (hunted.data_dir / "labels.txt").write_text(labels)
        say(mona, talk, "asks:use fickle")
        assert words[place] in reply(mona, talk, turn)["text"]
        if place == FIRST:
            scene.listening.wait_for("nick", words[place])  # before they lose it: it is asked for at the delivery
    assert mona.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    got = scene.listening.end("nick")
    assert words[FIRST].encode() in got
    assert words[SECOND].encode() not in got
    net = Net([canary(place)._replace(word=words[place]) for place in (FIRST, SECOND)])
    net.heard(nick.get(f"/v1/conversations/{talk}/history"), "the history since")
    net.look(received(nick, f"/v1/conversations/{talk}/events", b"event: closed"), "a stream since")
    assert net.caught == []


def test_what_streamed_meanwhile_the_log_and_the_metrics_have_none_of_it(scene: Scene) -> None:
    """Last: it closes the conversation, so that the streams end."""
    net = scene.net()
    assert scene.olga.post(f"/v1/conversations/{scene.talk}/close", json={}).status_code == 200
    for who in ("olga", "uma", "rex"):
        got = scene.listening.end(who)
        assert b"not_found" in got if who == "rex" else b"conversation_closed" in got
        net.look(got, f"the stream of {who}")
        assert got.count(b'"restricted"') > 10
    for path in ("/metrics", "/healthz", "/readyz", "/v1/openapi.json"):
        net.heard(scene.uma.get(path), path)
    net.look(scene.server.logs(), "the server's log")
    assert net.caught == []
