"""What cannot be in `[issuers.<name>]`, of one or of several together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from .settings import (
    ASYMMETRIC_ALGORITHMS,
    RESERVED_COMPONENTS,
    IssuerSettings,
    SettingsError,
    is_canonical,
    is_loopback,
)
from .settings_section import parse_duration

MIN_TOKEN_LIFETIME_S = 60
MAX_TOKEN_LIFETIME_S = 30 * 86_400
MIN_CLAIMS_TTL_S = 60
MAX_CLAIMS_TTL_S = 30 * 86_400

_NAME = re.compile(r"[a-z0-9_-]{1,64}")


def check_issuers(issuers: Mapping[str, IssuerSettings]) -> None:
    """Raises SettingsError with the key and what to do."""
    for name, issuer in issuers.items():
        _check_keys_of(f"issuers.{name}", issuer)
        _check_claims_of(f"issuers.{name}", issuer)
        _check_oidc(name, issuer)
    _check_issuers_together(issuers)


def _check_keys_of(key: str, issuer: IssuerSettings) -> None:
    if (issuer.jwks_url is None) == (issuer.jwks_file is None):
        raise SettingsError(f"{key}.jwksUrl: set exactly one of jwksUrl and jwksFile.")
    if issuer.jwks_url is not None:
        _check_url(f"{key}.jwksUrl", issuer.jwks_url)
    for algorithm in issuer.algorithms:
        if algorithm not in ASYMMETRIC_ALGORITHMS:
            raise SettingsError(f"{key}.algorithms may list {', '.join(ASYMMETRIC_ALGORITHMS)} only.")
    try:
        lifetime_s = parse_duration(issuer.max_lifetime)
    except ValueError as error:
        raise SettingsError(f"{key}.maxLifetime {error}.") from None
    if not MIN_TOKEN_LIFETIME_S <= lifetime_s <= MAX_TOKEN_LIFETIME_S:
        raise SettingsError(f"{key}.maxLifetime must be 1m to 30d.")


def _check_oidc(name: str, issuer: IssuerSettings) -> None:
    oidc, key = issuer.oidc, f"issuers.{name}.oidc"
    if oidc is None:
        return
    if issuer.kind != "human":
        raise SettingsError(f'{key} is for kind = "human": remove it.')
    if _NAME.fullmatch(name) is None:
        raise SettingsError(f"issuers.{name}: with oidc its name is part of a URL: a to z, 0 to 9, - and _ only.")
    for field, url in (("authorizeUrl", oidc.authorize_url), ("tokenUrl", oidc.token_url)):
        _check_url(f"{key}.{field}", url)
    _check_url(f"{key}.redirectUrl", oidc.redirect_url)
    if not oidc.redirect_url.endswith(f"/v1/links/oidc/{name}/callback"):
        raise SettingsError(f"{key}.redirectUrl must end with /v1/links/oidc/{name}/callback.")
    if "openid" not in oidc.scope.split():
        raise SettingsError(f"{key}.scope must have openid in it: only a sign-in links.")
    try:
        ttl_s = parse_duration(oidc.claims_ttl)
    except ValueError as error:
        raise SettingsError(f"{key}.claimsTtl {error}.") from None
    if not MIN_CLAIMS_TTL_S <= ttl_s <= MAX_CLAIMS_TTL_S:
        raise SettingsError(f"{key}.claimsTtl must be 1m to 30d.")


def _check_url(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname, parts.port != 0
    except ValueError:
        raise SettingsError(f"{key} must be a URL such as https://id.example/jwks.") from None
    if not host or not has_port or parts.username is not None or parts.fragment:
        raise SettingsError(f"{key} must be a URL such as https://id.example/jwks, without user or fragment.")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise SettingsError(f"{key} must be https; http is for loopback hosts only.")


def _check_claims_of(key: str, issuer: IssuerSettings) -> None:
    if bool(issuer.tenants) == (issuer.tenant_claim is not None):
        raise SettingsError(f"{key}.tenants: set exactly one of tenants (not empty) and tenantClaim.")
    if not all(is_canonical(tenant) for tenant in issuer.tenants):
        raise SettingsError(f"{key}.tenants must list names without white space around them or control characters.")
    if issuer.kind == "agent":
        _check_pattern(f"{key}.subPattern", issuer.sub_pattern)
    elif issuer.sub_pattern is not None:
        raise SettingsError(f'{key}.subPattern is for kind = "agent": remove it.')
    if issuer.subjects and issuer.kind != "system":
        raise SettingsError(f'{key}.subjects is for kind = "system": remove it.')
    for sub, component in issuer.subjects.items():
        if component in RESERVED_COMPONENTS:
            raise SettingsError(f"{key}.subjects.{sub} must not be {component}: the server itself writes as it.")
        if not is_canonical(sub) or not is_canonical(component):
            raise SettingsError(f"{key}.subjects must hold names without white space around them.")


def _check_pattern(key: str, pattern: str | None) -> None:
    if pattern is None:
        raise SettingsError(f'{key} is missing: kind = "agent" needs a pattern whose group is the run id.')
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise SettingsError(f"{key} is not a regular expression: correct it.") from None
    if compiled.groups == 0:
        raise SettingsError(f"{key} needs a group for the run id, such as (?P<run>[a-z2-7]{{8}}).")


def _check_issuers_together(issuers: Mapping[str, IssuerSettings]) -> None:
    for (name, one), (other_name, other) in itertools.combinations(issuers.items(), 2):
        if (one.issuer, one.audience) == (other.issuer, other.audience):
            raise SettingsError(
                f"issuers.{other_name}.issuer: issuers.{name} has the same issuer and audience; change one."
            )
        if one.kind != "human" or other.kind != "human":
            continue
        # Two people of two issuers could have one `sub`, and would be one principal in a shared tenant.
        if one.tenant_claim is not None or other.tenant_claim is not None:
            key = "tenantClaim" if other.tenant_claim is not None else "tenants"
            raise SettingsError(
                f"issuers.{other_name}.{key}: issuers.{name} is for people too, and one tenant could come "
                "from both; give each a list of tenants of its own."
            )
        if shared := set(one.tenants) & set(other.tenants):
            raise SettingsError(
                f"issuers.{other_name}.tenants: issuers.{name} is for people of {min(shared)} too; "
                "a tenant has one issuer for people."
            )
