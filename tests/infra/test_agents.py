"""The agents of the settings: which there are, with what they work, and what stops the start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_loop import in_loop
from minutebook.commands.conversations.ports import CallDelta, Message, ModelRequest
from minutebook.domain.conversations.identity import Identity
from minutebook.infra.agents import ReadyAgents, agents_of
from minutebook.infra.settings import SettingsError
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


def test_a_memory_gives_an_agent_its_tools_and_tells_whether_it_may_be_shared(tmp_path: Path) -> None:
    plain, own, constant = (
        ready(tmp_path, AGENT + more)["ops"]
        for more in ("", "[agents.ops.memory]\n", "[agents.ops.memory]\nscope = 'constant:team'\n")
    )
    assert [each.memory for each in (plain, own, constant)] == ["", "asker", "constant:team"]
    assert [each.shares for each in (plain, own, constant)] == [True, True, False]
    assert plain.offered == ()
    assert [each.name for each in own.offered] == ["memory_read", "memory_write"]
    assert plain.digest != own.digest != constant.digest


def test_the_digest_tells_declarations_apart_and_holds_no_secret(tmp_path: Path) -> None:
    plain, same, other = (ready(tmp_path, AGENT + more)["ops"].digest for more in ("", "", "maxSteps = 3"))
    assert plain == same != other


TOOL = "[tools.vault]\npython = 'tools_of_agents_test:look'\ndataClass = 'secret'\n"


@pytest.fixture
def module(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "tools_of_agents_test.py").write_text(
        "def look(name: str) -> dict:\n    return {'name': name}\n", "utf-8"
    )
    before = list(sys.path)
    yield
    sys.path[:] = before
    sys.modules.pop("tools_of_agents_test", None)


@pytest.mark.usefixtures("module")
@in_loop
async def test_echo_calls_every_tool_and_others_their_own(tmp_path: Path) -> None:
    gated = "[tools.gated]\npython = 'tools_of_agents_test:look'\napproval = 'human'\n"
    agents = ready(tmp_path, f"{AGENT}{TOOL}{gated}[tools.Bash]\ndataClass = 'shell'")
    await agents.start()
    (tool,) = agents["echo"].tools
    assert (tool.spec.name, tool.data_class) == ("vault", "secret")
    assert agents["ops"].tools == ()
    request = ModelRequest("", (Message("user", '!tool vault {"name": "x"}'),), (tool.spec,), 100)
    (call,) = [part.call async for part in agents["echo"].provider.stream(request) if isinstance(part, CallDelta)]
    result = await tool.run(call.arguments, Identity("human:ann"))
    assert (result.status, result.output) == ("ok", '{"name":"x"}')
    await agents.close()


@pytest.mark.usefixtures("module")
def test_the_digest_has_the_tools(tmp_path: Path) -> None:
    digests = [ready(tmp_path, more)["echo"].digest for more in ("", TOOL)]
    assert digests[0] != digests[1]


def test_a_tool_that_cannot_be_loaded_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^tools\.vault\.python: tools_of_agents_test cannot be imported"):
        ready(tmp_path, TOOL)
    # One that no agent uses is not looked at.
    assert list(ready(tmp_path, f"development = false\n{TOOL}")) == []
