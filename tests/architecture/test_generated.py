"""What is generated and committed is what the code and the migrations make now."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tree import ROOT


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """A module of scripts/, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module(name)


def test_the_schema_in_one_place_is_what_the_migrations_make(monkeypatch: pytest.MonkeyPatch, database: Any) -> None:
    dump_schema = script(monkeypatch, "dump_schema")
    kept = dump_schema.SCHEMA.read_text("utf-8")
    assert dump_schema.dump(database.url("postgres")) == kept, "run python scripts/dump_schema.py"


def test_a_change_of_the_schema_shows(monkeypatch: pytest.MonkeyPatch, database: Any) -> None:
    dump_schema = script(monkeypatch, "dump_schema")
    with database.connect("postgres") as connection:
        connection.execute("GRANT UPDATE ON minutebook.streams TO minutebook_app")
    assert "GRANT SELECT,UPDATE ON TABLE minutebook.streams TO minutebook_app;" in dump_schema.dump(
        database.url("postgres")
    )


def test_the_reference_is_what_the_code_says(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_reference = script(monkeypatch, "generate_reference")
    made = generate_reference.pages()
    kept = {path.name: path.read_text("utf-8") for path in generate_reference.REFERENCE.glob("*.md")}
    assert set(kept) == set(made)
    for name, text in made.items():
        assert text == kept[name], f"docs/reference/{name} differs: run python scripts/generate_reference.py"


def test_every_code_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in script(monkeypatch, "generate_reference").errors_page().splitlines()[12:]:
        assert line.split("|")[4].strip(), line
