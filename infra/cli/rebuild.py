"""`minutebook rebuild`: read models built anew from the log, or only compared with it."""

from __future__ import annotations

from typing import Annotated

import typer

from ..postgres.rebuild import RebuildError, Report
from ..postgres.rebuild import rebuild as run_rebuild
from ..postgres.views import PROJECTIONS
from .common import FINDING, UNAVAILABLE, USAGE, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .progress import bar
from .render import complain, printable, say

MAX_SHOWN = 20
"""Streams with differences that are listed for each projection; --json lists all."""


def rebuild(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"One of {', '.join(PROJECTIONS)}; without it all.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    check: Annotated[bool, typer.Option("--check", "--dry-run", help="Compare only; change nothing.")] = False,
    json: Json = False,
) -> None:
    """Build read models anew from the log beside the live ones, compare, and swap while serving."""
    with guarded():
        if name is not None and name not in PROJECTIONS:
            fail(f"There is no projection {printable(name)!r}; there are {', '.join(PROJECTIONS)}.", USAGE)
        with database_of(settings_of(data_dir)) as database:
            url = database.url("projector")
            reports = [_one(url, each, check=check) for each in ([name] if name else PROJECTIONS)]
        if json:
            print_json({"ok": not _findings(reports), "projections": reports})
        else:
            for report in reports:
                _print(report)
        if check and _findings(reports):
            raise typer.Exit(FINDING)


def _one(url: str, name: str, *, check: bool) -> Report:
    try:
        with bar(name) as tell:

            def told(doing: str, done: int, total: int) -> None:
                tell(f"{name}: {doing}", done, total)

            return run_rebuild(url, PROJECTIONS[name], check=check, progress=told)
    except RebuildError as error:
        fail(str(error), UNAVAILABLE)


def _findings(reports: list[Report]) -> bool:
    return any(report.differences or report.parked for report in reports)


def _print(report: Report) -> None:
    done = "rebuilt" if report.is_swapped else "compared"
    say(
        f"{report.projection}: {done}, {report.events} events of {report.streams} streams;"
        f" {len(report.differences)} of {report.compared} compared streams differ"
    )
    for each in report.differences[:MAX_SHOWN]:
        complain(f"  {each.stream}: {each.missing} rows are missing or other, {each.extra} too many or other")
    for stream in report.parked:
        complain(f"  {stream}: cannot be folded; see `minutebook doctor`")
