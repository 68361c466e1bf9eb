"""A server with channels, and the receivers behind them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from answer_office import AnswerOffice
from answer_scenes import Routes, config
from delivery_desk import Receiver
from live_server import LiveServer
from outside import serving
from scratch import SCRATCH


@pytest.fixture(scope="session")
def routes() -> Iterator[Routes]:
    """A server whose channels all lead to one receiver."""
    folder = Path(tempfile.mkdtemp(prefix="mbt", dir=SCRATCH))
    with serving(Receiver()) as receiver, LiveServer(folder, config=config(receiver.url)) as server:
        yield Routes(server, receiver, AnswerOffice(server))
        server.assert_no_token_in_logs()
    shutil.rmtree(folder, ignore_errors=True)
