"""The DDL of this version as one script for psql: what `migrate` would do to a new database, for those who apply it by
hand."""

from __future__ import annotations

from collections.abc import Iterator

from .migrate import SqlFile, sql_files


def script() -> Iterator[str]:
    """The parts, in order: each file in its own transaction, with the row that tells `migrate` that it was applied."""
    yield "-- For psql, in a new UTF8 database, as a role that may create roles and schemas.\n\\set ON_ERROR_STOP on\n"
    yield from (_part(file) for file in sql_files())


def _part(file: SqlFile) -> str:
    role = f"{file.preamble}\n" if file.preamble else ""
    return (
        f"\n-- {file.name}\nBEGIN;\nSET LOCAL search_path = pg_catalog, pg_temp;\n{role}{file.text.rstrip()}\n"
        "RESET ROLE;\nSET LOCAL ROLE minutebook_owner;\n"
        f"INSERT INTO minutebook.migrations (name, checksum) VALUES ('{file.name}', '{file.checksum}')\n"
        "    ON CONFLICT (name) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = clock_timestamp();\n"
        "COMMIT;\n"
    )
