"""What cannot be in `[conversations]`, `[agents.<name>]` and `[tools.<name>]`, alone or together."""

from __future__ import annotations

import re

from ..commands.conversations.ports import MEMORY_SPECS
from ..domain.errors import Invalid
from ..domain.principals import Principal
from .settings import Settings, SettingsError, is_canonical, is_loopback
from .settings_check_outward import split_url
from .settings_conversations import TIKTOKEN, AgentSettings, ConversationSettings, McpSettings, ToolSettings, key_bytes

ECHO = "echo"
"""The agent that a development server always has."""

_AGENT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MEMORY_SCOPE = re.compile(r"asker|constant:[a-z][a-z0-9_-]{0,63}")
_MEMORY_TOOLS = frozenset(each.name for each in MEMORY_SPECS)

_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
"""Of a tool that models call: what all services take, with room for the names of an MCP server's tools behind it."""

CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
"""A Python callable, `module:function`."""


def check_conversations(settings: Settings) -> None:
    """Raises SettingsError with the key and what to do."""
    _check_keys(settings)
    for name, tool in settings.tools.items():
        _check_tool(name, tool)
    for name, agent in settings.agents.items():
        if _AGENT_NAME.fullmatch(name) is None:
            raise SettingsError(f"agents.{name}: a name is a to z, 0 to 9, - and _, begins with a letter, at most 64.")
        _check_agent(f"agents.{name}", agent)
        _check_tools_of(f"agents.{name}.tools", agent, settings)
    _check_summarizers(settings)


def _check_keys(settings: Settings) -> None:
    conversations = settings.conversations
    held = {"key": (conversations.key,) if conversations.key else (), "previousKeys": conversations.previous_keys}
    for name, texts in held.items():
        for text in texts:
            try:
                key_bytes(text)
            except ValueError as error:
                raise SettingsError(
                    f"conversations.{name} {error}, such as `openssl rand -base64 32` gives (its value is not shown)."
                ) from None
    if not all(is_canonical(tenant) for tenant in conversations.tenant_retention_days):
        raise SettingsError("conversations.tenantRetentionDays must name tenants without white space around them.")
    _check_delegates(conversations)
    if settings.agents and conversations.key is None and not settings.is_development:
        raise SettingsError(
            "conversations.key is missing: agents are declared, and only a development server makes a key of its own;"
            " set it to what `openssl rand -base64 32` gives."
        )


def _check_delegates(conversations: ConversationSettings) -> None:
    for place, each in enumerate(conversations.delegates):
        key = f"conversations.delegates[{place}]"
        for name, text in (("actor", each.actor), ("onBehalfOf", each.on_behalf_of), ("as", each.as_)):
            try:
                principal = Principal.parse(text)
            except Invalid:
                raise SettingsError(f"{key}.{name} must be a principal, such as human:alice.") from None
            if name == "as" and principal.kind != "human":
                raise SettingsError(f"{key}.as must be a person, such as human:alice: only people take part.")
        if each.tenant is not None and not is_canonical(each.tenant):
            raise SettingsError(f"{key}.tenant must be a tenant's name without white space around it.")
        for other in conversations.delegates[:place]:
            is_pair = (other.actor, other.on_behalf_of) == (each.actor, each.on_behalf_of)
            if is_pair and (other.tenant == each.tenant or None in (other.tenant, each.tenant)):
                raise SettingsError(f"{key} says once more as whom {each.actor} acts: remove one of the two.")


def _check_tool(name: str, tool: ToolSettings) -> None:
    key = f"tools.{name}"
    if not tool.is_callable:
        return
    if _TOOL_NAME.fullmatch(name) is None:
        raise SettingsError(
            f"{key}: the name of a tool that agents call is letters, digits, - and _, begins with a letter, at most 32."
        )
    if tool.python is not None and tool.mcp is not None:
        raise SettingsError(f"{key}.python: set one of python and mcp.")
    if tool.python is not None and CALLABLE.fullmatch(tool.python) is None:
        raise SettingsError(f"{key}.python must be module:function, such as my_module:look_up.")
    if tool.mcp is not None:
        _check_mcp(f"{key}.mcp", tool.mcp)


