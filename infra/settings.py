"""The settings: one frozen typed value, the documentation of each key next to it (http.md, Settings)."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..domain.errors import Invalid
from ..domain.ids import canonical_name
from ..domain.principals import SERVER_COMPONENT, TURN_RUNNER
from .redaction.rules import Rule
from .settings_channels import AuthorizationSettings, ChannelSettings, DeliverySettings
from .settings_clearance import ClearanceSettings
from .settings_conversations import AgentSettings, ConversationSettings, ToolSettings
from .settings_linking import LinkingSettings
from .settings_outward import LauncherSettings, NotifySettings, VerdictSettings
from .settings_section import SecretSection, Section, parse_duration
from .settings_telemetry import TelemetrySettings
from .settings_timeouts import TimeoutSettings

ASYMMETRIC_ALGORITHMS = (
    *("ES256", "ES384", "ES512", "EdDSA"),
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
)
"""What an issuer may sign with. A shared secret (HS*) could forge, so it is never in this list."""

RESERVED_COMPONENTS = frozenset({SERVER_COMPONENT, "policy", TURN_RUNNER.id})
"""System principals that only the server itself writes as; no token may name them."""

ENV_PREFIX = "MINUTEBOOK_"
"""Variables with this prefix are settings; an unknown one stops the start."""

NonEmpty = Annotated[str, Meta(min_length=1)]
OwnPort = Annotated[int, Meta(ge=1, le=65535)]
IssuerKind = Literal["human", "agent", "system"]
LogLevel = Literal["debug", "info", "warning", "error"]


class SettingsError(Exception):
    """The settings stop the start. The message names the key and says what to do; it never has a secret."""


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address, without port or brackets) is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_canonical(text: str) -> bool:
    """Whether `text` is an identifier in its one canonical form (rules.md, law 22)."""
    try:
        canonical_name(text)
    except Invalid:
        return False
    return True


class ServerSettings(Section, frozen=True):
    """`[server]`"""

    host: Annotated[str, Meta(min_length=1, description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8080
    workers: Annotated[int, Meta(ge=1, le=64, description="Server processes.")] = 1
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(min_length=1, description="Host names that a request may name, without port; exact."),
    ] = ("127.0.0.1", "localhost")
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(description="Browser origins that may call, such as https://app.example; exact."),
    ] = ()
    allow_credentials: Annotated[bool, Meta(description="Whether browsers may send cookies from a listed origin.")] = (
        False
    )
    metrics_port: Annotated[OwnPort | None, Meta(description="Port of its own for /metrics.")] = None
    jobs_metrics_port: Annotated[
        OwnPort | None, Meta(description="Port of its own for the /metrics of the process of jobs.")
    ] = None
    bench_routes: Annotated[
        bool, Meta(description="Whether the no-op route of the benches is served; never in production.")
    ] = False
    log_level: Annotated[
        LogLevel,
        Meta(description="Least that is logged; `debug` has a line for each attempt of a delivery and refused token."),
    ] = "info"
    drain_seconds: Annotated[
        int, Meta(ge=0, le=600, description="How long a stopping server lets open requests finish.")
    ] = 8


class DatabaseSettings(SecretSection, frozen=True):
    """`[database]`. The URLs are secrets."""

    url: Annotated[
        str | None,
        Meta(
            description="PostgreSQL URL of the app role; without it the server runs its own PostgreSQL.",
            extra={"secret": True},
        ),
    ] = None
    owner_url: Annotated[str | None, Meta(description="URL of the role that migrates.", extra={"secret": True})] = None
    projector_url: Annotated[
        str | None, Meta(description="URL of the role that writes read models.", extra={"secret": True})
    ] = None
    retention_url: Annotated[str | None, Meta(description="URL of the role that purges.", extra={"secret": True})] = (
        None
    )
    auditor_url: Annotated[
        str | None, Meta(description="URL of the role that verifies the log.", extra={"secret": True})
    ] = None
    eraser_url: Annotated[str | None, Meta(description="URL of the role that erases.", extra={"secret": True})] = None
    listen_url: Annotated[
        str | None,
        Meta(
            description="URL for LISTEN, where url goes through a transaction pooler.",
            extra={"secret": True},
        ),
    ] = None
    pool_size: Annotated[int, Meta(ge=2, le=200, description="Connections per process.")] = 10
    statement_timeout_ms: Annotated[
        int, Meta(ge=100, le=600_000, description="Longest statement, in milliseconds.")
    ] = 10_000
    audit_feed: Annotated[bool, Meta(description="Whether the feed for auditors is on.")] = False


class OidcSettings(SecretSection, frozen=True):
    """`[issuers.<name>.oidc]`: people sign in at the issuer to link a channel; URLs are taken from nowhere else."""

    client_id: Annotated[
        str, Meta(min_length=1, description="Whom the issuer knows this server as; `aud` of its tokens.")
    ]
    authorize_url: Annotated[str, Meta(description="Where people sign in; https, or http to a loopback host.")]
    token_url: Annotated[str, Meta(description="Where a code becomes tokens; https, or http to a loopback host.")]
    redirect_url: Annotated[
        str, Meta(description="This server's own /v1/links/oidc/<name>/callback, as browsers reach it.")
    ]
    client_secret: Annotated[
        NonEmpty | None, Meta(description="The secret of clientId; unset for a public client.", extra={"secret": True})
    ] = None
    scope: Annotated[str, Meta(min_length=1, description="What is asked for; with openid in it.")] = "openid"
    claims_ttl: Annotated[
        str, Meta(description="For how long the claims of a sign-in count for what is linked by it; 1m to 30d.")
    ] = "24h"
    allow_loopback: Annotated[
        bool, Meta(description="Whether tokenUrl may be on this machine or in a private network.")
    ] = False

    @property
    def claims_ttl_s(self) -> int:
        """`claimsTtl` in seconds."""
        return parse_duration(self.claims_ttl)


class IssuerSettings(Section, frozen=True):
    """`[issuers.<name>]`: who may sign tokens, for whom, and how a token becomes a principal (rooms.md)."""

    issuer: Annotated[str, Meta(min_length=1, description="The `iss` claim, exactly.")]
    audience: Annotated[str, Meta(min_length=1, description="What the `aud` claim must hold.")]
    kind: Annotated[IssuerKind, Meta(description="What the issuer's tokens stand for.")]
    jwks_url: Annotated[
        str | None, Meta(description="Where its public keys are; https, or http to a loopback host.")
    ] = None
    jwks_file: Annotated[NonEmpty | None, Meta(description="Or a file with them, relative to the settings file.")] = (
        None
    )
    sub_pattern: Annotated[
        str | None,
        Meta(description="agent only: the whole `sub`; its group `run`, else the first, is the run id."),
    ] = None
    subjects: Annotated[
        dict[str, str],
        Meta(description="system only: `sub` to component; a list names components as they are."),
    ] = {}
    tenants: Annotated[
        tuple[str, ...],
        Meta(description="Tenants that it speaks for; with more than one the `tenant` claim chooses."),
    ] = ()
    tenant_claim: Annotated[NonEmpty | None, Meta(description="Or the claim that names the tenant.")] = None
    groups_claim: Annotated[str, Meta(min_length=1, description="The claim with the group names.")] = "groups"
    cli_clients: Annotated[
        tuple[str, ...], Meta(description="`azp` values of command-line clients, which may do less.")
    ] = ()
    algorithms: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Signature algorithms that are accepted.")
    ] = ("ES256",)
    max_lifetime: Annotated[str, Meta(description="Longest lifetime of a token; 1m to 30d.")] = "24h"
    oidc: OidcSettings | None = None

    @property
    def max_lifetime_s(self) -> int:
        """`maxLifetime` in seconds."""
        return parse_duration(self.max_lifetime)


class GroupSettings(Section, frozen=True):
    """`[groups]`: the names that the identity provider uses."""

    admin: Annotated[str, Meta(min_length=1, description="Its people own every room of their tenant.")] = "agents-admin"
    member: Annotated[
        str, Meta(min_length=1, description="Its people watch every room of their tenant and create rooms.")
    ] = "agents-member"
    auditor: Annotated[str, Meta(min_length=1, description="Its people export.")] = "agents-auditor"


class LimitSettings(Section, frozen=True):
    """`[limits]`: counted per process."""

    body_bytes: Annotated[int, Meta(ge=1024, le=16 << 20, description="Request body.")] = 131_072
    bridge_body_bytes: Annotated[int, Meta(ge=1024, le=64 << 20, description="Body of a bridge batch.")] = 2_097_152
    payload_bytes: Annotated[
        int, Meta(ge=1024, le=65_536, description="Payload of one event, as compact UTF-8 JSON.")
    ] = 65_536
    text_bytes: Annotated[int, Meta(ge=256, le=65_536, description="Text of one message, in UTF-8.")] = 16_384
    json_depth: Annotated[int, Meta(ge=8, le=256, description="Nesting of a JSON body.")] = 64
    room_events: Annotated[int, Meta(ge=10, le=10_000_000, description="Events of a room before it seals.")] = 100_000
    room_bytes: Annotated[int, Meta(ge=65_536, le=16 << 30, description="Bytes of a room before it seals.")] = (
        268_435_456
    )
    room_members: Annotated[int, Meta(ge=1, le=1000, description="People with a role in a room.")] = 20
    queued_messages: Annotated[int, Meta(ge=1, le=1000, description="Messages that wait for a room's next run.")] = 50
    pending_deliveries: Annotated[
        int, Meta(ge=1, le=1000, description="Deliveries that wait for a running run's bridge.")
    ] = 50
    waiting_runs: Annotated[
        int, Meta(ge=1, le=100, description="Runs of a room that were registered and did not say hello yet.")
    ] = 8
    actions_per_second: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Commands of one principal a second, bridges left out.")
    ] = 10
    action_burst: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Commands that a principal may send at once after a pause.")
    ] = 20
    streams_per_principal: Annotated[int, Meta(ge=1, le=100_000, description="Open event streams of a principal.")] = 10
    people_per_room: Annotated[
        int,
        Meta(ge=1, le=100_000, description="People who follow one room; driver, owners and approvers always may."),
    ] = 20
    mailbox_length: Annotated[int, Meta(ge=1, le=65_536, description="Commands that wait for one stream.")] = 256
    commands_in_flight: Annotated[int, Meta(ge=1, le=1_000_000, description="Commands under way.")] = 4096
    command_deadline_ms: Annotated[
        int, Meta(ge=100, le=300_000, description="Longest wait for a command, in milliseconds.")
    ] = 10_000
    run_requests: Annotated[
        int, Meta(ge=1, le=1000, description="Requests of one run's bridge under way, its stream among them.")
    ] = 10
    streams_per_process: Annotated[int, Meta(ge=1, le=100_000, description="Open event streams.")] = 2000
    stream_backlog_bytes: Annotated[
        int, Meta(ge=65_536, le=256 << 20, description="Unsent bytes before a slow stream is closed.")
    ] = 2_097_152
    stream_max_seconds: Annotated[int, Meta(ge=10, le=86_400, description="Life of a stream, at most its token's.")] = (
        3600
    )
    heartbeat_seconds: Annotated[
        int, Meta(ge=1, le=15, description="Seconds between the comments of an idle stream.")
    ] = 15
    cached_rooms: Annotated[int, Meta(ge=1, le=1_000_000, description="Room states kept in memory.")] = 1000
    snapshot_every: Annotated[int, Meta(ge=1, le=100_000, description="Events between two snapshots.")] = 200
    room_tool_interval_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="From one call of a run's room tools to its next, in milliseconds.")
    ] = 1000


class RetentionSettings(Section, frozen=True):
    """`[retention]`"""

    default_days: Annotated[
        int, Meta(ge=1, le=9999, description="Days that a sealed room is kept, where it does not say.")
    ] = 90


class RedactionSettings(Section, frozen=True):
    """`[redaction]`: what is taken out of everything beside what the shipped rules know (docs/redaction.md)."""

    rules: Annotated[
        NonEmpty | tuple[Rule, ...] | None,
        Meta(description="A file of more rules, relative to the settings file; or the rules, as [[redaction.rules]]."),
    ] = None

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules; the loader has read those of a file."""
        return self.rules if isinstance(self.rules, tuple) else ()


