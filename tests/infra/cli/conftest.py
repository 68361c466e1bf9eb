"""One real server for the verbs that need one, and rooms in it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer, open_room
from scratch import SCRATCH
from verbs import Done, at, verb


@pytest.fixture(scope="package")
def server() -> Iterator[LiveServer]:
    """`minutebook serve` on a fresh data directory, for all tests of this folder."""
    with tempfile.TemporaryDirectory(prefix="mbc", dir=SCRATCH) as folder, LiveServer(Path(folder) / "data") as live:
        yield live


@pytest.fixture
def owner(server: LiveServer) -> httpx.Client:
    """A client of the person that the verbs act for without a token."""
    return server.member("operator")


@pytest.fixture
def room(owner: httpx.Client) -> str:
    """A fresh room of theirs."""
    return open_room(owner, title="A room")


@pytest.fixture
def here(server: LiveServer) -> list[object]:
    """The options that point a verb at the server."""
    return ["--url", server.url, "--data-dir", server.data_dir]


@pytest.fixture
def on_database(database: Any, tmp_path: Path) -> Callable[..., Done]:
    """Runs verbs on a fresh database without any server."""
    env = at(database, tmp_path)
    return lambda *args: verb(*args, env=env)
