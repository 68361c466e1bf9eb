"""`minutebook migrate`: the schema, brought to this version."""

from __future__ import annotations

from typing import Annotated

import typer

from ..database import Database
from ..postgres.migrate import migrate as run_migrate
from ..postgres.pool import redacted
from .common import DataDir, Json, guarded, out, print_json, settings_of


def migrate(
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
    json: Json = False,
) -> None:
    """Bring the database to this version; uses database.ownerUrl, else database.url."""
    with guarded():
        settings = settings_of(data_dir)
        database = Database(settings).open(migrated=False)
        try:
            url = database.url("owner")
            names = run_migrate(url, dry_run=dry_run)
        finally:
            database.close()
        if json:
            print_json({"applied": [] if dry_run else names, "pending": names if dry_run else []})
            return
        word = "pending" if dry_run else "applied"
        for name in names:
            out.print(f"{word} {name}", highlight=False)
        where = "the embedded database" if database.is_embedded else redacted(url)
        out.print(
            f"{where} is up to date" if not dry_run or not names else f"{len(names)} files pending", highlight=False
        )
