"""The settings of channels, of who may write over them, and of how payloads are kept (delivery.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from ..domain.principals import DEFAULT_TENANT
from .settings_conversations import key_bytes
from .settings_section import SecretSection, Section, parse_duration

NonEmpty = Annotated[str, Meta(min_length=1)]
ChannelKind = Literal["web", "webhook", "telegram", "slack", "email"]
Scope = Literal["per_user", "per_user_per_conversation", "per_conversation"]
InGroup = Literal["mention_only", "command_only", "mention_or_command", "all"]

DEFAULT_BASE_URLS: dict[str, str] = {"telegram": "https://api.telegram.org", "slack": "https://slack.com/api"}
"""Where the services are, by kind of channel."""

NAMES = 1000
"""Ids or values of one list."""


class AllowRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """One rule of an allowlist that is a table: exactly one of its members is set; `claim` and `values` are one.

    It answers ALLOW, DENY or ABSTAIN. inherit and open may stand inside anyOf and allOf, too.
    """

    native_ids: Annotated[tuple[NonEmpty, ...], Meta(min_length=1, max_length=NAMES)] | None = None
    claim: NonEmpty | None = None
    values: Annotated[tuple[NonEmpty, ...], Meta(min_length=1, max_length=NAMES)] | None = None
    any_of: Annotated[tuple[str | AllowRule, ...], Meta(min_length=1, max_length=64)] | None = None
    all_of: Annotated[tuple[str | AllowRule, ...], Meta(min_length=1, max_length=64)] | None = None
    python: NonEmpty | None = None


Allowlist = str | AllowRule
"""`inherit`, `open` or a rule; the loader has checked that a text is one of the two."""


class NamedIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One destination of `responseTarget` identities."""

    channel: NonEmpty
    native_id: NonEmpty


class TargetRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A `responseTarget` that is a table; the form that a turn's has (http.md)."""

    kind: Literal["originating", "active", "channel", "channels", "identities", "all_linked", "none"]
    channel: NonEmpty | None = None
    channels: Annotated[tuple[NonEmpty, ...], Meta(min_length=1, max_length=NAMES)] | None = None
    identities: Annotated[tuple[NamedIdentity, ...], Meta(min_length=1, max_length=NAMES)] | None = None
    echo_input: bool = False


class AuthorizationSettings(Section, frozen=True):
    """`[authorization]`: what channels inherit."""

    allowlist: Annotated[
        Allowlist | None,
        Meta(description="Who may write over channels whose allowlist is inherit: open, or a rule as they have it."),
    ] = None


class DeliverySettings(SecretSection, frozen=True):
    """`[delivery]`: how payloads are kept until they are out, and to how many an answer goes."""

    payload_key: Annotated[
        NonEmpty | None,
        Meta(
            description="Encrypts payloads at rest: base64 of 32 random bytes. Without it they are kept in the clear.",
            extra={"secret": True},
        ),
    ] = None
    previous_payload_keys: Annotated[
        tuple[NonEmpty, ...],
        Meta(max_length=16, description="Earlier keys, which still decrypt; the newest first.", extra={"secret": True}),
    ] = ()
    fan_out: Annotated[int, Meta(ge=1, le=1000, description="Destinations of one answer.")] = 25
    pushes_per_hour: Annotated[
        int,
        Meta(ge=1, le=100_000, description="Answers to one recipient an hour, those in the chat that asked left out."),
    ] = 60
    continuation_ttl: Annotated[
        str, Meta(description="How long the outcome of a background turn is told after its end; 1s to 30d.")
    ] = "24h"
    inbox_ttl: Annotated[
        str, Meta(description="How long what lies in an inbox stays there, read or not; 1m to 365d.")
    ] = "30d"
    payload_ttl: Annotated[str, Meta(description="How long a payload is kept after its delivery's end; 1m to 30d.")] = (
        "24h"
    )
    dead_payload_ttl: Annotated[
        str, Meta(description="Likewise of a dead delivery, which may be replayed; 1m to 90d.")
    ] = "14d"
    attempts_ttl: Annotated[
        str, Meta(description="How long a delivery's record with its attempts is kept once it is over; 1d to 3650d.")
    ] = "90d"
    inbound_ttl: Annotated[
        str,
        Meta(description="How long a message that came in, and a signature that is spent, is known again; 7d to 365d."),
    ] = "30d"
    replay_window: Annotated[
        str, Meta(description="How long after its death a delivery may be replayed; 1m to 90d.")
    ] = "7d"
    order_window: Annotated[
        str,
        Meta(
            description="How long a delivery that waits holds back later ones of its conversation and destination; 1s"
            " to 24h."
        ),
    ] = "10m"

    @property
    def continuation_ttl_s(self) -> int:
        """`continuationTtl` in seconds."""
        return parse_duration(self.continuation_ttl)

    @property
    def inbox_ttl_s(self) -> int:
        """`inboxTtl` in seconds."""
        return parse_duration(self.inbox_ttl)

    @property
    def payload_keys(self) -> tuple[bytes, ...]:
        """The keys, the one that encrypts first; empty where none is set. The loader has checked them."""
        held = (*((self.payload_key,) if self.payload_key else ()), *self.previous_payload_keys)
        return tuple(key_bytes(each) for each in held)