def _check_mcp(key: str, mcp: McpSettings) -> None:
    if (mcp.url is None) == (not mcp.command):
        raise SettingsError(f"{key}.url: set exactly one of url and command.")
    if mcp.url is not None:
        _check_url(f"{key}.url", mcp.url, plain_http=mcp.plain_http)
        if mcp.environment:
            raise SettingsError(f"{key}.environment is for command: remove it.")
    elif mcp.token is not None:
        raise SettingsError(f"{key}.token is for url: give the program its secret by environment.")
    _check_header(f"{key}.token", mcp.token)


def _check_service(key: str, agent: AgentSettings) -> None:
    if agent.provider == "scripted":
        for name, value in (("baseUrl", agent.base_url), ("apiKey", agent.api_key)):
            if value is not None:
                raise SettingsError(f"{key}.{name} is for a model's service: provider scripted has none, remove it.")
    else:
        if agent.model is None:
            raise SettingsError(f"{key}.model is missing: name the model, as its service calls it.")
        if agent.api_key is None and (agent.provider == "anthropic" or agent.base_url is None):
            raise SettingsError(f"{key}.apiKey is missing: set it, such as to env:API_KEY.")
        if agent.base_url is not None:
            _check_url(f"{key}.baseUrl", agent.base_url, plain_http=agent.plain_http)
    _check_header(f"{key}.apiKey", agent.api_key)


def _check_agent(key: str, agent: AgentSettings) -> None:
    _check_service(key, agent)
    if agent.reserved >= agent.context_window:
        raise SettingsError(f"{key}.reserveOutputTokens must be less than contextWindow: no prompt would fit.")
    if agent.memory is not None and _MEMORY_SCOPE.fullmatch(agent.memory.scope) is None:
        raise SettingsError(f"{key}.memory.scope must be asker, or constant: and a name of a to z, 0 to 9, - and _.")
    if agent.counter != "heuristic" and (agent.counter == TIKTOKEN or not agent.counter.startswith(TIKTOKEN)):
        raise SettingsError(f"{key}.counter must be heuristic, or {TIKTOKEN} and an encoding or a file.")


def _check_tools_of(key: str, agent: AgentSettings, settings: Settings) -> None:
    if len(set(agent.tools)) < len(agent.tools):
        raise SettingsError(f"{key} names a tool twice: remove one.")
    for name in agent.tools:
        tool = settings.tools.get(name)
        if tool is None:
            raise SettingsError(f"{key}: there is no tool {name}; declare it as [tools.{name}], or remove it here.")
        if not tool.is_callable:
            raise SettingsError(f"{key}: [tools.{name}] does not say where the tool is; set its python or its mcp.")
        if agent.memory is not None and (name in _MEMORY_TOOLS or (name == "memory" and tool.mcp is not None)):
            raise SettingsError(f"{key}: {name} has a name of the agent's memory; declare the tool under another.")
        if tool.approval == "human":
            raise SettingsError(
                f"{key}: {name} needs a person's approval of each call, and a conversation has nobody to ask;"
                " remove it here."
            )


def _check_summarizers(settings: Settings) -> None:
    names = {*settings.agents, *((ECHO,) if settings.is_development else ())}
    for name, agent in settings.agents.items():
        if agent.summarizer is not None and agent.summarizer not in names:
            raise SettingsError(
                f"agents.{name}.summarizer: there is no agent {agent.summarizer}; correct or remove it."
            )
    for name in settings.agents:
        seen, at = [name], settings.agents[name].summarizer
        while at is not None and at in settings.agents:
            if at in seen:
                raise SettingsError(
                    f"agents.{name}.summarizer goes in a circle ({' -> '.join([*seen, at])}): break it."
                )
            seen.append(at)
            at = settings.agents[at].summarizer


def _check_header(key: str, secret: str | None) -> None:
    if secret is not None and not (secret.isascii() and secret.isprintable()):
        raise SettingsError(f"{key} must be visible ASCII (its value is not shown).")


def _check_url(key: str, url: str, *, plain_http: bool) -> None:
    scheme, host = split_url(key, url, may_ask=False, example="v1")
    if scheme == "http" and not plain_http and not is_loopback(host):
        place = key.rpartition(".")[0]
        raise SettingsError(f"{key} must be https; for plain http to another machine set {place}.plainHttp = true.")
