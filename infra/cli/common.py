"""What the verbs share: options, exit codes, errors without tracebacks, output for people and for scripts."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from rich.console import Console

from ...domain.errors import MinutebookError
from ..database import Database
from ..postgres.embedded_host import DatabaseStartError
from ..postgres.errors import UnreachableError
from ..postgres.migrate import MigrationError
from ..postgres.pool import RoleRefused
from ..settings import Settings, SettingsError
from ..settings_load import load

OK = 0
FINDING = 1
"""The verb ran and found something wrong."""

USAGE = 2
"""The call or the settings are off; nothing was done."""

UNAVAILABLE = 3
"""The database or the server could not be reached."""

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Directory of the settings file, the keys and the embedded database.",
        envvar="MINUTEBOOK_DATA_DIR",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

out = Console()
err = Console(stderr=True)


def fail(message: str, code: int) -> NoReturn:
    """One sentence on stderr, then the exit code."""
    err.print(f"minutebook: {message}", style="red", highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


@contextmanager
def guarded() -> Generator[None]:
    """Turn what may go wrong into a sentence and an exit code; a traceback is for defects only."""
    try:
        yield
    except SettingsError as error:
        fail(str(error), USAGE)
    except (DatabaseStartError, RoleRefused) as error:
        fail(str(error), UNAVAILABLE)
    except MigrationError as error:
        fail(str(error), FINDING)
    except MinutebookError as error:
        fail(error.detail, UNAVAILABLE if error.code in ("unavailable", "timed_out") else FINDING)
    except UnreachableError as error:
        fail(f"The database cannot be reached: {str(error).splitlines()[0]}", UNAVAILABLE)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def settings_of(data_dir: Path | None, **overrides: Any) -> Settings:
    """The settings of a data directory; overrides are dotted keys with `.` written as `__`."""
    import os  # noqa: PLC0415 - the one place that reads the environment

    return load(data_dir, os.environ, {key.replace("__", "."): value for key, value in overrides.items()})


@contextmanager
def database_of(settings: Settings) -> Generator[Database]:
    """The database of the settings, started or joined for as long as the block runs."""
    with Database(settings) as database:
        yield database
