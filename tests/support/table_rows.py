"""Everything that a database has, row by row: what must be nowhere is looked for here."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
from psycopg import sql


def rows(connection: psycopg.Connection) -> Iterator[tuple[str, str]]:
    """Every row of every table of the product as text, with the table's name."""
    tables = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')"
    ).fetchall()
    for schema, name in tables:
        table = sql.Identifier(schema, name)
        for row in connection.execute(sql.SQL("SELECT each::text FROM {} AS each").format(table)):
            yield f"{schema}.{name}", row[0]
