"""A run's bridge in tests: what it asks the server for, by hand; and its stream down, read by a thread."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator
from typing import Any

import httpx
from live_server import LiveServer, Stream, open_room
from minutebook.domain.ids import short_id

_numbers = itertools.count(7_000_000)


def new_run_id() -> str:
    """A run's id that no other test has."""
    return short_id(next(_numbers))


class Bridge:
    """A run that said hello in a room. Its owner `alice` drives the room."""

    def __init__(
        self, server: LiveServer, room: str | None = None, run_id: str | None = None, *, role: str = "implementer"
    ) -> None:
        self.server = server
        self.alice = server.client("human:alice", "agents-member", "sec")  # cleared for whatever a tool may return
        self.room = room or open_room(self.alice)
        self.run_id = run_id or new_run_id()
        self.client = server.client(f"agent:{self.run_id}", room=self.room, role=role)
        self.lease = ""
        self.statuses = 0

    def hello(self) -> Bridge:
        """Say hello; the lease is the newest from here."""
        answer = self.client.post("/v1/bridge/hello")
        assert answer.status_code == 200, answer.text
        self.lease = answer.json()["lease"]
        self.statuses = answer.json()["afterStatusSeq"]
        return self

    def elsewhere(self, server: LiveServer) -> Bridge:
        """The same bridge with the same lease, at another process."""
        other = Bridge(server, self.room, self.run_id)
        other.lease, other.statuses = self.lease, self.statuses
        return other

    def push(self, *items: dict[str, Any], lease: str | None = None) -> httpx.Response:
        """Push items under the lease."""
        return self.client.post("/v1/bridge/events", json={"items": items, "lease": lease or self.lease})

    def acknowledge(self, kind: str, ref: int, **fields: Any) -> None:
        """Say what became of a delivery."""
        self.statuses += 1
        payload = {"kind": kind, "ref": ref, **fields}
        answer = self.push({"stream": "status", "seq": self.statuses, "type": "state_changed", "payload": payload})
        assert answer.status_code == 200, answer.text

    def ask(self, event_id: str, class_: str = "forge.pr", action: Any = None, call_id: str = "c1") -> httpx.Response:
        """Ask for approval."""
        body = {"eventId": event_id, "callId": call_id, "class": class_, "action": action or {"command": "open"}}
        return self.client.post("/v1/bridge/approvals", json=body, params={"lease": self.lease})

    def bye(self, reason: str = "finished") -> httpx.Response:
        """End the run."""
        return self.client.post("/v1/bridge/bye", json={"reason": reason}, params={"lease": self.lease})

    @contextlib.contextmanager
    def stream(self, lease: str | None = None) -> Generator[Stream]:
        """The open stream down."""
        with self.client.stream("GET", "/v1/bridge/stream", params={"lease": lease or self.lease}) as response:
            if response.status_code != 200:
                response.read()
            assert response.status_code == 200, response.text
            yield Stream(response)

    # What the driver does.

    @property
    def epoch(self) -> int:
        """The room's driverEpoch."""
        return self.alice.get(f"/v1/rooms/{self.room}").json()["driverEpoch"]

    def steer(self, text: str) -> int:
        """A steering message; its seq."""
        return self._post("messages", {"text": text, "delivery": "steering", "driverEpoch": self.epoch})["seq"]

    def interrupt(self) -> int:
        """The driver interrupts; the seq."""
        return self._post("interrupt", {"driverEpoch": self.epoch})["seq"]

    def decide(self, asked: dict[str, Any], decision: str = "approved", reason: str | None = None) -> int:
        """The owner decides; the seq."""
        body = {"decision": decision, "actionDigest": asked["actionDigest"]}
        body |= {} if reason is None else {"reason": reason}
        return self._post(f"approvals/{asked['approvalId']}/decision", body)["seq"]

    def _post(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.alice.post(f"/v1/rooms/{self.room}/{what}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def log(self) -> list[dict[str, Any]]:
        """The room's first 500 events."""
        return self.alice.get(f"/v1/rooms/{self.room}/events", params={"limit": 500}).json()["events"]


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and problem code."""
    return answer.status_code, answer.json()["code"]


def item(seq: int, type_: str = "state_changed", payload: Any = None, stream: str = "events") -> dict[str, Any]:
    """An item to push."""
    return {"stream": stream, "seq": seq, "type": type_, "payload": payload or {"kind": "harness_event", "n": seq}}


def frames(stream: Stream, count: int) -> list[tuple[str, dict[str, Any]]]:
    """The next `count` frames that are no comments."""
    found: list[tuple[str, dict[str, Any]]] = []
    while len(found) < count:
        frame = stream.next()
        if frame.event not in (":", "retry"):
            assert frame.id is None
            found.append((frame.event, frame.json))
    return found
