"""One server for the tests over HTTP; those that stop, kill or configure one start their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer

CONFIG = """
[tools.vault]
dataClass = "secret"
[clearance]
groups = { "sec" = ["secret"] }
"""
"""A tool whose calls and results only the group `sec` may see."""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server that all tests share; after the last one no token of theirs is in its log (field fault B38)."""
    with LiveServer(_short(tmp_path_factory), config=CONFIG) as running:
        yield running
        running.assert_no_token_in_logs()


@pytest.fixture
def own_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory for a server of one's own."""
    return _short(tmp_path_factory)


def _short(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("mb")