class RetrySettings(Section, frozen=True):
    """`[channels.<name>.retry]`: between two attempts a random part of a wait that grows from `from` to `to`, by the
    same factor each time."""

    attempts: Annotated[int, Meta(ge=1, le=100, description="Attempts of one part; at most 1000 of a delivery.")] = 8
    first: Annotated[str, Meta(description="Longest wait after the first attempt; 1s to 24h.")] = field(
        default="1s", name="from"
    )
    last: Annotated[
        str, Meta(description="Longest wait of all, but where the platform asks for more, an hour at most; 1s to 24h.")
    ] = field(default="1h", name="to")

    @property
    def first_s(self) -> int:
        """`from` in seconds."""
        return parse_duration(self.first)

    @property
    def last_s(self) -> int:
        """`to` in seconds."""
        return parse_duration(self.last)


class SmtpSettings(SecretSection, frozen=True):
    """`[channels.<name>.smtp]`: email only, the server that takes what is sent."""

    host: Annotated[str, Meta(min_length=1, description="Its name or address.")]
    port: Annotated[int, Meta(ge=1, le=65535, description="Its port.")] = 587
    tls: Annotated[
        Literal["starttls", "tls", "none"],
        Meta(description="starttls, tls from the first byte, or none, which needs allowLoopback."),
    ] = "starttls"
    user: Annotated[NonEmpty | None, Meta(description="Whom it knows us as.")] = None
    password: Annotated[NonEmpty | None, Meta(description="The password of user.", extra={"secret": True})] = None
    ca_file: Annotated[
        NonEmpty | None, Meta(description="Certificates to trust instead of the system's, PEM, absolute path.")
    ] = None


