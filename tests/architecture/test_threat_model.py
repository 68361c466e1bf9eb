"""Every threat that delivery.md names is in the model, and every control there names tests that exist."""

from __future__ import annotations

import re

from tree import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
ROWS = re.findall(r"^\| (?!attack|---)[^|\n]+ \| [^|\n]+ \| ([^|\n]+) \|$", PAGE, re.MULTILINE)
THREATS = (
    "Spoofed identities",
    "Stolen or replayed challenges",
    "Leaks across tenants, channels and clearances",
    "Unsolicited messages",
    "Malicious payloads, kept for replay",
    "Storms",
    "Leaks by logs, metrics and tools",
)


def _tests_there() -> set[str]:
    """The names of all tests."""
    texts = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    return {name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)}


def test_every_threat_has_controls() -> None:
    assert tuple(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))[:-1] == THREATS
    for threat in THREATS:
        section = PAGE.split(f"## {threat}\n")[1].split("\n## ")[0]
        assert section.count("\n| ") >= 3, threat


def test_every_control_names_tests_that_exist() -> None:
    assert len(ROWS) > 25
    there = _tests_there()
    for cell in ROWS:
        named = re.findall(r"`(test_\w+)`", cell)
        assert named, cell
        assert not set(named) - there, cell


def test_the_model_says_who_reviewed_it_and_when() -> None:
    assert re.search(r"^Reviewer: .+ Date: \d{4}-\d{2}-\d{2}\. Commit: ", PAGE, re.MULTILINE)
