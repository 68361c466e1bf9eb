"""What the pages name is there: linked files, verbs and options, settings and variables, tests and folders."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from minutebook.infra.cli.main import app
from minutebook.infra.setting_keys import leaves
from minutebook.infra.settings_load import load
from tree import ROOT, name_of

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [path for path in PAGES if "reference" not in path.parts]

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")
CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(r"^(?:domain|commands|projections|infra|http|tests|docs|scripts)/[\w./-]*$")


def texts() -> list[Any]:
    """Every page, for parametrizing."""
    return [pytest.param(path, id=name_of(path)) for path in PAGES]


@pytest.mark.parametrize("path", texts())
def test_every_link_leads_somewhere(path: Path) -> None:
    found = [target for target, _ in LINK.findall(path.read_text("utf-8")) if "://" not in target]
    assert [target for target in found if not (path.parent / target).exists()] == []


def test_every_page_can_be_reached() -> None:
    linked = {
        (path.parent / target).resolve()
        for path in PAGES
        for target, _ in LINK.findall(path.read_text("utf-8"))
        if "://" not in target
    }
    folders = {each for each in linked if each.is_dir()}
    lost = [path for path in PAGES[1:] if path.resolve() not in linked and path.parent.resolve() not in folders]
    assert lost == []


def commands(text: str) -> list[list[str]]:
    """Every call of `minutebook` in a text, as words, up to a pipe or the end of its line."""
    joined = text.replace("\\\n", " ")
    calls = re.findall(r"(?:^|[`(]|\$ )minutebook ([a-z-][^\n`|>&]*)", joined, re.MULTILINE)
    return [re.split(r"\s+", call.split(")")[0].strip()) for call in calls]


def verbs(group: Any = None, prefix: str = "") -> dict[str, set[str]]:
    """The options of every verb; one of a group has the group's name in front."""
    group = group or typer.main.get_command(app)
    found: dict[str, set[str]] = {}
    for name, verb in group.commands.items():
        found[prefix + name] = {opt for each in verb.params for opt in (*each.opts, *each.secondary_opts)} | {"--help"}
        if hasattr(verb, "commands"):
            found |= verbs(verb, f"{prefix}{name} ")
    return found


@pytest.mark.parametrize("path", [pytest.param(each, id=name_of(each)) for each in WRITTEN])
def test_every_call_of_the_command_line_is_one(path: Path) -> None:
    known = verbs()
    text = path.read_text("utf-8")
    blocks = [body for language, body in CODE.findall(text) if language == "sh"]
    blocks += [f"`{each}`" for each in INLINE.findall(CODE.sub("", text)) if each.startswith("minutebook ")]
    groups = {name.rpartition(" ")[0] for name in known if " " in name}
    for verb, *words in (call for block in blocks for call in commands(block)):
        while verb in groups and words:
            verb = f"{verb} {words.pop(0)}"  # noqa: PLW2901 - the whole name of it
        assert verb in known, f"there is no verb {verb}"
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in known[verb], f"{verb} has no option {option}"


@pytest.mark.parametrize("path", [pytest.param(each, id=name_of(each)) for each in WRITTEN])
def test_every_variable_is_a_setting(path: Path) -> None:
    """MINUTEBOOK_KIND is the eventsourcing recorder's own, as that library names its variables."""
    known = {leaf.env for leaf in leaves()} | {"MINUTEBOOK_CONFIG", "MINUTEBOOK_DATA_DIR", "MINUTEBOOK_KIND"}
    used = set(re.findall(r"\bMINUTEBOOK_[A-Z_]*[A-Z]\b", path.read_text("utf-8")))
    assert used - known == set()


def toml_blocks() -> list[Any]:
    """Every block of settings."""
    return [
        pytest.param(body, id=f"{name_of(path)} {place}")
        for path in WRITTEN
        for place, (language, body) in enumerate(CODE.findall(path.read_text("utf-8")))
        if language == "toml"
    ]


@pytest.mark.parametrize("body", toml_blocks())
def test_every_block_of_settings_is_taken(body: str, tmp_path: Path) -> None:
    assert tomllib.loads(body)
    (tmp_path / "minutebook.toml").write_text(body, "utf-8")
    names = re.findall(r'"env:(\w+)"', body)
    url, secret = "postgresql://minutebook_app@db.example/minutebook", "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="
    given = {
        "CONVERSATION_KEY": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "PAYLOAD_KEY": "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=",
        "HOOK_INBOUND": "whsec_ZmVkY2JhOTg3NjU0MzIxMA==",
        "BOT_TOKEN": "12345:from-botfather",
        "WEBHOOK_TOKEN": "of-set-webhook",
        "SIGNING": "of-the-apps-page",
        "RELAY_TOKEN": "of-the-relay",
    }
    load(tmp_path, {name: secret if name.endswith("_SECRET") else given.get(name, url) for name in names})


@pytest.mark.parametrize("path", [pytest.param(each, id=name_of(each)) for each in WRITTEN])
def test_every_named_file_of_the_repository_is_there(path: Path) -> None:
    named = {each.rstrip("/") for each in INLINE.findall(path.read_text("utf-8")) if PLACE.match(each)}
    assert {each for each in named if not (ROOT / each).exists()} == set()


@pytest.mark.parametrize("path", texts())
def test_no_page_names_a_path_of_a_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|work|Users)/\S*", text) == []


def test_a_decision_fits_a_page_and_says_what_it_must() -> None:
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = path.read_text("utf-8")
        assert len(text.splitlines()) <= 60, name_of(path)
        headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert headings == ["Context", "Decision", "Cost", "What would change our mind"], name_of(path)
        assert text.startswith(f"# {path.name[:4]}: ")


def test_a_wrong_call_is_found() -> None:
    assert commands("```\nminutebook serve --prot 1 | cat\n$(minutebook token --x)\n```") == [
        ["serve", "--prot", "1"],
        ["token", "--x"],
    ]
