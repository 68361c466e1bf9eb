"""A process that runs the turns of a database up to a named point, says so, and waits there to be killed.

python conversation_process.py <url of the app role> <point>
"""

from __future__ import annotations

import asyncio
import sys

from conversation_desk import Killed, desk


async def main(url: str, point: str) -> None:
    """Sweep once, and stop at the point."""
    held = Killed(point)
    async with desk(url, point=held) as here:
        await here.runner.sweep()
        await held.reached.wait()
        sys.stdout.write("reached\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
