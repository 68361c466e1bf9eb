"""A bridge that does not read its stream: it costs bounded memory and is let go; what waits for it waits in the log."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from bridges import Bridge, frames
from live_server import LiveServer, until

CONFIG = "[limits]\nactionsPerSecond = 10000\nactionBurst = 10000\nheartbeatSeconds = 1\n"
TEXT = "x" * 16_000
MOST = 1_000
"""Deliveries that fill the buffers of any system between the two."""

SLOW_S = 5.0
SEND_TIMEOUT_S = 20.0


def sleeper(bridge: Bridge) -> socket.socket:
    """A connection with the stream's request on it, of which nothing is read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", bridge.server.port))
    connection.sendall(
        f"GET /v1/bridge/stream?lease={bridge.lease} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: {bridge.client.headers['authorization']}\r\n\r\n".encode()
    )
    return connection


def fill(bridge: Bridge) -> None:
    """Steer, and acknowledge on the way up, until the stream takes no more."""
    epoch, before = bridge.epoch, 0
    for number in range(1, MOST):
        body = {"text": TEXT, "delivery": "steering", "driverEpoch": epoch}
        answer = bridge.alice.post(f"/v1/rooms/{bridge.room}/messages", json=body)
        assert answer.status_code == 201, answer.text
        bridge.acknowledge("delivered", answer.json()["seq"])
        if number % 20 == 0:
            now = unsent(bridge.server.port)
            if now and now == before:
                return
            before = now
    raise AssertionError("the stream took it all")


def unsent(port: int) -> int:
    """Bytes that the server wrote and the kernel could not send: the send queue of its connection."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(f":{port:04X}") and words[3] == "01" and int(words[4].partition(":")[0], 16) > 100_000:
            return int(words[4].partition(":")[0], 16)
    return 0


def drain(connection: socket.socket) -> bytes:
    """Read to the end; the last bytes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    connection.settimeout(30)
    tail = b""
    while chunk := connection.recv(1 << 16):
        tail = (tail + chunk)[-65_536:]
        if tail.endswith(b"0\r\n\r\n"):
            break
    return tail


def test_a_bridge_that_reads_too_late_is_asked_to_reconnect(data_dir: Path) -> None:
    with LiveServer(data_dir, config=CONFIG) as server:
        bridge = Bridge(server).hello()
        with sleeper(bridge) as connection:
            until(lambda: server.metric("streams") == 1, what="the stream")
            fill(bridge)
            began = time.monotonic()
            until(lambda: time.monotonic() - began > SLOW_S + 1, what="the time that makes it slow")
            assert server.metric("streams") == 1
            tail = drain(connection)
        assert tail.rstrip().endswith(b"0"), tail[-80:]
        assert b'event: reconnect\ndata: {"reason":"slow_consumer"}\n\n' in tail
        last = bridge.steer("now")
        with bridge.stream() as stream:
            assert frames(stream, 1) == [("deliver", {"ref": last, "text": "now"})]


def test_a_bridge_that_never_reads_is_cut_off(data_dir: Path) -> None:
    with LiveServer(data_dir, config=CONFIG) as server:
        bridge = Bridge(server).hello()
        with sleeper(bridge):
            until(lambda: server.metric("streams") == 1, what="the stream")
            fill(bridge)
            last = bridge.steer("kept")
            until(lambda: server.metric("streams") == 0, SEND_TIMEOUT_S + 5, "the end of its stream")
            with bridge.stream() as stream:
                assert frames(stream, 1) == [("deliver", {"ref": last, "text": "kept"})]
