"""The working tree as the architecture tests look at it."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

LAYERS = ("domain", "commands", "projections", "infra", "http")
"""The folders of the package."""


def python_files(*folders: str) -> list[Path]:
    """Every module of these layers, of all where none is named."""
    found = [path for folder in folders or LAYERS for path in (ROOT / folder).rglob("*.py")]
    return sorted(path for path in found if "__pycache__" not in path.parts)


def name_of(path: Path) -> str:
    """The path as it stands in the repository."""
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    """The module's syntax tree."""
    return ast.parse(path.read_text("utf-8"), name_of(path))


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every absolute import with its line, wherever it stands: in a function, under TYPE_CHECKING, at the top."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.module, node.lineno


def copy_package(to: Path) -> Path:
    """A copy of the layers and of the linter's contracts, to plant offences in."""
    for folder in LAYERS:
        shutil.copytree(ROOT / folder, to / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / ".links", to / ".links", symlinks=True)
    shutil.copy(ROOT / ".importlinter", to)
    return to


def tracked() -> list[str]:
    """What a clone of the working tree would hold: all that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in done.stdout.split("\0") if name and (ROOT / name).is_file())
