"""The settings: precedence, types, impossible combinations, secrets; every refusal names its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from minutebook.infra.setting_keys import SettingDoc, describe
from minutebook.infra.settings import Settings, SettingsError, is_loopback, parse_duration
from minutebook.infra.settings_load import load

SECRET = "postgresql://app:hunter2@db.example/minutebook"

CORP = """
[issuers.corp]
issuer = "https://id.example"
audience = "minutebook"
jwksUrl = "https://id.example/jwks"
kind = "human"
tenants = ["acme"]
"""
RUNS = """
[issuers.runs]
issuer = "https://runs.example"
audience = "minutebook"
jwksFile = "runs.json"
kind = "agent"
subPattern = 'run/(?P<run>[a-z2-7]{8})'
tenants = ["acme"]
"""


def loaded(folder: Path, toml: str = "", env: dict[str, str] | None = None, **overrides: Any) -> Settings:
    (folder / "minutebook.toml").write_text(toml, encoding="utf-8")
    return load(folder, env or {}, {key.replace("__", "."): value for key, value in overrides.items()})


def refusal(folder: Path, toml: str = "", env: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(folder, toml, env)
    return str(caught.value)


def test_without_file_and_environment_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(tmp_path / "absent", {})
    assert settings.data_dir == tmp_path / "absent"
    assert (settings.server.host, settings.server.port, settings.server.workers) == ("127.0.0.1", 8080, 1)
    assert settings.server.allowed_hosts == ("127.0.0.1", "localhost")
    assert settings.server.drain_seconds == 8
    assert settings.database.url is None
    assert (settings.database.pool_size, settings.database.statement_timeout_ms) == (10, 10_000)
    assert settings.issuers == {}
    assert settings.groups.member == "agents-member"
    assert (settings.limits.body_bytes, settings.limits.room_events) == (131_072, 100_000)
    assert settings.retention.default_days == 90
    assert settings.is_development


def test_the_data_directory_is_the_argument_then_the_variable_then_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    env = {"MINUTEBOOK_DATA_DIR": str(tmp_path / "named")}
    assert load(tmp_path, env).data_dir == tmp_path
    assert load(None, env).data_dir == tmp_path / "named"
    assert load(None, {}).data_dir.name == "minutebook"
    with pytest.raises(SettingsError, match="MINUTEBOOK_DATA_DIR"):
        load(None, {"MINUTEBOOK_DATA_DIR": ""})
    assert "MINUTEBOOK_DATA_DIR" in refusal(tmp_path, 'dataDir = "elsewhere"')


def test_an_override_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    toml = "[server]\nport = 1001\nworkers = 2\nhost = '127.0.0.2'"
    env = {"MINUTEBOOK_SERVER_PORT": "1002", "MINUTEBOOK_SERVER_WORKERS": "3"}
    settings = loaded(tmp_path, toml, env, server__port=1003, server__workers=None)
    assert (settings.server.port, settings.server.workers, settings.server.host) == (1003, 3, "127.0.0.2")


def test_the_config_variable_names_a_file_that_must_be_there(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    env = {"MINUTEBOOK_CONFIG": str(other)}
    assert "MINUTEBOOK_CONFIG" in refusal(tmp_path, "", env)
    other.write_text("[server]\nport = 1234", encoding="utf-8")
    assert loaded(tmp_path, "[server]\nport = 1", env).server.port == 1234
    assert "MINUTEBOOK_CONFIG" in refusal(tmp_path, "", {"MINUTEBOOK_CONFIG": ""})
    assert "MINUTEBOOK_CONFIG" in refusal(tmp_path, "", {"MINUTEBOOK_CONFIG": str(tmp_path)})


@pytest.mark.parametrize("body", [b"[database]\nurl = postgresql://app:hunter2@db", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_stops_without_showing_it(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "minutebook.toml").write_bytes(body)
    with pytest.raises(SettingsError, match=r"minutebook\.toml") as caught:
        load(tmp_path, {})
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        ("colour = 1", "colour"),
        ("[server]\nprot = 1", "server.prot"),
        ("[server]\nallowed_hosts = ['a']", "server.allowed_hosts"),
        ("[surver]\nport = 1", "surver"),
        (CORP + "jwks = 'x'", "issuers.corp.jwks"),
        ("[tools.vault]\npyhton = 'm:f'", "tools.vault.pyhton"),
        ("[limits]\nbodyByte = 1", "limits.bodyByte"),
    ],
)
def test_an_unknown_key_stops_with_its_name(tmp_path: Path, toml: str, name: str) -> None:
    message = refusal(tmp_path, toml)
    assert message.startswith(f"{name} is not a setting")
    assert "correct or remove it" in message


def test_a_near_miss_is_suggested(tmp_path: Path) -> None:
    assert "did you mean port?" in refusal(tmp_path, "[server]\nprot = 1")
    assert "did you mean MINUTEBOOK_SERVER_PORT?" in refusal(tmp_path, "", {"MINUTEBOOK_SERVER_PROT": "1"})


@pytest.mark.parametrize(
    "name",
    ["MINUTEBOOK_PORT", "MINUTEBOOK_ISSUERS_CORP_ISSUER", "MINUTEBOOK_CLEARANCE_GROUPS", "MINUTEBOOK_"],
)
def test_an_unknown_variable_stops_with_its_name(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path, "", {name: "1", "OTHER_VARIABLE": "kept out"}).startswith(f"{name} is not a setting")


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        ("server = 3", "server"),
        ("[server]\nport = '8080'", "server.port"),
        ("[server]\nport = 80.0", "server.port"),
        ("[server]\nport = true", "server.port"),
        ("[server]\nport = 65536", "server.port"),
        ("[server]\nworkers = 0", "server.workers"),
        ("[server]\nworkers = 65", "server.workers"),
        ("[server]\nallowedHosts = 'localhost'", "server.allowedHosts"),
        ("[server]\nallowedHosts = ['a', 1]", "server.allowedHosts[1]"),
        ("[server]\nallowedHosts = []", "server.allowedHosts"),
        ("[server]\nallowCredentials = 1", "server.allowCredentials"),
        ("[database]\npoolSize = 1", "database.poolSize"),
        ("[database]\npoolSize = 201", "database.poolSize"),
        ("[database]\nurl = 5", "database.url"),
        ("development = 'yes'", "development"),
        ("[groups]\nadmin = ''", "groups.admin"),
        ("[retention]\ndefaultDays = 0", "retention.defaultDays"),
        ("issuers = []", "issuers"),
        ("[issuers]\ncorp = 1", "issuers.corp"),
        ("[clearance.groups]\nsec = 'secret'", "clearance.groups.sec"),
        ("[clearance.claims.dept]\nlaw = [1]", "clearance.claims.dept.law[0]"),
        ("[clearance.claims]\ndept = ['law']", "clearance.claims.dept"),
        ("[tools.vault]\ndataClass = 1", "tools.vault.dataClass"),
    ],
)
def test_a_wrong_type_or_range_stops_with_the_key(tmp_path: Path, toml: str, name: str) -> None:
    assert refusal(tmp_path, toml).startswith((f"{name}:", f"{name} must"))


LIMITS = [doc for doc in describe() if doc.key.startswith("limits.")]
ZERO_TURNS_IT_OFF = {"limits.roomToolIntervalMs"}


@pytest.mark.parametrize("doc", LIMITS, ids=lambda doc: doc.key)
def test_every_limit_has_a_range(tmp_path: Path, doc: SettingDoc) -> None:
    name = doc.key.removeprefix("limits.")
    for value in (*(() if doc.key in ZERO_TURNS_IT_OFF else (0,)), -1, 2**62):
        assert refusal(tmp_path, f"[limits]\n{name} = {value}").startswith(f"{doc.key}:")


def test_environment_values_are_read_by_the_type_of_their_key(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "",
        {
            "MINUTEBOOK_SERVER_ALLOWED_HOSTS": "a.example, b.example,",
            "MINUTEBOOK_SERVER_ALLOWED_ORIGINS": "",
            "MINUTEBOOK_SERVER_ALLOW_CREDENTIALS": "true",
            "MINUTEBOOK_SERVER_METRICS_PORT": "9100",
            "MINUTEBOOK_DATABASE_STATEMENT_TIMEOUT_MS": "500",
            "MINUTEBOOK_DEVELOPMENT": "false",
        },
    )
    assert settings.server.allowed_hosts == ("a.example", "b.example")
    assert settings.server.allowed_origins == ()
    assert settings.server.allow_credentials is True
    assert settings.server.metrics_port == 9100
    assert settings.database.statement_timeout_ms == 500
    assert not settings.is_development


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("MINUTEBOOK_SERVER_PORT", "80x", "server.port"),
        ("MINUTEBOOK_SERVER_PORT", "", "server.port"),
        ("MINUTEBOOK_SERVER_PORT", "70000", "server.port"),
        ("MINUTEBOOK_SERVER_PORT", "٣", "server.port"),
        ("MINUTEBOOK_SERVER_ALLOW_CREDENTIALS", "yes", "server.allowCredentials"),
        ("MINUTEBOOK_SERVER_ALLOWED_HOSTS", "", "server.allowedHosts"),
        ("MINUTEBOOK_DATABASE_URL", "", "database.url"),
        ("MINUTEBOOK_DEVELOPMENT", "1", "development"),
    ],
)
def test_a_bad_variable_stops_with_the_key_and_the_variable(tmp_path: Path, name: str, text: str, key: str) -> None:
    message = refusal(tmp_path, "", {name: text})
    assert message.startswith(key)
    assert name in message


@pytest.mark.parametrize(
    "doc", [doc for doc in describe() if doc.type == "integer" and doc.env], ids=lambda doc: doc.key
)
def test_every_integer_can_be_set_by_its_variable(tmp_path: Path, doc: SettingDoc) -> None:
    text = "9100" if doc.default == "unset" else doc.default
    settings = loaded(tmp_path, "", {doc.env or "": text})
    table = "".join(f"[{section}]\n{name} = {text}" for section, name in [doc.key.split(".")])
    assert loaded(tmp_path, table) == settings


def test_secrets_come_from_the_variable_that_they_name(tmp_path: Path) -> None:
    toml = "[database]\nurl = 'env:DB_URL'\nownerUrl = 'env:MINUTEBOOK_OWNER'"
    env = {"DB_URL": SECRET, "MINUTEBOOK_OWNER": SECRET + "?owner"}
    settings = loaded(tmp_path, toml, env)
    assert settings.database.url == SECRET
    assert settings.database.owner_url == SECRET + "?owner"
    assert loaded(tmp_path, "", {"MINUTEBOOK_DATABASE_URL": "env:DB_URL", "DB_URL": SECRET}).database.url == SECRET


@pytest.mark.parametrize("env", [{}, {"DB_URL": ""}])
def test_a_secret_whose_variable_is_missing_stops_with_its_key(tmp_path: Path, env: dict[str, str]) -> None:
    message = refusal(tmp_path, "[database]\nurl = 'env:DB_URL'", env)
    assert message.startswith("database.url")
    assert "DB_URL" in message


@pytest.mark.parametrize(
    "name", ["url", "ownerUrl", "projectorUrl", "retentionUrl", "auditorUrl", "eraserUrl", "listenUrl"]
)
def test_no_refusal_and_no_repr_shows_a_secret(tmp_path: Path, name: str) -> None:
    rest = "" if name == "url" else f"url = '{SECRET}'\n"
    settings = loaded(tmp_path, f"[database]\n{rest}{name} = '{SECRET}'")
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings.database.__rich_repr__())
    message = refusal(tmp_path, f"[database]\n{rest}{name} = 'mysql://app:hunter2@db'")
    assert message.startswith(f"database.{name} ")
    assert "hunter2" not in message
    referred = refusal(tmp_path, f"[database]\n{rest}{name} = 'env:X'", {"X": "mysql://app:hunter2@db"})
    assert "hunter2" not in referred


def test_a_role_url_without_the_database_url_stops(tmp_path: Path) -> None:
    assert refusal(tmp_path, f"[database]\nownerUrl = '{SECRET}'").startswith("database.ownerUrl needs")


def issuer(name: str = "corp", **changes: str | None) -> str:
    keys: dict[str, str | None] = {
        "issuer": f'"https://{name}.example"',
        "audience": '"minutebook"',
        "jwksUrl": '"https://id.example/jwks"',
        "kind": '"human"',
        "tenants": '["acme"]',
    }
    keys.update(changes)
    lines = [f"{key} = {value}" for key, value in keys.items() if value is not None]
    return "\n".join([f"[issuers.{name}]", *lines, ""])


def test_an_issuer_has_the_documented_defaults(tmp_path: Path) -> None:
    settings = loaded(tmp_path, CORP + RUNS)
    corp, runs = settings.issuers["corp"], settings.issuers["runs"]
    assert (corp.groups_claim, corp.cli_clients, corp.algorithms) == ("groups", (), ("ES256",))
    assert corp.max_lifetime_s == 86_400
    assert corp.subjects == {}
    assert runs.jwks_file == str(tmp_path / "runs.json")
    assert not settings.is_development


def test_subjects_are_a_table_or_a_list(tmp_path: Path) -> None:
    table = issuer("hooks", kind='"system"', subjects='{ "svc-1" = "launcher" }')
    listed = issuer("hooks", kind='"system"', subjects='["launcher"]')
    assert loaded(tmp_path, table).issuers["hooks"].subjects == {"svc-1": "launcher"}
    assert loaded(tmp_path, listed).issuers["hooks"].subjects == {"launcher": "launcher"}
    assert loaded(tmp_path, issuer("hooks", kind='"system"')).issuers["hooks"].subjects == {}


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        (issuer(issuer=None), "issuers.corp.issuer"),
        (issuer(audience=None), "issuers.corp.audience"),
        (issuer(kind=None), "issuers.corp.kind"),
        (issuer(kind='"person"'), "issuers.corp.kind"),
        (issuer(issuer='""'), "issuers.corp.issuer"),
        (issuer(jwksUrl=None), "issuers.corp.jwksUrl"),
        (issuer(jwksFile='"a.json"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"http://id.example/jwks"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"http://127.0.0.1.example/jwks"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"ftp://127.0.0.1/jwks"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"https://u:p@id.example/jwks"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"https:///jwks"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"https://id.example:99999/"'), "issuers.corp.jwksUrl"),
        (issuer(jwksUrl='"https://[::1/"'), "issuers.corp.jwksUrl"),
        (issuer(algorithms='["HS256"]'), "issuers.corp.algorithms"),
        (issuer(algorithms='["ES256", "none"]'), "issuers.corp.algorithms"),
        (issuer(algorithms="[]"), "issuers.corp.algorithms"),
        (issuer(maxLifetime='"1 day"'), "issuers.corp.maxLifetime"),
        (issuer(maxLifetime='"31d"'), "issuers.corp.maxLifetime"),
        (issuer(maxLifetime='"59s"'), "issuers.corp.maxLifetime"),
        (issuer(tenants=None), "issuers.corp.tenants"),
        (issuer(tenants="[]"), "issuers.corp.tenants"),
        (issuer(tenantClaim='"org"'), "issuers.corp.tenants"),
        (issuer(tenants='[" acme"]'), "issuers.corp.tenants"),
        (issuer(kind='"agent"'), "issuers.corp.subPattern"),
        (issuer(kind='"agent"', subPattern='"run/[a-z]+"'), "issuers.corp.subPattern"),
        (issuer(kind='"agent"', subPattern='"(run"'), "issuers.corp.subPattern"),
        (issuer(subPattern='"(a)"'), "issuers.corp.subPattern"),
        (issuer(subjects='["x"]'), "issuers.corp.subjects"),
        (issuer(kind='"system"', subjects='["minutebook"]'), "issuers.corp.subjects"),
        (issuer(kind='"system"', subjects='{a = "policy"}'), "issuers.corp.subjects"),
        (issuer(kind='"system"', subjects='[" x"]'), "issuers.corp.subjects"),
        (issuer("a") + issuer("b"), "issuers.b.tenants"),
        (issuer("a", tenants='["x", "y"]') + issuer("b", tenants='["y", "z"]'), "issuers.b.tenants"),
        (issuer("a", tenants=None, tenantClaim='"org"') + issuer("b"), "issuers.b.tenants"),
        (issuer("a") + issuer("b", tenants=None, tenantClaim='"org"'), "issuers.b.tenantClaim"),
        (
            issuer("a", tenants=None, tenantClaim='"org"') + issuer("b", tenants=None, tenantClaim='"org"'),
            "issuers.b.tenantClaim",
        ),
        (issuer("a") + issuer("b", issuer='"https://a.example"', tenants='["b"]'), "issuers.b.issuer"),
    ],
)
def test_an_impossible_issuer_stops_with_its_key(tmp_path: Path, toml: str, key: str) -> None:
    assert refusal(tmp_path, toml).startswith(key)


@pytest.mark.parametrize(
    "toml",
    [
        issuer("a") + issuer("b", tenants='["other"]'),
        issuer("a") + issuer("b", kind='"system"'),
        issuer("a") + issuer("b", issuer='"https://a.example"', audience='"other"', tenants='["b"]'),
        issuer(jwksUrl='"http://127.0.0.1:9/jwks"'),
        issuer(jwksUrl='"http://[::1]:9/jwks"'),
        issuer(jwksUrl='"http://localhost/jwks"'),
        issuer(algorithms='["ES384", "EdDSA", "RS256", "PS512"]', maxLifetime='"30d"'),
    ],
)
def test_issuers_that_can_live_together_load(tmp_path: Path, toml: str) -> None:
    assert loaded(tmp_path, toml).issuers


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("", True),
        ("development = true", True),
        ("development = false", False),
        ("[server]\nhost = 'localhost'", True),
        ("[server]\nhost = '::1'", True),
        ("[server]\nhost = '0.0.0.0'", False),
        ("[server]\nhost = '10.0.0.1'", False),
        (CORP, False),
        (RUNS, True),
    ],
)
def test_the_development_issuer_is_on_where_nobody_else_can_be_meant(tmp_path: Path, toml: str, expected: bool) -> None:
    assert loaded(tmp_path, toml).is_development is expected


@pytest.mark.parametrize("rest", ["[server]\nhost = '0.0.0.0'", "[server]\nhost = 'example.org'", CORP])
def test_insisting_on_the_development_issuer_elsewhere_stops(tmp_path: Path, rest: str) -> None:
    assert refusal(tmp_path, "development = true\n" + rest).startswith("development ")
    assert refusal(tmp_path, rest, {"MINUTEBOOK_DEVELOPMENT": "true"}).startswith("development ")


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[server]\nallowedHosts = ['*']", "server.allowedHosts"),
        ("[server]\nallowedHosts = ['a.example:80']", "server.allowedHosts"),
        ("[server]\nallowedHosts = ['A.example']", "server.allowedHosts"),
        ("[server]\nallowedOrigins = ['*']", "server.allowedOrigins"),
        ("[server]\nallowedOrigins = ['null']", "server.allowedOrigins"),
        ("[server]\nallowedOrigins = ['https://a.example/']", "server.allowedOrigins"),
        ("[server]\nmetricsPort = 8080", "server.metricsPort"),
        ("[server]\nmetricsPort = 0", "server.metricsPort"),
        ("[server]\nmetricsPort = 70000", "server.metricsPort"),
        ("[limits]\ntextBytes = 65536\npayloadBytes = 1024", "limits.textBytes"),
        ("[clearance.groups]\nsec = ['']", "clearance.groups.sec"),
        ("[clearance.claims.dept]\nlaw = [' x']", "clearance.claims.dept.law"),
        ("[clearance.claims.groups]\nsec = ['x']", "clearance.claims.groups"),
        ("[clearance.tenants.acme.groups]\nsec = ['']", "clearance.tenants.acme.groups.sec"),
        ("[clearance.tenants.' acme'.groups]\nsec = ['x']", "clearance.tenants"),
        ("[clearance]\npython = 'cleared'", "clearance.python"),
        ("[clearance]\npython = 'm:f'\ngroups = {a = ['b']}", "clearance.python"),
        ("[clearance.tenants.acme]\npython = 'm:f'\nclaims = {a = {b = ['c']}}", "clearance.tenants.acme.python"),
        ("[tools.vault]\ndataClass = ' '", "tools.vault.dataClass"),
    ],
)
def test_other_impossible_values_stop_with_their_key(tmp_path: Path, toml: str, key: str) -> None:
    assert refusal(tmp_path, toml).startswith(key)


def test_hosts_origins_clearance_and_tools_are_read(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
        [server]
        allowedHosts = ["::1", "a.example"]
        allowedOrigins = ["https://a.example", "http://[::1]:8080"]
        [clearance]
        groups = { sec = ["secret"] }
        claims = { dept = { law = ["privileged"] } }
        [tools.vault]
        dataClass = "secret"
        """,
    )
    assert settings.clearance.groups == {"sec": ("secret",)}
    assert settings.clearance.claims == {"dept": {"law": ("privileged",)}}
    assert settings.tools["vault"].data_class == "secret"


