"""Progress bars: on stderr, and only where somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .common import err

Tell = Callable[[str, int, int], None]
"""Told what is going on, how much is done, and how much there is in all."""


@contextmanager
def bar(what: str) -> Generator[Tell]:
    """A bar for as long as the block runs; nothing is shown where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def tell(doing: str, done: int, total: int) -> None:
            progress.update(task, description=doing or what, completed=done, total=total)

        yield tell
