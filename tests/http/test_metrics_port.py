"""Where /metrics is: on the main port for loopback, else on a port of its own (http.md, Operations)."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer

EVERYWHERE = "0.0.0.0"  # noqa: S104 - not to be on loopback is what is tested


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_off_loopback_it_has_a_port_of_its_own(own_data_dir: Path) -> None:
    port = free_port()
    config = f"[server]\nmetricsPort = {port}\n"
    with LiveServer(own_data_dir, config=config, arguments=["--host", EVERYWHERE]) as server:
        base = f"http://127.0.0.1:{server.port}"
        own = httpx.get(f"http://127.0.0.1:{port}/metrics")
        assert own.status_code == 200
        assert "minutebook_streams 0.0" in own.text
        main = httpx.get(f"{base}/metrics")
        assert (main.status_code, main.json()["code"]) == (404, "not_found")
        assert httpx.get(f"{base}/healthz").status_code == 200
        assert server.stop() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/metrics")


def test_a_port_that_is_taken_stops_nothing(own_data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with LiveServer(own_data_dir, env={"MINUTEBOOK_SERVER_METRICS_PORT": str(port)}) as server:
            assert server.client().get("/healthz").status_code == 200
            assert "metrics are not served" in server.logs()
