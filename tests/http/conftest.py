"""One server for the tests over HTTP; those that stop, kill or configure one start their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from link_world import LinkWorld, config
from live_server import LiveServer
from oidc_provider import OidcProvider
from outside import serving
from scratch import SCRATCH

CONFIG = """
[tools.vault]
dataClass = "secret"
[clearance]
groups = { "sec" = ["secret"] }
[conversations]
streamPendingBytes = 65536
"""
"""A tool whose calls and results only the group `sec` may see. Of a conversation little waits for who does not read."""

PACELESS = """
[limits]
roomToolIntervalMs = 0
"""
"""Room tools without their pace, which test_mcp_pace.py looks at."""


@pytest.fixture(scope="session")
def new_data_dir() -> Iterator[Callable[[], Path]]:
    """Makes data directories, gone at the end. Not below pytest's own folder: every pytest that starts closes that one
    to other accounts, and as root the embedded database runs as another one.
    """
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="mbt", dir=SCRATCH)))
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """A server that all tests share; after the last one no token of theirs is in its log (field fault B38)."""
    with LiveServer(new_data_dir(), config=CONFIG) as running:
        yield running
        running.assert_no_token_in_logs()


@pytest.fixture
def own_data_dir(new_data_dir: Callable[[], Path]) -> Path:
    """A data directory for a server of one's own."""
    return new_data_dir()


@pytest.fixture(scope="session")
def paceless(new_data_dir: Callable[[], Path]) -> Iterator[LiveServer]:
    """As `server`, where runs may call their tools as often as they like."""
    with LiveServer(new_data_dir(), config=CONFIG + PACELESS) as running:
        yield running
        running.assert_no_token_in_logs()


@pytest.fixture(scope="session")
def world(new_data_dir: Callable[[], Path]) -> Iterator[LinkWorld]:
    """A server with channels, and an identity provider whose tokens it takes."""
    with serving(OidcProvider()) as provider, LiveServer(new_data_dir(), config=config(provider)) as running:
        yield LinkWorld(running, provider)
        running.assert_no_token_in_logs()
