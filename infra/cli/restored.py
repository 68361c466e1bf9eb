"""`minutebook restored`: the step after a restore from a backup."""

from __future__ import annotations

from typing import Annotated

import typer

from ..postgres.restored import mark_restored
from .common import DataDir, Json, database_of, guarded, print_json, settings_of
from .render import say


def restored(
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which log this is.")] = False,
    json: Json = False,
) -> None:
    """After a restore: give the log a new id, so that readers of the old one begin anew. With no server running."""
    with guarded():
        with database_of(settings_of(data_dir)) as database:
            name = mark_restored(database.url("owner"), dry_run=dry_run)
        if json:
            print_json(name)
        elif name.after is None:
            say(f"log {name.before}; {name.queued} ranges wait for the audit feed")
        else:
            say(f"log {name.after} (it was {name.before}); start the servers now")
