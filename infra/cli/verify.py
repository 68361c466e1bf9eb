"""`minutebook verify`: the chain recomputed, from the database or from an export without one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ...domain.ids import is_room_id
from ..postgres.export import VerifyReport, verify_database, verify_file
from .common import FINDING, USAGE, DataDir, Json, database_of, fail, guarded, print_json, settings_of
from .progress import bar
from .render import complain, printable, say

_STREAM = re.compile(r"[a-z_]+:[^/]+")


def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="STREAM|ROOM|FILE",
            help="A room, a stream (kind:id), or an exported file; without it every stream.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Recompute the hash chain; an exported file is checked without any database."""
    with guarded():
        path = None if target is None else _path(target)
        if path is not None:
            report = _verify_file(path)
        else:
            with database_of(settings_of(data_dir)) as database, bar("verifying") as tell:
                report = verify_database(database.url("auditor"), target, lambda done, total: tell("", done, total))
        if json:
            print_json(_shape(report))
        else:
            _print(report)
        if not report.ok:
            raise typer.Exit(FINDING)


def _path(target: str) -> Path | None:
    """The file that is meant, None where it is a room or a stream: `./abcd2345` is a file in any case."""
    path = Path(target)
    if is_room_id(target) or (_STREAM.fullmatch(target) and not path.exists()):
        return None
    if not path.is_file():
        fail(f"{printable(target)!r} is neither a file nor the id of a room or stream.", USAGE)
    return path


def _verify_file(path: Path) -> VerifyReport:
    try:
        with bar("verifying") as tell:
            return verify_file(path, lambda done, total: tell("", done, total))
    except OSError as error:
        fail(f"{printable(str(path))} cannot be read ({error.strerror}).", USAGE)


def _shape(report: VerifyReport) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    return {"ok": report.ok, "logId": fields.pop("log_id"), **fields}


def _print(report: VerifyReport) -> None:
    gone = f", {report.erased} of them erased" if report.erased else ""
    hidden = f", {report.restricted} of them restricted" if report.restricted else ""
    verdict = "the chain holds" if report.ok else f"{report.breaks} faults"
    say(f"{verdict}: {report.events} events of {report.streams} streams{gone}{hidden}")
    if report.head is not None and report.ok:
        say(f"head {report.head}")
    if report.partial:
        say(f"{report.partial} streams begin in the middle; nothing vouches for what came before.")
    for finding in report.findings:
        places = (("line", finding.line), ("stream", finding.stream), ("seq", finding.seq))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        complain(f"  {where + ': ' if where else ''}{finding.what}")
