"""Where /metrics is: on the main port for loopback, else on a port of its own (http.md, Operations)."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, free_port
from scrapes import Scrape

EVERYWHERE = "0.0.0.0"  # noqa: S104 - not to be on loopback is what is tested


def issuer(name: str, keys: str) -> str:
    """Settings of an issuer whose keys are in a file."""
    return (
        f'[issuers.{name}]\nissuer = "https://{name}.example"\naudience = "minutebook"\nkind = "human"\n'
        f'tenants = ["{name}"]\njwksFile = "{keys}"\n'
    )


def test_off_loopback_it_has_a_port_of_its_own(own_data_dir: Path) -> None:
    port = free_port()
    (own_data_dir / "keys.json").write_text('{"keys": []}')
    config = f"[server]\nmetricsPort = {port}\n{issuer('known', 'keys.json')}{issuer('away', 'missing.json')}"
    with LiveServer(own_data_dir, config=config, arguments=["--host", EVERYWHERE]) as server:
        base = f"http://127.0.0.1:{server.port}"
        own = httpx.get(f"http://127.0.0.1:{port}/metrics")
        assert own.status_code == 200
        assert "minutebook_streams 0.0" in own.text
        ages = Scrape(f"http://127.0.0.1:{port}")
        assert 0 <= ages.get("jwks_age_seconds", issuer="known") < 60
        assert ages.get("jwks_age_seconds", issuer="away") == float("inf")
        # The scrape came on a thread of its own, and had the figures of the deployment looked up.
        assert 0 <= ages.get("census_age_seconds") < 60
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
