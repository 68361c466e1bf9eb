"""One server for the faults that leave it whole; the others start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_server import LiveServer, open_room


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with few connections, as most faults are worse with few of them."""
    config = "[database]\npoolSize = 5\n[limits]\nheartbeatSeconds = 1\n"
    with LiveServer(tmp_path_factory.mktemp("mb"), config=config) as running:
        yield running


@pytest.fixture
def alice(server: LiveServer) -> httpx.Client:
    """Who owns the rooms of these tests."""
    return server.member("alice")


@pytest.fixture
def room(alice: httpx.Client) -> str:
    """A new room."""
    return open_room(alice)


@pytest.fixture
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory for a server of one's own."""
    return tmp_path_factory.mktemp("mb")
