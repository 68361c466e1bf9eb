"""`minutebook retention`: streams past their days go."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
import typer

from ..postgres.retention import RetentionBroken, RetentionReport, purge_expired
from ..settings_check_kept import DAY_S
from ..settings_section import parse_duration
from .common import FINDING, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .progress import bar
from .render import complain, printable, say


def retention(
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be deleted.")] = False,
    json: Json = False,
) -> None:
    """Delete sealed streams that are past their days and under no hold, and old requests."""
    with guarded():
        settings = settings_of(data_dir)
        days = parse_duration(settings.delivery.inbound_ttl) // DAY_S
        with database_of(settings) as database:
            urls = database.url("retention"), database.url("auditor")
            try:
                with bar("purging") as tell:
                    report = asyncio.run(
                        purge_expired(
                            *urls,
                            inbound_days=days,
                            dry_run=dry_run,
                            told=lambda done, total: tell("", done, total),
                        )
                    )
            except RetentionBroken as error:
                fail(printable(str(error)), FINDING)
        if json:
            print_json({"ok": report.ok, **msgspec.to_builtins(report)})
        else:
            _print(report)
        if not report.ok:
            raise typer.Exit(FINDING)


def _print(report: RetentionReport) -> None:
    verb = "would be deleted" if report.is_dry_run else "deleted"
    for each in report.tenants:
        say(f"{each.tenant}: {each.streams} streams with {each.events} events, and {each.keys} keys {verb}")
    if report.ok and not report.tenants:
        say("nothing has expired")
    elif not report.is_dry_run:
        say(f"{report.remaining_streams} expired streams and {report.remaining_keys} expired keys remain")
    for failure in report.failures:
        complain(failure)
