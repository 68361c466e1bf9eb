"""Identity providers at which people sign in to link a channel (OpenID Connect, authorization code with PKCE)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from ..commands.jobs import Refused, TryAgain
from ..commands.linking.sign_in_ports import Person, SignInFailed
from ..domain.errors import MinutebookError
from .outward_http import OutwardClient
from .settings import IssuerSettings, OidcSettings, Settings
from .settings_channels import AllowRule, rules_in
from .tokens import TokenVerifier

TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024
MAX_CONNECTIONS = 8


class _Tokens(msgspec.Struct):
    """The answer of a token endpoint, as far as it is wanted."""

    id_token: str


class OidcProvider:
    """Provider of commands/linking/sign_in_ports.py. name: of the issuer in the settings."""

    def __init__(
        self, name: str, issuer: IssuerSettings, oidc: OidcSettings, settings: Settings, verifier: TokenVerifier
    ) -> None:
        self._name = name
        self._issuer = issuer
        self._oidc = oidc
        self._settings = settings
        self._verifier = verifier
        self._client = OutwardClient(TIMEOUT_S, allow_private=oidc.allow_loopback, max_connections=MAX_CONNECTIONS)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    def url(self, state: str, nonce: str, challenge: str) -> str:
        """See Provider.url."""
        asked = {
            "response_type": "code",
            "client_id": self._oidc.client_id,
            "redirect_uri": self._oidc.redirect_url,
            "scope": self._oidc.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in self._oidc.authorize_url else "?"
        return f"{self._oidc.authorize_url}{joint}{urlencode(asked)}"

    async def person(self, code: str, verifier: str, nonce: str) -> Person:
        """See Provider.person."""
        try:
            token = await self._exchange(code, verifier)
            found = await self._verifier.verify_id_token(self._name, token, self._oidc.client_id, nonce, self._names)
        except (TryAgain, Refused, msgspec.MsgspecError, MinutebookError):
            raise SignInFailed from None
        caller = found.caller
        if caller.principal.kind != "human":
            raise SignInFailed
        return Person(
            caller.tenant, str(caller.principal), found.issuer, found.sub, found.claims, self._oidc.claims_ttl_s
        )

    def speaks_for(self, tenant: str) -> bool:
        """See Provider.speaks_for."""
        return speaks_for(self._issuer, tenant)

    async def _exchange(self, code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._oidc.redirect_url,
            "client_id": self._oidc.client_id,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._oidc.client_secret is not None:
            # Both are form-encoded before they are put together (RFC 6749, 2.3.1).
            pair = f"{quote(self._oidc.client_id, safe='')}:{quote(self._oidc.client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        answer = await self._client.call(
            "POST",
            self._oidc.token_url,
            headers=headers,
            content=urlencode(form).encode(),
            max_bytes=MAX_ANSWER_BYTES,
        )
        return msgspec.json.decode(answer.body, type=_Tokens).id_token

    def _names(self, tenant: str) -> frozenset[str]:
        """The claims that the settings ask for somewhere, of a tenant."""
        lists = [self._settings.authorization.allowlist]
        lists += [each.allowlist for each in self._settings.channels.values() if each.tenant == tenant]
        rules = [rule for each in lists for rule in rules_in(each) if isinstance(rule, AllowRule)]
        asked = (rule.claim for rule in rules if rule.claim is not None)
        return frozenset({*self._settings.conversations.claims, *self._settings.clearance.of(tenant).claims, *asked})


class Providers(NamedTuple):
    """Those of the settings, by the names of their issuers."""

    by_name: Mapping[str, OidcProvider]
    settings: Settings

    def url_of(self, tenant: str, link_id: str) -> str | None:
        """Where somebody of a tenant signs in for a link; None where the tenant has no provider."""
        for name in self.by_name:
            issuer = self.settings.issuers[name]
            if issuer.oidc is not None and speaks_for(issuer, tenant):
                return f"{issuer.oidc.redirect_url.removesuffix('callback')}start?{urlencode({'id': link_id})}"
        return None


def providers_of(settings: Settings, verifier: TokenVerifier) -> Providers:
    """The providers of the settings; whoever asked closes each."""
    made = {
        name: OidcProvider(name, each, each.oidc, settings, verifier)
        for name, each in settings.issuers.items()
        if each.oidc is not None
    }
    return Providers(made, settings)


def speaks_for(issuer: IssuerSettings, tenant: str) -> bool:
    """Whether an issuer's people may be of a tenant."""
    return issuer.tenant_claim is not None or tenant in issuer.tenants
