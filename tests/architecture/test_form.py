"""Small files with one subject, and a docstring wherever a reader may arrive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT, name_of, parse, python_files

MAX_LINES = 400

LONGER: dict[str, str] = {"infra/swe_agent.py": "the reader of one foreign format, whose parts mean nothing apart"}
"""Files that are longer, with the reason. One that got short again must go from here."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def lines_of(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text("utf-8").splitlines())


def test_no_file_is_too_long() -> None:
    long = {name_of(path): lines_of(path) for path in python_files() if lines_of(path) > MAX_LINES}
    assert {place: count for place, count in long.items() if place not in LONGER} == {}
    assert set(LONGER) <= set(long), "a file that is short again is still listed"


def undocumented(tree: ast.Module) -> list[str]:
    """Public classes, functions and methods without a docstring, the module itself included."""
    return [name for name, node in _public(tree, "") if not _is_told(node)]


def _public(node: Documented, name: str) -> Iterator[tuple[str, Documented]]:
    yield name or "the module", node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
            yield from _public(inner, f"{name}.{inner.name}".lstrip("."))


def _is_told(node: Documented) -> bool:
    return bool((ast.get_docstring(node) or "").strip())


def test_every_public_name_has_a_docstring() -> None:
    found = {name_of(path): undocumented(parse(path)) for path in [ROOT / "__init__.py", *python_files()]}
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        '"""m"""\ndef f(): ...',
        '"""m"""\nasync def f(): ...',
        '"""m"""\nclass C:\n    pass',
        '"""m"""\nclass C:\n    """c"""\n    def f(self): ...',
        '"""m"""\nclass C:\n    """ """',
    ],
)
def test_a_missing_docstring_is_found(source: str) -> None:
    assert len(undocumented(ast.parse(source))) == 1


def test_what_is_private_may_stay_silent() -> None:
    source = '"""m"""\ndef _f(): ...\nclass _C:\n    def g(self): ...\ndef h():\n    """h"""\n    def inner(): ...'
    assert undocumented(ast.parse(source)) == []
