"""Two server processes on one database: what a room promises holds whichever of them is asked."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer

CONFIG = "[limits]\nheartbeatSeconds = 1\nroomToolIntervalMs = 0\n"


@pytest.fixture(scope="package")
def server() -> Iterator[LiveServer]:
    """The one that has the projector and the jobs, too."""
    with tempfile.TemporaryDirectory(prefix="mba") as folder, LiveServer(Path(folder) / "data", config=CONFIG) as live:
        yield live


@pytest.fixture(scope="package")
def other(server: LiveServer) -> Iterator[LiveServer]:
    """One that only serves, and knows of the first one's commands by the log alone."""
    with LiveServer(server.data_dir, arguments=["--role", "http"]) as live:
        yield live


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory for servers that are killed."""
    with tempfile.TemporaryDirectory(prefix="mba") as folder:
        yield Path(folder) / "data"
