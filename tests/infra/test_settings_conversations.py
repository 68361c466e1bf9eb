"""The settings of conversations, agents and tools: what holds without them, and what stops the start with its key."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from minutebook.domain.conversations.identity import Identity
from minutebook.infra.redaction.setup import secrets_of
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_load import load

KEY = base64.b64encode(b"k" * 32).decode()
OTHER_KEY = base64.b64encode(bytes(range(200, 232))).decode()

AGENT = "[agents.ops]\nprovider = 'scripted'\n"
CORP = """
[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
kind = "human"
tenants = ["acme"]
"""

FULL = """
[conversations]
key = "env:CONVERSATION_KEY"
previousKeys = ["env:MINUTEBOOK_OLD_KEY"]
claims = ["dept"]
retentionDays = 30
tenantRetentionDays = { acme = 365 }
waitingTurns = 5
[agents.ops]
provider = "openai"
system = "You help the on-call team."
tools = ["vault", "files"]
contextWindow = 32000
reserveOutputTokens = 2048
maxSteps = 4
summarizer = "digest"
budget = { tokensPerTurn = 100000, tokensPerDay = 2000000 }
baseUrl = "http://127.0.0.1:8000/v1"
apiKey = "env:MODEL_KEY"
model = "small"
counter = "tiktoken:ranks/small.tiktoken"
[agents.digest]
provider = "anthropic"
apiKey = "sk-another-key-of-a-model"
model = "tiny"
counter = "tiktoken:o200k_base"
memory = { scope = "constant:team" }
[tools.vault]
python = "my_module:vault"
dataClass = "secret"
idempotent = true
groups = ["sec"]
timeoutSeconds = 5
[tools.files]
mcp = { command = ["files-server", "--root", "/srv"], environment = { FILES_TOKEN = "env:MODEL_KEY" }, only = ["read"] }
[tools.wiki]
mcp = { url = "https://wiki.example/mcp", token = "env:WIKI_TOKEN" }
[tools.Bash]
dataClass = "shell"
"""
ENV = {"CONVERSATION_KEY": KEY, "MINUTEBOOK_OLD_KEY": OTHER_KEY, "MODEL_KEY": "sk-model-key", "WIKI_TOKEN": "wk-token"}


def loaded(folder: Path, toml: str = "", env: dict[str, str] | None = None) -> Settings:
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    return load(folder, env or {})


def refusal(folder: Path, toml: str, env: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, toml, env)
    return str(caught.value)


def test_without_a_table_the_limits_of_the_design_hold(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    conversations = settings.conversations
    assert (conversations.key, conversations.previous_keys, conversations.claims) == (None, (), ())
    assert conversations.retention_of("acme") == conversations.retention_of(None) == 90
    assert (conversations.streams, conversations.streams_per_principal, conversations.viewers) == (256, 8, 128)
    assert (conversations.stream_max_seconds, conversations.stream_pending_bytes) == (900, 1_048_576)
    assert (conversations.posts_per_minute, conversations.waiting_turns) == (120, 64)
    assert (conversations.first_delta_seconds, conversations.idle_seconds, conversations.turn_seconds) == (60, 60, 600)
    assert settings.agents == {}


def test_an_agent_needs_its_provider_alone(tmp_path: Path) -> None:
    agent = loaded(tmp_path, AGENT).agents["ops"]
    assert (agent.context_window, agent.reserved, agent.max_steps) == (128_000, 4096, 8)
    assert (agent.budget.tokens_per_turn, agent.budget.tokens_per_day) == (200_000, None)
    assert (agent.summarizer, agent.counter, agent.tools) == (None, "heuristic", ())


def test_what_is_not_said_follows_from_what_is(tmp_path: Path) -> None:
    small = loaded(tmp_path, AGENT + "contextWindow = 1000\nbudget = { tokensPerDay = 5000 }").agents["ops"]
    assert (small.reserved, small.turn_ceiling) == (250, 5000)
    assert loaded(tmp_path, AGENT).agents["ops"].turn_ceiling == 200_000


def test_everything_is_read_and_files_are_found_beside_the_settings(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL, ENV)
    conversations, ops = settings.conversations, settings.agents["ops"]
    assert (conversations.key_bytes, conversations.earlier) == (b"k" * 32, (bytes(range(200, 232)),))
    assert (conversations.retention_of("acme"), conversations.retention_of("beta")) == (365, 30)
    assert (ops.api_key, ops.budget.tokens_per_day, ops.summarizer) == ("sk-model-key", 2_000_000, "digest")
    assert ops.counter == f"tiktoken:{tmp_path / 'ranks' / 'small.tiktoken'}"
    assert settings.agents["digest"].counter == "tiktoken:o200k_base"
    assert settings.config_dir == tmp_path
    tools = settings.tools
    assert (tools["vault"].label, tools["vault"].groups, tools["vault"].timeout_seconds) == ("secret", ("sec",), 5)
    files, wiki = tools["files"].mcp, tools["wiki"].mcp
    assert files is not None
    assert (files.command, files.only, tools["files"].label) == (
        ("files-server", "--root", "/srv"),
        ("read",),
        "unclassified",
    )
    assert files.environment == {"FILES_TOKEN": "sk-model-key"}
    assert wiki is not None
    assert wiki.token == "wk-token"
    assert [name for name, tool in tools.items() if not tool.is_callable] == ["Bash"]


def test_keys_come_from_variables_too(tmp_path: Path) -> None:
    env = {"MINUTEBOOK_CONVERSATIONS_KEY": KEY, "MINUTEBOOK_CONVERSATIONS_PREVIOUS_KEYS": f"{OTHER_KEY}, env:OLDEST"}
    conversations = loaded(tmp_path, "", env | {"OLDEST": KEY}).conversations
    assert (conversations.key, conversations.previous_keys) == (KEY, (OTHER_KEY, KEY))


def test_no_secret_is_printed_and_each_is_known_to_the_redactor(tmp_path: Path) -> None:
    settings = loaded(tmp_path, FULL, ENV)
    secrets = {*ENV.values(), "sk-another-key-of-a-model"}
    assert not [secret for secret in secrets if secret in repr(settings)]
    assert {secret for _, secret in secrets_of(settings)} == secrets


@pytest.mark.parametrize("text", ["short", "a" * 40 + "!", base64.b64encode(b"k" * 31).decode(), "é" * 44])
@pytest.mark.parametrize("name", ["key", "previousKeys"])
def test_a_key_that_is_none_stops_without_being_shown(tmp_path: Path, name: str, text: str) -> None:
    value = f"'{text}'" if name == "key" else f"['{KEY}', '{text}']"
    message = refusal(tmp_path, f"[conversations]\n{name} = {value}")
    assert message.startswith(f"conversations.{name} must be")
    assert text not in message


def test_a_key_of_the_url_safe_alphabet_is_read(tmp_path: Path) -> None:
    key = bytes(range(224, 256))
    text = base64.urlsafe_b64encode(key).decode()
    assert "_" in text
    assert loaded(tmp_path, f"[conversations]\nkey = '{text}'").conversations.key_bytes == key


def test_agents_of_a_server_that_is_no_development_server_need_a_key(tmp_path: Path) -> None:
    assert refusal(tmp_path, CORP + AGENT).startswith("conversations.key is missing")
    assert loaded(tmp_path, f"{CORP}{AGENT}\n[conversations]\nkey = '{KEY}'").agents
    assert loaded(tmp_path, CORP).agents == {}


VAULT = "[tools.vault]\npython = 'm:f'\n"


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[agents.Ops]\nprovider = 'scripted'", "agents.Ops: a name is"),
        ("[agents.ops]\nprovider = 'other'", "agents.ops.provider must be one of scripted, openai, anthropic"),
        (AGENT + "tools = ['vault']", "agents.ops.tools: there is no tool vault"),
        (AGENT + "tools = ['Bash']\n[tools.Bash]\ndataClass = 'x'", "agents.ops.tools: [tools.Bash] does not say"),
        (AGENT + "tools = ['vault', 'vault']\n" + VAULT, "agents.ops.tools names a tool twice"),
        (AGENT + "tools = ['vault']\n" + VAULT + "approval = 'human'", "agents.ops.tools: vault needs a person's"),
        (AGENT + "memory = { scope = 'team' }", "agents.ops.memory.scope must be asker, or constant:"),
        (AGENT + "memory = { scope = 'constant:' }", "agents.ops.memory.scope must be asker, or constant:"),
        (
            AGENT + "memory = {}\ntools = ['memory_read']\n[tools.memory_read]\npython = 'a:b'",
            "agents.ops.tools: memory_read has a name of the agent's memory",
        ),
        (
            AGENT + "memory = {}\ntools = ['memory']\n[tools.memory.mcp]\ncommand = ['notes']",
            "agents.ops.tools: memory has a name of the agent's memory",
        ),
        (AGENT + "summarizer = 'digest'", "agents.ops.summarizer: there is no agent digest"),
        (AGENT + "summarizer = 'ops'", "agents.ops.summarizer goes in a circle (ops -> ops)"),
        (
            AGENT + "summarizer = 'b'\n[agents.b]\nprovider = 'scripted'\nsummarizer = 'ops'",
            "agents.ops.summarizer goes in a circle (ops -> b -> ops)",
        ),
        (CORP + AGENT + f"summarizer = 'echo'\n[conversations]\nkey = '{KEY}'", "agents.ops.summarizer: there is no"),
        (
            AGENT + "contextWindow = 4096\nreserveOutputTokens = 4096",
            "agents.ops.reserveOutputTokens must be less than contextWindow",
        ),
        (AGENT + "budget = { tokensPerDay = 0 }", "agents.ops.budget.tokensPerDay"),
        (AGENT + "budget = { tokens = 5000 }", "agents.ops.budget.tokens is not a setting"),
        (AGENT + "counter = 'words'", "agents.ops.counter must be heuristic"),
        (AGENT + "counter = 'tiktoken:'", "agents.ops.counter must be heuristic"),
        (AGENT + "apiKey = 'x'", "agents.ops.apiKey is for a model's service"),
        (AGENT + "baseUrl = 'https://a.example'", "agents.ops.baseUrl is for a model's service"),
        ("[agents.ops]\nprovider = 'openai'\napiKey = 'k'", "agents.ops.model is missing"),
        ("[agents.ops]\nprovider = 'openai'\nmodel = 'm'", "agents.ops.apiKey is missing"),
        ("[agents.ops]\nprovider = 'anthropic'\nmodel = 'm'\nbaseUrl = 'https://a.example'", "agents.ops.apiKey"),
        ("[agents.ops]\nprovider = 'openai'\nmodel = 'm'\nbaseUrl = 'http://a.example'", "agents.ops.baseUrl must be"),
        ("[agents.ops]\nprovider = 'openai'\nmodel = 'm'\nbaseUrl = 'https://u:p@a'", "agents.ops.baseUrl must be"),
        ("[agents.ops]\nprovider = 'openai'\nmodel = 'm'\napiKey = 'a\\nb'", "agents.ops.apiKey must be visible"),
        ("[tools.a]\npython = 'm:f'\nmcp = { url = 'https://a.example' }", "tools.a.python: set one of"),
        ("[tools.'a b']\npython = 'm:f'", "tools.a b: the name of a tool"),
        ("[tools.a]\npython = 'm'", "tools.a.python must be module:function"),
        ("[tools.a]\npython = 'm:f()'", "tools.a.python must be module:function"),
        ("[tools.a]\nmcp = {}", "tools.a.mcp.url: set exactly one"),
        ("[tools.a]\nmcp = { url = 'https://a', command = ['b'] }", "tools.a.mcp.url: set exactly one"),
        ("[tools.a]\nmcp = { command = ['b'], token = 'c' }", "tools.a.mcp.token is for url"),
        ("[tools.a]\nmcp = { url = 'https://a', environment = { B = 'c' } }", "tools.a.mcp.environment is for command"),
        ("[tools.a]\nmcp = { url = 'http://a.example/mcp' }", "tools.a.mcp.url must be https"),
        ("[tools.a]\nmcp = { uri = 'http://a.example/mcp' }", "tools.a.mcp.uri is not a setting"),
        ("[tools.a]\ntimeoutSeconds = 0", "tools.a.timeoutSeconds"),
        ("[conversations]\ntenantRetentionDays = { ' a' = 1 }", "conversations.tenantRetentionDays must name"),
        ("[conversations]\ntenantRetentionDays = { a = 0 }", "conversations.tenantRetentionDays.a"),
        ("[conversations]\nturnSeconds = 0", "conversations.turnSeconds"),
    ],
)
def test_what_cannot_work_stops_with_its_key(tmp_path: Path, toml: str, words: str) -> None:
    toml = toml.replace("'a\\nb'", '"a\\nb"')
    assert refusal(tmp_path, toml).startswith(words)


def test_plain_http_to_another_machine_is_asked_for(tmp_path: Path) -> None:
    agent = "[agents.ops]\nprovider = 'openai'\nmodel = 'm'\nbaseUrl = 'http://gpu.example/v1'\nplainHttp = true"
    assert loaded(tmp_path, agent).agents["ops"].base_url == "http://gpu.example/v1"


def test_the_agent_of_a_development_server_may_sum_up(tmp_path: Path) -> None:
    assert loaded(tmp_path, AGENT + "summarizer = 'echo'").agents["ops"].summarizer == "echo"


DELEGATES = """
[[conversations.delegates]]
actor = "system:desk"
onBehalfOf = "human:alice"
as = "human:alice"
tenant = "acme"
[[conversations.delegates]]
actor = "agent:abcdefgh"
onBehalfOf = "human:alice"
as = "human:oncall"
"""


def test_a_delegate_takes_part_as_whom_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text(DELEGATES)
    mapped = load(tmp_path, {}).conversations.mapped
    assert mapped(Identity("system:desk", "acme", "human:alice")) == Identity("human:alice", "acme")
    assert mapped(Identity("agent:abcdefgh", "other", "human:alice")) == Identity("human:oncall", "other")
    for nobody in (
        Identity("system:desk", "other", "human:alice"),
        Identity("system:desk", "acme", "human:bob"),
        Identity("system:desk", "acme"),
        Identity("human:alice", "acme"),
    ):
        assert mapped(nobody) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("delegates = 'x'", "conversations.delegates: expected `array`"),
        ("delegates = ['x']", "conversations.delegates[0] must be a table"),
        ("delegates = [{ actor = 'system:x', as = 'human:a' }]", "delegates[0].onBehalfOf is missing"),
        ("delegates = [{ actor = 'x', onBehalfOf = 'human:a', as = 'human:a' }]", "delegates[0].actor must be a princ"),
        ("delegates = [{ actor = 'system:x', onBehalfOf = 'a', as = 'human:a' }]", "onBehalfOf must be a principal"),
        ("delegates = [{ actor = 'system:x', onBehalfOf = 'human:a', as = 'system:x' }]", "as must be a person"),
        ("delegates = [{ actor = 'system:x', onBehalfOf = 'human:a', as = 'human:a', to = 1 }]", "to is not a setting"),
        (
            "delegates = [{ actor = 'system:x', onBehalfOf = 'human:a', as = 'human:a', tenant = ' a' }]",
            "delegates[0].tenant must be",
        ),
        (
            (
                "delegates = [{ actor = 'system:x', onBehalfOf = 'human:a', as = 'human:a', tenant = 't' },"
                " { actor = 'system:x', onBehalfOf = 'human:a', as = 'human:b' }]"
            ),
            "delegates[1] says once more",
        ),
    ],
)
def test_delegates_that_cannot_be(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "minutebook.toml").write_text(f"[conversations]\n{text}\n")
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, {})
    assert words in str(refused.value)