def test_the_reference_has_every_key_with_its_variable() -> None:
    docs = {doc.key: doc for doc in describe()}
    assert docs["database.url"].env == "MINUTEBOOK_DATABASE_URL"
    assert docs["database.url"].secret
    assert docs["server.allowedHosts"].env == "MINUTEBOOK_SERVER_ALLOWED_HOSTS"
    assert docs["server.allowedHosts"].default == '["127.0.0.1","localhost"]'
    assert docs["issuers.<name>.kind"].env is None
    assert docs["issuers.<name>.kind"].default == "required"
    assert docs["dataDir"].env == "MINUTEBOOK_DATA_DIR"
    assert docs["clearance.claims"].env is None
    assert not docs["server.port"].secret
    assert all(doc.doc for doc in docs.values())


def test_durations_have_one_unit() -> None:
    assert [parse_duration(text) for text in ("30s", "15m", "24h", "90d")] == [30, 900, 86_400, 7_776_000]
    for text in ("", "24", "h", "-1h", "1.5h", "24 h", "24H", "1h30m", "24h\n", "٣h", "1" * 10 + "s"):
        with pytest.raises(ValueError, match="whole number"):
            parse_duration(text)


def test_loopback_is_this_machine_only() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.0.1", "::1", "localhost", "LOCALHOST"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "localhost.example", ""))  # noqa: S104
