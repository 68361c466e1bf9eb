"""`minutebook sql`: the schema as SQL, without a connection."""

from __future__ import annotations

import sys

from ..postgres.migrate_script import script


def sql() -> None:
    """Print the DDL of this version, for psql; `minutebook migrate` finds nothing to do after it."""
    for part in script():
        sys.stdout.write(part)
