"""The real server as its own process, with its embedded PostgreSQL, and what a client needs to talk to it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx
import psycopg
from minutebook.domain.principals import DEFAULT_TENANT, Principal
from minutebook.infra.dev_issuer import DevelopmentIssuer
from minutebook.infra.postgres.embedded import EmbeddedPostgres

START_S = 60.0
REQUEST_S = 20.0
LISTENING = "listening on "

PATIENT = {
    "MINUTEBOOK_LIMITS_ACTIONS_PER_SECOND": "100000",
    "MINUTEBOOK_LIMITS_ACTION_BURST": "100000",
    "MINUTEBOOK_LIMITS_STREAMS_PER_PRINCIPAL": "10000",
    "MINUTEBOOK_LIMITS_PEOPLE_PER_ROOM": "10000",
    "MINUTEBOOK_CONVERSATIONS_POSTS_PER_MINUTE": "100000",
    "MINUTEBOOK_CONVERSATIONS_STREAMS_PER_PRINCIPAL": "10000",
}
"""No limit on one principal; tests of these limits set their own."""

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that never speak TLS: a context of their own would load all certificates, 40 ms each."""


class LiveServer:
    """`minutebook serve` on a free port. The test process stays a user of the embedded database, so that it outlives a
    killed server and any role can look into it by `sql`.

    `config` is the text of minutebook.toml, `env` additional variables, `arguments` additional options of `serve`,
    `program` what stands before `serve`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        config: str = "",
        env: Mapping[str, str] | None = None,
        arguments: Iterable[str] = (),
        program: Iterable[str] = ("-m", "minutebook.infra.cli.main"),
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if config:
            (data_dir / "minutebook.toml").write_text(config)
        self.data_dir = data_dir
        self.stderr_path = data_dir / "serve.stderr"
        self.url = ""
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        self._env |= {"TERM": "dumb", **PATIENT, **(env or {})}
        self._arguments = list(arguments)
        self._program = list(program)
        self._database: EmbeddedPostgres | None = None
        self._issuer: DevelopmentIssuer | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._clients: list[httpx.Client] = []
        self.tokens: set[str] = set()

    def __enter__(self) -> LiveServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start (again), on another port; returns when it serves. Raises AssertionError with its stderr otherwise."""
        if self._database is None:
            self._database = EmbeddedPostgres.open(self.data_dir)
        with self.stderr_path.open("a") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "serve", "--data-dir", str(self.data_dir), "--port", "0",
                 *self._arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self._env,
            )  # fmt: skip
        line, self._reader = _first_line(self._process, START_S)
        assert line.startswith(LISTENING), f"serve said {line!r}:\n{self.logs()}"
        self.url = line.removeprefix(LISTENING).strip()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The serving process."""
        assert self._process is not None
        return self._process

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    def keep_port(self) -> None:
        """Come back on this port at every further start."""
        self._arguments += ["--port", str(self.port)]

    def logs(self) -> str:
        """All that it wrote to stderr so far, children included."""
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def stop(self, within_s: float = 15.0) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(within_s)
        self._join_reader()
        return code

    def kill(self) -> None:
        """SIGKILL to the serving process; its children notice and end."""
        self.process.kill()
        self.process.wait(15)
        self._join_reader()

    def _join_reader(self) -> None:
        """Children hold the other end of the pipe: it ends when the last of them is gone."""
        if self._reader is not None:
            self._reader.join(15)
            assert not self._reader.is_alive(), "children of the server outlived it"

    def close(self) -> None:
        """Stop the server and leave its database."""
        for client in self._clients:
            client.close()
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGCONT)
                self._process.terminate()
                try:
                    self._process.wait(20)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait(15)
            self._join_reader()
        if self._database is not None:
            self._database.close()

    def token(
        self,
        principal: str,
        *groups: str,
        tenant: str = DEFAULT_TENANT,
        ttl_s: int = 3600,
        room: str | None = None,
        role: str | None = None,
        now: float | None = None,
        client: str | None = None,
        act: str | None = None,
    ) -> str:
        """A token of the server's development issuer; with `client` that of a command-line client, with `act` that of
        somebody who acts for the principal."""
        if self._issuer is None:
            self._issuer = DevelopmentIssuer.open(self.data_dir)
        at = time.time() if now is None else now
        token = self._issuer.issue(
            Principal.parse(principal), tenant, groups, ttl_s, now=at, room=room, role=role, client=client,
            act=None if act is None else Principal.parse(act),
        )  # fmt: skip
        self.tokens.add(token)
        return token

    def client(self, principal: str | None = None, *groups: str, **claims: Any) -> httpx.Client:
        """A client with a token for that principal, without one where it is None; closed with the server."""
        headers = {} if principal is None else {"authorization": f"Bearer {self.token(principal, *groups, **claims)}"}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=REQUEST_S, verify=NO_TLS)
        self._clients.append(client)
        return client

    def member(self, name: str = "alice", **claims: Any) -> httpx.Client:
        """A client of a person who may create rooms."""
        return self.client(f"human:{name}", "agents-member", **claims)

    def sql(self, role: str = "postgres") -> psycopg.Connection:
        """An autocommit connection to its database as `postgres` (the superuser), app, projector, auditor, ..."""
        return psycopg.connect(self.database_url(role), autocommit=True)

    def database_url(self, role: str = "postgres") -> str:
        """The URL of its database for that role."""
        assert self._database is not None
        return self._database.url("postgres" if role == "postgres" else f"minutebook_{role}")

    def assert_no_token_in_logs(self) -> None:
        """Neither a whole token nor its signature, of any that was issued here (field fault B38)."""
        logs = self.logs()
        for token in self.tokens:
            assert token not in logs
            assert token.rpartition(".")[2] not in logs

    def metric(self, name: str) -> float:
        """A metric without labels, by its name without the prefix."""
        text = httpx.get(f"{self.url}/metrics", timeout=REQUEST_S).text
        line = next(line for line in text.splitlines() if line.startswith(f"minutebook_{name} "))
        return float(line.split()[1])


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _first_line(process: subprocess.Popen[str], within_s: float) -> tuple[str, threading.Thread]:
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True)
    reader.start()
    try:
        return lines.get(timeout=within_s), reader
    except queue.Empty:
        process.kill()
        return "", reader


def _forward(stdout: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put("")


def open_room(client: httpx.Client, **fields: Any) -> str:
    """A new room's id."""
    answer = client.post("/v1/rooms", json={"dataClass": "internal", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def post(client: httpx.Client, room: str, text: str, **headers: str) -> dict[str, Any]:
    """Post a chat message; the command's answer."""
    answer = client.post(f"/v1/rooms/{room}/messages", json={"text": text}, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


def until(
    check: Callable[[], object], within_s: float = 10.0, what: str = "the condition", every_s: float = 0.02
) -> None:
    """Look every 20 ms until `check` holds; for states of the outside that nobody announces."""
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline, f"{what} did not come within {within_s} s"
        time.sleep(every_s)


class Frame(NamedTuple):
    """One SSE frame, or a comment. `data` is the text of its data line, `raw` the frame's bytes."""

    event: str
    id: str | None
    data: str
    raw: bytes

    @property
    def json(self) -> Any:
        """The document in it."""
        return json.loads(self.data)


class Stream:
    """An open event stream. `next` waits at most `REQUEST_S` for the next frame and raises StopIteration at the end."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._frames = _frames(response.iter_raw())

    def next(self) -> Frame:
        """The next frame or comment (event `:`)."""
        return next(self._frames)

    def until(self, event: str) -> list[Frame]:
        """Frames up to and with the next one of that event; comments and `retry` left out."""
        found: list[Frame] = []
        for frame in self._frames:
            if frame.event in (":", "retry"):
                continue
            found.append(frame)
            if frame.event == event:
                return found
        raise AssertionError(f"the stream ended without {event}; it had {[each.event for each in found]}")

    def events(self, through: int) -> list[dict[str, Any]]:
        """Envelopes up to that seq."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["seq"] < through:
            found.append(self.until("event")[-1].json)
        return found

    def rest(self) -> list[Frame]:
        """All frames to the end, comments left out."""
        return [frame for frame in self._frames if frame.event != ":"]


@contextlib.contextmanager
def follow(client: httpx.Client, room: str, last_event_id: str | None = None, **query: Any) -> Generator[Stream]:
    """An open stream of a room."""
    headers = {} if last_event_id is None else {"last-event-id": last_event_id}
    with client.stream("GET", f"/v1/rooms/{room}/stream", params=query, headers=headers) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        yield Stream(response)


def _frames(chunks: Iterator[bytes]) -> Iterator[Frame]:
    buffer = b""
    for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n\n")) >= 0:
            raw, buffer = buffer[: end + 2], buffer[end + 2 :]
            yield _frame(raw)
    assert not buffer, f"the stream broke off within a frame: {buffer[:80]!r}"


def _frame(raw: bytes) -> Frame:
    """Strict: one field a line, each name at most once, LF only; what a browser would read otherwise fails here."""
    assert b"\r" not in raw, raw[:200]
    fields: dict[str, str] = {}
    for line in raw.decode().removesuffix("\n\n").split("\n"):
        name, colon, value = line.partition(":")
        assert colon, line[:80]
        assert name not in fields, raw[:200]
        assert name in ("", "id", "event", "data", "retry"), line[:80]
        fields[name] = value.removeprefix(" ")
    if "" in fields:
        return Frame(":", None, fields[""], raw)
    if "retry" in fields:
        return Frame("retry", None, fields["retry"], raw)
    return Frame(fields["event"], fields.get("id"), fields["data"], raw)
