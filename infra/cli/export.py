"""`minutebook export`: the log as JSONL with its hashes."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import IO, Annotated

import typer

from ..postgres.export import export_all, export_stream
from .common import UNAVAILABLE, USAGE, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .progress import bar
from .render import printable, remark


def export(
    room: Annotated[
        str | None, typer.Argument(metavar="ROOM", help="A room, or a stream (kind:id).", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    everything: Annotated[bool, typer.Option("--all", help="Every stream, as one snapshot of the log.")] = False,
    file: Annotated[
        Path | None, typer.Option("--out", help="The file to write; without it, or with -, stdout.", show_default=False)
    ] = None,
    after: Annotated[int, typer.Option(help="Only what follows this seq.")] = 0,
    json: Json = False,
) -> None:
    """Write events with their hashes, one a line; `minutebook verify FILE` checks them without a database."""
    with guarded():
        to_stdout = file is None or str(file) == "-"
        if (room is None) != everything:
            fail("Name a room, or give --all.", USAGE)
        if everything and after:
            fail("--after is for one room, not for --all.", USAGE)
        if json and to_stdout:
            fail("--json needs --out FILE: stdout is where the export goes.", USAGE)
        with database_of(settings_of(data_dir)) as database, bar("exporting") as tell:
            url = database.url("auditor")
            with stdout_sink() if file is None or to_stdout else whole_file(file) as sink:
                if room is None:
                    events = export_all(url, sink, lambda done, total: tell("", done, total))
                else:
                    events = export_stream(url, room, sink, after, lambda done, total: tell("", done, total))
        if json:
            print_json({"events": events, "file": str(file)})
        else:
            remark(f"{events} events exported")


@contextlib.contextmanager
def stdout_sink() -> Generator[IO[bytes]]:
    """Stdout for bytes."""
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def whole_file(file: Path) -> Generator[IO[bytes]]:
    """A file that only its owner can read, and that takes its name when it is whole: a failed export leaves nothing."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:100]}.", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        fail(f"--out: {printable(str(file))} cannot be written ({error.strerror}).", UNAVAILABLE)
