"""`minutebook` of which the serving process kills itself at a named point of a turn (RunnerMeans.point), or of what
comes in over a channel (InboundMeans.point).

python doomed_server.py <point> <how often it goes by before> serve ...
"""

from __future__ import annotations

import functools
import os
import signal
import sys

from minutebook.http import conversation_work, inbound_services
from minutebook.infra.cli.main import main


class Doom:
    """kill -9 at the point: nothing that runs after it is reached, no handler, no lease that is let go."""

    def __init__(self, name: str, passes: int) -> None:
        self._name = name
        self._passes = passes

    async def __call__(self, name: str) -> None:
        """See RunnerMeans.point."""
        if name == self._name:
            if self._passes == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._passes -= 1


if __name__ == "__main__":
    doom = Doom(sys.argv[1], int(sys.argv[2]))
    del sys.argv[1:3]
    conversation_work.RunnerMeans = functools.partial(conversation_work.RunnerMeans, point=doom)
    inbound_services.InboundMeans = functools.partial(inbound_services.InboundMeans, point=doom)
    main()
