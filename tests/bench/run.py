"""`make bench`: every figure of the project beside its reference, in one run; writes build/bench.json.

python tests/bench/run.py [append] [views] [http] [streams] [bridge] [redaction] [conversations] [clearance]
    [deliveries] [answers]
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import psycopg
from figures import Figure, log, table, write
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.postgres.migrate import migrate

PARTS = (
    "append",
    "views",
    "http",
    "streams",
    "bridge",
    "redaction",
    "conversations",
    "clearance",
    "deliveries",
    "answers",
)
DATABASE = "minutebook"


def main() -> int:
    """Run the parts named, or all; exit code 1 where a goal is missed."""
    wanted = sys.argv[1:] or list(PARTS)
    made: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="mbbench") as name:
        folder = Path(name)
        for part in wanted:
            module = importlib.import_module(f"bench_{part}")
            log(part)
            server = EmbeddedPostgres.open(folder / part)
            try:
                migrate(server.url("postgres", DATABASE))
                with psycopg.connect(server.url("postgres", DATABASE), autocommit=True) as connection:
                    connection.execute("SELECT 1")
                made += module.figures(server, DATABASE, folder / part)
            finally:
                server.close()
    print(table(made))
    write(made, Path("build/bench.json"))
    return 0 if all(figure.met for figure in made) else 1


if __name__ == "__main__":
    sys.exit(main())