class Settings(Section, frozen=True):
    """Everything that an operator can set. Only `settings_load.load` builds it; secrets are resolved."""

    data_dir: Annotated[Path, Meta(description="Directory of the settings file, keys and the own database.")]
    config_dir: Path | None = None
    """Directory of the settings file; None where there is none. Not set by operators."""
    development: Annotated[
        bool | None,
        Meta(description="Whether the development issuer is on; unset: on loopback without a human issuer."),
    ] = None
    server: ServerSettings = ServerSettings()
    database: DatabaseSettings = DatabaseSettings()
    issuers: dict[str, IssuerSettings] = {}
    groups: GroupSettings = GroupSettings()
    conversations: ConversationSettings = ConversationSettings()
    agents: dict[str, AgentSettings] = {}
    tools: dict[str, ToolSettings] = {}
    clearance: ClearanceSettings = ClearanceSettings()
    limits: LimitSettings = LimitSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    retention: RetentionSettings = RetentionSettings()
    redaction: RedactionSettings = RedactionSettings()
    launcher: LauncherSettings = LauncherSettings()
    notify: NotifySettings = NotifySettings()
    verdicts: VerdictSettings = VerdictSettings()
    channels: dict[str, ChannelSettings] = {}
    authorization: AuthorizationSettings = AuthorizationSettings()
    linking: LinkingSettings = LinkingSettings()
    delivery: DeliverySettings = DeliverySettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @property
    def has_human_issuer(self) -> bool:
        """Whether a configured issuer speaks for people."""
        return any(issuer.kind == "human" for issuer in self.issuers.values())

    @property
    def is_development(self) -> bool:
        """Whether the development issuer is on: only on loopback, without another human issuer (rooms.md)."""
        allowed = is_loopback(self.server.host) and not self.has_human_issuer
        return allowed and self.development is not False
