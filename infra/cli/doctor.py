"""`minutebook doctor`: is the log guarded, whole and followed?"""

from __future__ import annotations

from typing import Annotated

import typer

from ...domain.errors import Unavailable
from ..channels.advice import advice
from ..database import Database
from ..postgres.doctor import Check, Urls, examine, lanes_asleep
from ..postgres.embedded_host import DatabaseStartError
from ..settings import Settings
from .common import FINDING, UNAVAILABLE, DataDir, Json, err, guarded, print_json, settings_of
from .render import say


def doctor(
    data_dir: DataDir = None,
    quick: Annotated[bool, typer.Option("--quick", help="Look into the newest streams only.")] = False,
    json: Json = False,
) -> None:
    """Examine the database: guards, migrations, gaps, chain, projections, listener, transactions, audit feed."""
    with guarded():
        settings = settings_of(data_dir)
        try:
            # An embedded database is not migrated here: a doctor looks, and does not mend.
            database = Database(settings).open(migrated=False)
            try:
                checks = [*_examine(database, quick=quick), *_channels(settings, database)]
            finally:
                database.close()
        except (Unavailable, DatabaseStartError) as error:
            if not json:
                raise
            print_json({"ok": False, "checks": [Check("database", False, error.detail)]})
            raise typer.Exit(UNAVAILABLE) from None
        ok = all(check.ok for check in checks)
        if json:
            print_json({"ok": ok, "checks": checks})
        else:
            for check in checks:
                say(f"{'ok ' if check.ok else 'BAD'} {check.name}: {check.detail}", "" if check.ok else "bold red")
        if not ok:
            raise typer.Exit(FINDING)


def _channels(settings: Settings, database: Database) -> list[Check]:
    """What is worth a word and no finding: an open channel may be what an operator wants."""
    if not settings.channels:
        return []
    words = advice(settings)
    if any(channel.pushes for channel in settings.channels.values()) and lanes_asleep(database.url("auditor")):
        words.append("nothing is sent: no process of jobs has run for a minute; see `minutebook serve --role jobs`")
    return [Check("channels", True, f"warning: {'; '.join(words)}" if words else f"{len(settings.channels)} declared")]


def _examine(database: Database, *, quick: bool) -> list[Check]:
    activity = database.url("owner" if database.is_embedded else "auditor")
    urls = Urls(database.url("auditor"), database.url("app"), database.listen_url, activity)
    with err.status("examining") as status:
        return examine(urls, quick=quick, told=lambda name: status.update(f"examining {name}"))
