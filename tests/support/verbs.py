"""The command line under test: in this process where that is enough, else as a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from minutebook.infra.cli.main import app
from typer.testing import CliRunner

LINE_S = 30.0
RUNS = Path(__file__).parents[2].parent / "shared" / "data" / "agent-runs"
"""The recorded runs, where they lie."""


class Done(NamedTuple):
    """What a verb left: exit code, and its words with the line breaks of the terminal taken out."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Everything on stderr as one line."""
        return " ".join(self.err.split())

    @property
    def json(self) -> Any:
        """The document on stdout."""
        return json.loads(self.out)


def verb(*args: object, env: Mapping[str, str] | None = None, stdin: str | None = None) -> Done:
    """Run a verb in this process, without the settings of the environment."""
    clean: dict[str, str | None] = {name: None for name in os.environ if name.startswith("MINUTEBOOK_")}
    result = CliRunner().invoke(app, [str(each) for each in args], env=clean | dict(env or {}), input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


class Process:
    """A verb as a process; its stdout is read line by line as it comes."""

    def __init__(self, *args: object) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "minutebook.infra.cli.main", *(str(each) for each in args)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=_forward, args=(self._process.stdout, self._lines.put), daemon=True),
            threading.Thread(target=_forward, args=(self._process.stderr, self._errors.append), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def line(self, within_s: float = LINE_S) -> str:
        """The next line of stdout; empty at its end."""
        try:
            return self._lines.get(timeout=within_s)
        except queue.Empty:
            raise AssertionError(f"no line came within {within_s} s; stderr: {self.errors}") from None

    @property
    def errors(self) -> str:
        """What stderr had so far."""
        return "".join(self._errors)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, as by the machine's end."""
        self._process.kill()
        self._process.wait(LINE_S)

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self._process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self, within_s: float = LINE_S) -> int:
        """The exit code."""
        code = self._process.wait(within_s)
        for thread in self._threads:
            thread.join(within_s)
        return code

    def close(self) -> None:
        """End it if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def process(*args: object) -> Generator[Process]:
    """A verb as a process, ended with the block."""
    started = Process(*args)
    try:
        yield started
    finally:
        started.close()


def _forward(stream: IO[str], put: Any) -> None:
    with contextlib.suppress(ValueError):
        for line in iter(stream.readline, ""):
            put(line)
    put("")


def at(database: Any, data_dir: Path) -> dict[str, str]:
    """The variables that point the verbs at a test's own database."""
    return {
        "MINUTEBOOK_DATA_DIR": str(data_dir),
        "MINUTEBOOK_DATABASE_URL": database.url("app"),
        "MINUTEBOOK_DATABASE_OWNER_URL": database.url("postgres"),
    }
