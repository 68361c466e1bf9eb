"""Every SQL statement of the product is one that the migrated schema understands, on every supported PostgreSQL."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
import pytest
from minutebook.infra.postgres import views
from tree import name_of, parse, python_files

STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|MERGE)\s")
PLACEHOLDER = re.compile(r"%\((\w+)\)s|%s|%%")

MIN_STATEMENTS = 90
"""So many are found at least; fewer mean that this test does not look any more."""


class Statement(NamedTuple):
    """A statement as the code has it, and where."""

    place: str
    text: str


def statements(path: Path) -> list[Statement]:
    """Whole statements in a module: constants, also those put together from constants of the module.

    Those with gaps for names (psycopg.sql) are not among them; COMPOSED has them.
    """
    module = importlib.import_module("minutebook." + name_of(path).removesuffix(".py").replace("/", "."))
    return whole_statements(parse(path), name_of(path), vars(module))


def whole_statements(tree: ast.Module, place: str, names: dict[str, Any]) -> list[Statement]:
    """As `statements`, of a syntax tree and the names that its module has."""
    gaps = {id(each) for node in ast.walk(tree) if _is_no_statement(node) for each in ast.walk(node)}
    found: list[Statement] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in gaps:
            gaps |= {id(each) for each in ast.walk(node)}
            text = _text(node, names)
            if text is not None and STATEMENT.match(text):
                found.append(Statement(f"{place}:{node.lineno}", text))
    return found


def _is_no_statement(node: ast.AST) -> bool:
    """Whether the strings in `node` are no statements: templates for psycopg.sql, and docstrings."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("SQL")


def _text(node: ast.JoinedStr | ast.Constant, names: dict[str, Any]) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    code = compile(ast.Expression(node), "statement", "eval")
    try:
        return eval(code, names)  # noqa: S307 - code of this repository
    except NameError:
        return None  # words with a local name in them: messages, not statements


def prepared(text: str) -> str:
    """The statement as PREPARE takes it: %s and %(name)s as $1, $2."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        name = found[1] or f"#{len(numbers)}"
        return f"${numbers.setdefault(name, len(numbers) + 1)}"

    return f"PREPARE statement AS {PLACEHOLDER.sub(number, text)}" if "%" in text else f"PREPARE statement AS {text}"


def refusal(connection: psycopg.Connection, text: str) -> str | None:
    """Why PostgreSQL does not take a statement, None where it does."""
    try:
        connection.execute(cast("LiteralString", prepared(text)))
        connection.execute("DEALLOCATE statement")
    except psycopg.Error as error:
        return str(error)
    return None


MODULES = [path for path in python_files("infra", "http") if path.name != "__init__.py"]


def test_every_statement_prepares(any_database: Any) -> None:
    found = [each for path in MODULES for each in statements(path)]
    assert len(found) >= MIN_STATEMENTS
    with any_database.connect("postgres") as connection:
        connection.execute("SET search_path = pg_catalog, pg_temp")
        faults = {each.place: why for each in found if (why := refusal(connection, each.text)) is not None}
    assert faults == {}


COMPOSED = {
    f"{make.__name__} {name}": (make, projection)
    for name, projection in views.PROJECTIONS.items()
    for make in (views.upsert, views.blank, views.states)
    if make is not views.blank or projection.blank_assignments
}


@pytest.mark.parametrize("which", list(COMPOSED))
def test_every_composed_statement_prepares(database: Any, which: str) -> None:
    make, projection = COMPOSED[which]
    with database.connect("projector") as connection:
        made = make(projection)
        if made is not None:
            assert refusal(connection, made.as_string(connection)) is None


def test_a_statement_that_the_schema_does_not_know_is_found(database: Any) -> None:
    with database.connect("postgres") as connection:
        assert refusal(connection, "SELECT e.sequence FROM minutebook.events e WHERE e.stream_id = %s") is not None
        assert refusal(connection, "SELECT e.seq FROM minutebook.events e WHERE e.stream_id = %(id)s") is None


def test_columns_of_every_read_model_are_those_of_its_table(database: Any) -> None:
    with database.connect("postgres") as connection:
        for name, projection in views.PROJECTIONS.items():
            rows = connection.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
                " ORDER BY attnum",
                (f"minutebook_views.{name}",),
            ).fetchall()
            assert tuple(row[0] for row in rows) == projection.columns
            key = connection.execute(
                "SELECT array_agg(a.attname ORDER BY k.n) FROM pg_index i,"
                " LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, n) JOIN pg_attribute a ON a.attnum = k.attnum"
                " WHERE i.indrelid = %s::regclass AND a.attrelid = i.indrelid AND i.indisprimary",
                (f"minutebook_views.{name}",),
            ).fetchone()
            assert key is not None
            assert tuple(key[0]) == projection.key


def test_words_and_templates_are_no_statements() -> None:
    source = (
        '"""SELECT is a word."""\nNAME = "t"\nWHOLE = f"SELECT 1 FROM {NAME}"\nsql.SQL("SELECT {}")\n'
        'def f(x):\n    """UPDATE of x."""\n    run("DELETE FROM t WHERE " "a = %s")\n    say(f"SELECT {x}")\n'
    )
    tree = ast.parse(source)
    assert [each.text for each in whole_statements(tree, "m", {"NAME": "t"})] == [
        "SELECT 1 FROM t",
        "DELETE FROM t WHERE a = %s",
    ]
