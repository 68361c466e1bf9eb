"""Wheel and sdist, built from a clone in a folder of another name, hold all that the tree has, and run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from minutebook import __version__
from tree import LAYERS, ROOT, name_of, python_files, tracked

FOLDER = "a clone of another name"

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


class Built(msgspec.Struct, frozen=True):
    """What a build left: paths of the files, and names in them."""

    wheel: Path
    sdist: Path
    in_wheel: frozenset[str]
    in_sdist: frozenset[str]


def shipped() -> set[str]:
    """What the package must hold: everything in its layers, and the two files beside them."""
    return {"__init__.py", "py.typed"} | {name for name in tracked() if name.split("/", 1)[0] in LAYERS}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of a clone, and the wheel that is built from that sdist."""
    clone = tmp_path_factory.mktemp("build") / FOLDER
    for name in tracked():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    run([sys.executable, "-m", "build", "--no-isolation", "."], clone)
    wheel, sdist = next((clone / "dist").glob("*.whl")), next((clone / "dist").glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = frozenset(name for name in archive.namelist() if not name.endswith("/"))
    with tarfile.open(sdist) as archive:
        in_sdist = frozenset(one.name.partition("/")[2] for one in archive.getmembers() if one.isfile())
    return Built(wheel, sdist, in_wheel, in_sdist)


def run(command: list[str], folder: Path, **env: str) -> str:
    """A command that must succeed; its stdout."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MINUTEBOOK_"))}
    done = subprocess.run(command, cwd=folder, env={**clean, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_folder_with_modules_is_a_listed_package() -> None:
    folders = {name_of(path.parent).replace("/", ".") for path in python_files()}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == {"minutebook"} | {f"minutebook.{each}" for each in folders}


def test_the_wheel_holds_what_the_tree_has(built: Built) -> None:
    packaged = {name.removeprefix("minutebook/") for name in built.in_wheel if name.startswith("minutebook/")}
    assert packaged == shipped()
    others = {name.split("/", 1)[0] for name in built.in_wheel} - {"minutebook"}
    assert others == {f"minutebook-{__version__}.dist-info"}


def test_the_sdist_holds_what_the_tree_has(built: Built) -> None:
    assert shipped() | {"pyproject.toml", "README.md", "LICENSE"} <= built.in_sdist


def test_http_has_no_init_and_types_are_announced(built: Built) -> None:
    assert "minutebook/http/__init__.py" not in built.in_wheel
    assert {"minutebook/http/app.py", "minutebook/py.typed"} <= built.in_wheel


def test_the_wheel_says_what_the_project_says(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        info = f"minutebook-{__version__}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert f"\nRequires-Python: {PROJECT['project']['requires-python']}\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert (ROOT / "README.md").read_text("utf-8").strip().splitlines()[0] in metadata


LOADED = """
import pathlib, minutebook, minutebook.http.app, minutebook.infra.cli.main
from importlib import resources
from minutebook.infra.postgres.migrate import sql_files
print(pathlib.Path(minutebook.__file__).parent)
print(len([each for each in sql_files() if not each.name.startswith('jobs/')]))
print(sorted(each.name for each in resources.files("minutebook.infra").joinpath("demo").iterdir()))
"""


def test_the_wheel_installs_and_runs(built: Built, tmp_path: Path) -> None:
    """With the dependencies of this environment; the package itself comes from the wheel alone."""
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    run([*pip, "--quiet", "--target", str(site), str(built.wheel)], tmp_path)
    place, count, assets = run([sys.executable, "-c", LOADED], tmp_path, PYTHONPATH=str(site)).splitlines()
    assert place == str(site / "minutebook")
    sql = ROOT / "infra" / "sql"
    assert int(count) == len([*sql.glob("migrations/*.sql"), *sql.glob("functions/*.sql")])
    assert assets == str(sorted(path.name for path in (ROOT / "infra" / "demo").iterdir()))
    command = str(site / "bin" / "minutebook")
    assert run([command, "--version"], tmp_path, PYTHONPATH=str(site)) == f"minutebook {__version__}\n"