class ChannelSettings(SecretSection, frozen=True):
    """`[channels.<name>]`: a way in and out for people who are elsewhere. One that has inboundSecret receives."""

    kind: Annotated[ChannelKind, Meta(description="What it speaks.")]
    tenant: Annotated[str, Meta(min_length=1, description="Whose it is.")] = DEFAULT_TENANT
    agent: Annotated[
        NonEmpty | None,
        Meta(description="Who answers there; unset: the only agent, or echo on a development server without agents."),
    ] = None
    tier: Annotated[
        NonEmpty | None, Meta(description="How confidential the channel is; a name of your own for the link policy.")
    ] = None
    clearance: Annotated[
        tuple[NonEmpty, ...], Meta(max_length=NAMES, description="Labels that it may carry; unrestricted ones always.")
    ] = ()
    require_link: Annotated[bool, Meta(description="Whether only linked identities may talk to the agent.")] = False
    allowlist: Annotated[
        Allowlist,
        Meta(
            description="Who may write: inherit (of [authorization]), open, or one of { nativeIds = [...] },"
            " { claim = ..., values = [...] }, { anyOf = [...] }, { allOf = [...] }, { python = ... }."
        ),
    ] = "inherit"
    conversation_scope: Annotated[Scope, Meta(description="What of a person and a chat makes one conversation.")] = (
        "per_user_per_conversation"
    )
    accept_in_group: Annotated[InGroup, Meta(description="Which messages of a group are for the agent.")] = (
        "mention_only"
    )
    background: Annotated[bool, Meta(description="Whether its turns run in the background, unless they say.")] = False
    response_target: Annotated[
        str | TargetRule,
        Meta(description="Where answers go, unless a turn says: originating, active, all_linked, none, or a table."),
    ] = "originating"
    token: Annotated[
        NonEmpty | None,
        Meta(description="telegram, slack: the bot's token, which sends.", extra={"secret": True}),
    ] = None
    secret: Annotated[
        NonEmpty | None,
        Meta(description="webhook: signs what is sent; `whsec_` and base64.", extra={"secret": True}),
    ] = None
    inbound_secret: Annotated[
        NonEmpty | None,
        Meta(
            description="Proves what comes in. webhook: `whsec_` and base64; telegram: the secret token of the bot's"
            " webhook; slack: the signing secret; email: the bearer token of who hands mail over.",
            extra={"secret": True},
        ),
    ] = None
    url: Annotated[NonEmpty | None, Meta(description="webhook: where it is sent to; https.")] = None
    base_url: Annotated[
        NonEmpty | None, Meta(description="telegram, slack: where the service is, instead of its own address.")
    ] = None
    allow_loopback: Annotated[
        bool,
        Meta(description="Whether it may be on this machine or in a private network, and then speak without TLS."),
    ] = False
    bot_name: Annotated[
        NonEmpty | None,
        Meta(description="telegram: the bot's user name, as people mention it; slack: the bot's user id."),
    ] = None
    workspace: Annotated[NonEmpty | None, Meta(description="slack: the only team whose events count, by id.")] = None
    authserv_id: Annotated[
        NonEmpty | None,
        Meta(description="email: who checks DMARC, as its Authentication-Results header begins."),
    ] = None
    sender: Annotated[NonEmpty | None, Meta(description="email: the address that it writes from.")] = field(
        default=None, name="from"
    )
    smtp: SmtpSettings | None = None
    lanes: Annotated[int, Meta(ge=1, le=64, description="Deliveries to one destination at once.")] = 4
    rate_per_second: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None, Meta(description="Most sends a second; no limit when unset.")
    ] = None
    attempt_timeout: Annotated[str, Meta(description="Longest attempt; 1s to 60s.")] = "10s"
    retry: RetrySettings = RetrySettings()
    expiry: Annotated[str, Meta(description="After so long a delivery that is not out is given up; 1m to 30d.")] = "24h"

    @property
    def attempt_timeout_s(self) -> int:
        """`attemptTimeout` in seconds."""
        return parse_duration(self.attempt_timeout)

    @property
    def expiry_s(self) -> int:
        """`expiry` in seconds."""
        return parse_duration(self.expiry)

    @property
    def receives(self) -> bool:
        """Whether people can write over it."""
        return self.inbound_secret is not None

    @property
    def pushes(self) -> bool:
        """Whether something can be sent over it."""
        has = {
            "web": True,
            "webhook": self.url is not None,
            "email": self.smtp is not None,
        }
        return has.get(self.kind, self.token is not None)

    @property
    def service_url(self) -> str:
        """Where a service with an API is, without a slash at its end."""
        return (self.base_url or DEFAULT_BASE_URLS.get(self.kind, "")).rstrip("/")

    def emitted_claims(self) -> frozenset[str]:
        """Claims that the channel itself verifies, without a link."""
        return frozenset({"email"} if self.kind == "email" else ())


def rules_in(allowlist: Allowlist | None) -> list[Any]:
    """Every text and rule of an allowlist, at any depth, the outer before the inner."""
    found: list[Any] = [] if allowlist is None else [allowlist]
    for each in found:
        if isinstance(each, AllowRule):
            found.extend((*(each.any_of or ()), *(each.all_of or ())))
    return found
