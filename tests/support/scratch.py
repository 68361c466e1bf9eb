"""Where the databases of tests lie: in memory where there is enough, as a new one costs little but its files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only a place for folders that tempfile makes
ENOUGH_BYTES = 4 * 1024**3
"""Free at the start; a whole run keeps less than a third of it at any moment."""


def _in_memory() -> str | None:
    if not os.access(SHARED_MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(SHARED_MEMORY).free < ENOUGH_BYTES:
        return None
    return str(SHARED_MEMORY)


SCRATCH = _in_memory()
"""For `dir` of tempfile; None is its own choice."""
