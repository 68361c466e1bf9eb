"""`minutebook config`: the settings as this server would have them, and what follows from them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from ..effective import effective as effective_of
from ..effective import sentences
from ..settings_load import load_told
from ..shown_settings import Shown, shown, toml
from .common import DataDir, Json, guarded, print_json
from .render import say


def config(
    data_dir: DataDir = None,
    effective: Annotated[
        bool, typer.Option("--effective", help="Defaults too, and what follows for channels, links and times.")
    ] = False,
    json: Json = False,
) -> None:
    """Print the settings that are set, as TOML with secrets as ***; needs no database."""
    with guarded():
        settings, tree = load_told(data_dir, os.environ)
        values = [each for each in shown(settings, tree) if effective or each.is_set]
        if json:
            follows = {"effective": effective_of(settings)} if effective else {}
            print_json({"settings": _nested(values), **follows})
            return
        for each in values:
            say(f"# {each.key} is unset" if each.value is None else f"{each.key} = {toml(each.value)}")
        if effective:
            say("")
            for line in sentences(effective_of(settings)):
                say(f"# {line}")


def _nested(values: Iterable[Shown]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for each in values:
        table = made
        for name in each.path[:-1]:
            table = table.setdefault(name, {})
        table[each.path[-1]] = each.value
    return made
