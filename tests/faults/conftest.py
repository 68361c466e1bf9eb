"""One server for the faults that leave it whole; the others start their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, open_room
from scratch import SCRATCH


@pytest.fixture(scope="package")
def server() -> Iterator[LiveServer]:
    """A server with few connections, as most faults are worse with few of them."""
    config = "[database]\npoolSize = 5\n[limits]\nheartbeatSeconds = 1\n"
    with (
        tempfile.TemporaryDirectory(prefix="mbf", dir=SCRATCH) as folder,
        LiveServer(Path(folder) / "data", config=config) as live,
    ):
        yield live


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory for a server of one's own."""
    with tempfile.TemporaryDirectory(prefix="mbf", dir=SCRATCH) as folder:
        yield Path(folder) / "data"
