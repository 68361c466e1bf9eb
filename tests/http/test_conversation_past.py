"""Time travel and explain over HTTP: who may, what they get, and that it is written down (conversations.md)."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from bad_input import refused
from live_server import LiveServer, until
from talks import ask, frame, history, listen, reply, say, start, status

PLACEHOLDER = {"cursor", "ord", "turn", "role", "status", "asker"}


class People:
    """ann, who owns the conversations, and the auditor are cleared for `secret`; ben is where his token says so."""

    def __init__(self, server: LiveServer) -> None:
        self.ann = server.client("human:ann", "agents-member", "sec")
        self.ben = server.client("human:ben")
        self.cleared_ben = server.client("human:ben", "sec")
        self.auditor = server.client("human:audrey", "agents-auditor", "sec")
        self.uncleared_auditor = server.client("human:aud", "agents-auditor")
        self.stranger = server.client("human:carl", "agents-member", "sec")

    def shared(self) -> str:
        """A new conversation of ann's and ben's."""
        talk = start(self.ann, mode="shared")
        self.put(talk)
        return talk

    def put(self, talk: str) -> None:
        """Ben takes part."""
        assert self.ann.put(f"/v1/conversations/{talk}/participants/human:ben").status_code == 200

    def secretly(self, talk: str, text: str) -> None:
        """A turn of ann's that only the cleared see."""
        turn = status(self.ann, talk)["turns"] + 1
        say(self.ann, talk, text, classes=["secret"])
        reply(self.ann, talk, turn)


@pytest.fixture(scope="module")
def people(server: LiveServer) -> People:
    return People(server)


def statuses(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["status"] for entry in entries]


def past(client: httpx.Client, talk: str, **query: Any) -> list[dict[str, Any]]:
    """What ben could see."""
    return history(client, talk, **{"viewer": "human:ben", **query})


def audited(server: LiveServer, talk: str) -> list[dict[str, Any]]:
    """The payloads of who looked, oldest first, with their actors."""
    with server.sql("auditor") as connection:
        rows = connection.execute(
            "SELECT e.payload, e.actor_kind || ':' || e.actor_id FROM minutebook.events e"
            " JOIN minutebook.streams s ON s.id = e.stream_id WHERE s.name = %s ORDER BY e.seq",
            (f"audit:{talk}",),
        ).fetchall()
    assert all(payload["by"]["actor"] == actor for payload, actor in rows)
    return [payload for payload, _ in rows]


def test_the_frames_of_a_live_stream_are_what_its_cursors_answer(people: People) -> None:
    talk = people.shared()
    frames: list[dict[str, Any]] = []
    for client in (people.ben, people.cleared_ben, people.ben):
        with listen(client, talk, tail=0) as stream:
            people.secretly(talk, "a secret")
            frames += [frame(stream, "message").json for _ in range(2)]
    assert statuses(frames) == ["restricted"] * 2 + ["accepted", "completed"] + ["restricted"] * 2
    for client in (people.ann, people.auditor):
        for got in frames:
            entries = past(client, talk, asOf=got["cursor"])
            assert entries[-1] == got
            assert len(entries) == got["ord"], "nothing behind it"
    assert set(statuses(past(people.uncleared_auditor, talk, asOf="1.4"))) == {"restricted"}, "nor more than they may"
    assert statuses(past(people.ann, talk, asOf="1.4")) == ["accepted", "completed"] * 2
    assert set(statuses(past(people.ann, talk))) == {"restricted"}, "now"
    assert past(people.ann, talk, asOf="99.99") == past(people.ann, talk, asOf="1.6"), "beyond the end is the end"
    assert past(people.ann, talk, asOf="1.0") == []
    own = history(people.ann, talk, asOf="1.3")
    assert own == history(people.ann, talk)[:3], "the caller where nobody is named"
    page = people.ann.get(
        f"/v1/conversations/{talk}/history", params={"asOf": "1.5", "viewer": "human:ben", "limit": 2}
    ).json()
    assert [entry["ord"] for entry in page["entries"]] == [5, 4]
    assert (page["nextCursor"], page["done"]) == ("1.4", False)


def test_as_of_a_time_and_outside_of_membership(people: People) -> None:
    talk = start(people.ann, mode="shared")
    ask(people.ann, talk, "before")
    people.put(talk)
    assert history(people.ben, talk)
    ask(people.ann, talk, "while")
    moment = history(people.ann, talk)[-1]["ts"]
    assert people.ann.delete(f"/v1/conversations/{talk}/participants/human:ben").status_code == 200
    ask(people.ann, talk, "behind")
    assert past(people.ann, talk) == []
    assert past(people.ann, talk, asOf="1.1") == [], "not a participant then"
    assert statuses(past(people.ann, talk, asOf="1.2")) == ["accepted", "completed"], "came while it was the newest"
    found = past(people.ann, talk, asOf=moment)
    assert [entry["ord"] for entry in found] == [1, 2, 3, 4]
    assert past(people.ann, talk, asOf=moment.replace("Z", "+00:00")) == found
    assert past(people.ann, talk, asOf="1.6") == []
    assert past(people.ann, talk, asOf="2000-01-01T00:00:00Z") == []
    assert history(people.ann, talk, asOf="9999-12-31T23:59:59Z") == history(people.ann, talk)


