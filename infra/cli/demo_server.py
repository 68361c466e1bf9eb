"""The server of the demo: a process of its own that outlives the command that started it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ..settings import ENV_PREFIX
from ..settings_load import CONFIG_VARIABLE

FIRST_PORT = 8080
PORTS = 100
"""Ports that are tried, from FIRST_PORT upwards."""

START_TIMEOUT_S = 180.0
"""Longest start: it makes the database cluster the first time."""

STOP_TIMEOUT_S = 20.0
"""The server itself promises to be gone after 10 s."""

LISTENING = "listening on "
MAX_LINE_BYTES = 4096
LOG_TAIL_BYTES = 2000


class ServerFailed(Exception):
    """The server did not start; the message has what it said."""


class DemoServer:
    """A running `minutebook serve`; `stop` ends it, and leaving it alone lets it run on."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log_path: Path) -> None:
        self._process = process
        self.url = url
        self.log_path = log_path

    @property
    def pid(self) -> int:
        """The process to signal."""
        return self._process.pid

    @classmethod
    def start(cls, data_dir: Path, port: int | None, config: Path) -> DemoServer:
        """Start on `port` (0 picks one; None: FIRST_PORT, or the next free one) and wait until it serves.
        config: its settings file.

        In a session of its own, so that a Ctrl-C here does not end it. Raises ServerFailed.
        """
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_path = data_dir / "serve.log"
        chosen = _free_port() if port is None else port
        env = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
        with log_path.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "minutebook.infra.cli.main", "serve", "--data-dir", str(data_dir),
                 "--host", "127.0.0.1", "--port", str(chosen)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env={**env, CONFIG_VARIABLE: str(config)},
            )  # fmt: skip
        server = cls(process, "", log_path)
        try:
            server.url = server._await_url()
        except BaseException:
            server.stop()
            raise
        return server

    def _await_url(self) -> str:
        line = self._first_line()
        if not line.startswith(LISTENING):
            raise ServerFailed(f"The server did not start. The end of {self.log_path}:\n{_tail(self.log_path)}")
        return line.removeprefix(LISTENING).strip()

    def _first_line(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None  # noqa: S101 - it is a pipe
        deadline = time.monotonic() + START_TIMEOUT_S
        said = b""
        with stdout:
            while b"\n" not in said and len(said) < MAX_LINE_BYTES:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([stdout], [], [], left_s)[0]:
                    break
                chunk = os.read(stdout.fileno(), MAX_LINE_BYTES)
                if not chunk:
                    break
                said += chunk
        return said.decode(errors="replace").partition("\n")[0]

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough; returns when it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise ServerFailed(f"No port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} is free; give --port 0.")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()
