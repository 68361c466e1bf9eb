"""domain/ names no forge, identity provider, cluster or model vendor: those are data with defaults, handed in."""

from __future__ import annotations

import re

import pytest
from tree import name_of, python_files

NAMES = {  # without names that are words of ours: cursor
    "forge": "github gitlab bitbucket gitea forgejo codeberg sourcehut gerrit",
    "identity provider": "okta auth0 keycloak entra cognito zitadel authentik google apple",
    "cluster": "kubernetes k8s openshift nomad argo helm docker podman aws azure gcp cloudnativepg rds",
    "model vendor": "openai anthropic claude chatgpt gpt gemini mistral llama ollama vllm cohere deepseek qwen grok",
    "harness": "sweagent swe_agent openhands aider codex copilot devin",
    "channel": "slack telegram discord whatsapp teams mattermost",
}

OFFENDING = re.compile(
    r"(?<![a-z])(" + "|".join(name for names in NAMES.values() for name in names.split()) + r")(?![a-z])", re.IGNORECASE
)


def offences(text: str) -> list[str]:
    """Every vendor's name in a text: in code, in words and in names with underscores."""
    return [found[0].lower() for found in OFFENDING.finditer(text)]


def test_the_domain_names_no_vendor() -> None:
    found = {name_of(path): offences(path.read_text("utf-8")) for path in python_files("domain")}
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text", ['kind = "github"', "def post_to_Slack(): ...", "# as OpenAI does", "GITLAB_URL", "k8s_job", "claude-3"]
)
def test_an_offence_is_found(text: str) -> None:
    assert len(offences(text)) == 1


@pytest.mark.parametrize(
    "text", ["a group claim", "the apparatus", "helmet", "cohered", "argon", "rdsource", "teamster"]
)
def test_other_words_are_no_offence(text: str) -> None:
    assert offences(text) == []
