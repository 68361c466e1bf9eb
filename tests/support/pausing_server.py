"""`minutebook` of which the serving process waits at a named point of what comes in over a channel.

python pausing_server.py <point> <folder> serve ...

The point is one of InboundMeans. The first message that comes by leaves the file `paused` in the folder, and goes on
once `go` is there.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from pathlib import Path

from minutebook.http import inbound_services
from minutebook.infra.cli.main import main

TRY_S = 0.02


class Pause:
    """Once."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    async def __call__(self, name: str) -> None:
        """See InboundMeans.point."""
        paused = self._folder / "paused"
        if name != self._name or paused.exists():
            return
        paused.touch()
        while not (self._folder / "go").exists():  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(TRY_S)


if __name__ == "__main__":
    pause = Pause(sys.argv[1], Path(sys.argv[2]))
    del sys.argv[1:3]
    inbound_services.InboundMeans = functools.partial(inbound_services.InboundMeans, point=pause)
    main()