@pytest.mark.parametrize("as_of", ["", "1", "1.01", "-1.2", "1.2.3", "now", "2026-01-01", "2026-01-01T00:00:00", "-5"])
def test_what_is_no_moment(people: People, as_of: str) -> None:
    talk = start(people.ann, id="moments", mode="shared")
    refused(people.ann.get(f"/v1/conversations/{talk}/history", params={"asOf": as_of}), 400, "invalid_cursor")


def test_who_may_look(people: People) -> None:
    talk, own = people.shared(), start(people.ann)
    for query in ({"asOf": "1.1"}, {"viewer": "human:ann"}, {"asOf": "no", "viewer": "nobody"}):
        url = f"/v1/conversations/{talk}/history"
        refused(people.ben.get(url, params=query), 403, "forbidden")
        strange = people.stranger.get(url, params=query)
        missing = people.stranger.get(f"/v1/conversations/{'a' * 26}/history", params=query)
        for answer in (strange, missing, people.auditor.get(f"/v1/conversations/{own}/history", params=query)):
            refused(answer, 404, "not_found")
        assert strange.json().keys() == missing.json().keys()
    assert people.ann.get(f"/v1/conversations/{own}/history", params={"asOf": "1.0"}).status_code == 200
    refused(people.ann.get(f"/v1/conversations/{talk}/history", params={"viewer": "nobody"}), 422, "invalid")
    for path in ("", "/history", "/events", "/participants"):
        refused(people.auditor.get(f"/v1/conversations/{talk}{path}"), 404, "not_found")


def test_each_look_is_written_down_also_behind_the_seal(server: LiveServer, people: People) -> None:
    talk = people.shared()
    ask(people.ann, talk, "hello")
    assert people.ann.post(f"/v1/conversations/{talk}/close", json={}).status_code == 200
    until(lambda: status(people.ann, talk)["state"] == "closed", what="the close")
    refused(people.ben.get(f"/v1/conversations/{talk}/history", params={"asOf": "1.1"}), 403, "forbidden")
    assert audited(server, talk) == []
    past(people.ann, talk, asOf="1.1")
    past(people.auditor, talk, asOf="2026-03-01T13:00:00+01:00")
    past(people.auditor, talk)
    people.auditor.get(f"/v1/conversations/{talk}/entries/1/explain", params={"viewer": "human:ben"})
    found = audited(server, talk)
    assert [(each["by"]["actor"], each.get("asOf"), each.get("ord")) for each in found] == [
        ("human:ann", "1.1", None),
        ("human:audrey", "2026-03-01T12:00:00.000000Z", None),
        ("human:audrey", None, None),
        ("human:audrey", None, 1),
    ]
    assert {each["viewer"]["actor"] for each in found} == {"human:ben"}
    assert all(len(each["policy"]) == 16 for each in found)


def explained(client: httpx.Client, talk: str, ord_: int, viewer: str | None = "human:ben") -> dict[str, Any]:
    """What is said of a record."""
    query = {} if viewer is None else {"viewer": viewer}
    answer = client.get(f"/v1/conversations/{talk}/entries/{ord_}/explain", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_explain(server: LiveServer, people: People) -> None:
    talk = people.shared()
    people.secretly(talk, "a secret")
    no, yes = {"ord": 1, "shown": False}, {"ord": 1, "shown": True}
    unknown = explained(people.auditor, talk, 1)
    assert (unknown["rule"], unknown["labels"], "policy" in unknown) == ("clearance_unknown", None, False)
    ask(people.ben, talk, "mine")
    assert explained(people.ben, talk, 1, None) == explained(people.ben, talk, 1) == no
    assert explained(people.ann, talk, 1) == no
    assert explained(people.ann, talk, 1, None) == yes
    uncleared_ann = server.client("human:ann", "agents-member")
    assert explained(uncleared_ann, talk, 4, "human:ann") == {"ord": 4, "shown": True}
    assert explained(people.cleared_ben, talk, 1, None) == yes
    assert explained(people.ann, talk, 1) == yes
    assert explained(people.uncleared_auditor, talk, 1) == {
        **yes,
        "viewer": {"actor": "human:ben", "tenant": "default"},
        "sight": "cleared",
        "rule": "cleared",
        "classes": ["secret"],
        "labels": ["secret"],
        "missing": [],
        "policy": explained(people.auditor, talk, 1)["policy"],
    }
    history(people.ben, talk)
    said = explained(people.auditor, talk, 2)
    assert (said["shown"], said["sight"], said["rule"], said["missing"]) == (
        False,
        "restricted",
        "not_cleared",
        ["secret"],
    )
    assert explained(people.auditor, talk, 3)["rule"] == "asker"
    gone = explained(people.auditor, talk, 1, "human:carl")
    assert (gone["shown"], gone["rule"], "sight" in gone) == (False, "not_a_participant", False)
    for client, path, query in (
        (people.stranger, "1", {}),
        (people.ann, "99", {}),
        (people.ann, "01", {}),
        (people.ann, "x", {}),
        (people.auditor, "99", {}),
    ):
        answer = client.get(f"/v1/conversations/{talk}/entries/{path}/explain", params=query)
        refused(answer, 404, "not_found")
    answer = people.ben.get(f"/v1/conversations/{talk}/entries/1/explain", params={"viewer": "human:ann"})
    refused(answer, 403, "forbidden")
