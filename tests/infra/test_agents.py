"""The agents of the settings: which there are, with what they work, and what stops the start."""

from __future__ import annotations

from pathlib import Path

from minutebook.infra.agents import ReadyAgents, agents_of
from minutebook.infra.settings_load import load

KEY = "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
AGENT = "[agents.ops]\nprovider = 'scripted'\n"


def ready(folder: Path, toml: str = "") -> ReadyAgents:
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    return agents_of(load(folder, {}))


def test_a_development_server_has_echo(tmp_path: Path) -> None:
    agents = ready(tmp_path)
    assert list(agents) == ["echo"]
    assert agents["echo"].provider.name == "scripted"
    assert agents.get("ops") is None
    assert sorted(ready(tmp_path, AGENT)) == ["echo", "ops"]


def test_another_server_has_what_it_declares(tmp_path: Path) -> None:
    assert list(ready(tmp_path, "development = false\n")) == []
    keyed = f"development = false\n[conversations]\nkey = '{KEY}'\n{AGENT}"
    assert list(ready(tmp_path, keyed)) == ["ops"]


def test_an_agent_is_as_it_was_declared(tmp_path: Path) -> None:
    more = (
        "system = 'Be brief.'\nmaxSteps = 3\ncontextWindow = 1000\nsummarizer = 'echo'\nbudget = { tokensPerDay = 9 }"
    )
    ops = ready(tmp_path, AGENT + more)["ops"]
    assert (ops.system, ops.max_steps, ops.context_window, ops.summarizer) == ("Be brief.", 3, 1000, "echo")
    assert (ops.reserve_output_tokens, ops.tokens_per_turn, ops.tokens_per_day) == (250, 9, 9)
    assert ready(tmp_path, AGENT)["ops"].tokens_per_day == 0


def test_the_digest_tells_declarations_apart_and_holds_no_secret(tmp_path: Path) -> None:
    plain, same, other = (ready(tmp_path, AGENT + more)["ops"].digest for more in ("", "", "maxSteps = 3"))
    assert plain == same != other
