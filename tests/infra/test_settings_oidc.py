"""Settings of sign-ins at an issuer: what is wrong stops the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from minutebook.infra.redaction.setup import secrets_of
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_load import load

CORP = """
[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
tenants = ["acme"]
kind = "human"
[issuers.corp.oidc]
clientId = "links"
clientSecret = "a-secret-of-the-client"
authorizeUrl = "https://id.example/authorize"
tokenUrl = "https://id.example/token"
redirectUrl = "https://minutebook.example/v1/links/oidc/corp/callback"
"""


def test_a_sign_in_has_its_settings_and_its_secret_is_known_to_the_redactor(tmp_path: Path) -> None:
    (tmp_path / "minutebook.toml").write_text(CORP)
    settings = load(tmp_path, {})
    oidc = settings.issuers["corp"].oidc
    assert oidc is not None
    assert (oidc.client_id, oidc.scope, oidc.claims_ttl_s, oidc.allow_loopback) == ("links", "openid", 86_400, False)
    assert "a-secret-of-the-client" not in repr(settings)
    assert "a-secret-of-the-client" in {secret for _, secret in secrets_of(settings)}


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('kind = "human"', 'kind = "system"', "issuers.corp.oidc is for kind"),
        ("https://id.example/authorize", "http://id.example/authorize", "issuers.corp.oidc.authorizeUrl must be https"),
        ("https://id.example/token", "ftp://id.example/token", "issuers.corp.oidc.tokenUrl must be https"),
        ("oidc/corp/callback", "oidc/other/callback", "issuers.corp.oidc.redirectUrl must end with"),
        ('clientId = "links"', 'clientId = "links"\nscope = "profile"', "issuers.corp.oidc.scope must have openid"),
        (
            'clientId = "links"',
            'clientId = "links"\nclaimsTtl = "31d"',
            "issuers.corp.oidc.claimsTtl must be 1m",
        ),
        ('clientId = "links"', "", "issuers.corp.oidc.clientId is missing"),
        ("issuers.corp", "issuers.Corp", "issuers.Corp: with oidc its name is part of a URL"),
    ],
)
def test_what_cannot_be_stops_the_start(tmp_path: Path, right: str, wrong: str, words: str) -> None:
    (tmp_path / "minutebook.toml").write_text(CORP.replace(right, wrong))
    with pytest.raises(SettingsError, match=words):
        load(tmp_path, {})
