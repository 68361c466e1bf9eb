"""The settings of what rooms tell the outside: the launcher of runs, notices to people, verdicts on pull requests."""

from __future__ import annotations

from typing import Annotated, get_args

from msgspec import Meta

from ..commands.outward import NoticeKind
from .settings_section import SecretSection, parse_duration

NonEmpty = Annotated[str, Meta(min_length=1)]


class OutwardSection(SecretSection, frozen=True):
    """Base of those that call somebody."""

    allow_loopback: Annotated[
        bool,
        Meta(description="Whether it may be on this machine or in a private network, and then speak plain http."),
    ] = False
    timeout: Annotated[str, Meta(description="Longest wait for an answer; 1s to 20s.")] = "10s"

    @property
    def timeout_s(self) -> int:
        """`timeout` in seconds."""
        return parse_duration(self.timeout)


class LauncherSettings(OutwardSection, frozen=True):
    """`[launcher]`: who starts runs. Without it the answer of a started run has its claim, to start it by hand."""

    url: Annotated[NonEmpty | None, Meta(description="Webhook that is told of a run to start; https.")] = None
    secret: Annotated[
        NonEmpty | None,
        Meta(description="Secret of its signatures, `whsec_` and base64 (Standard Webhooks).", extra={"secret": True}),
    ] = None


class NotifySettings(OutwardSection, frozen=True):
    """`[notify]`: who tells people that a room needs them."""

    url: Annotated[NonEmpty | None, Meta(description="Webhook that is told; https.")] = None
    secret: Annotated[
        NonEmpty | None,
        Meta(description="Secret of its signatures, `whsec_` and base64 (Standard Webhooks).", extra={"secret": True}),
    ] = None
    public_url: Annotated[
        NonEmpty | None, Meta(description="Where people reach this server; the link of a notice begins so.")
    ] = None
    events: Annotated[tuple[NoticeKind, ...], Meta(min_length=1, description="What is told of.")] = get_args(NoticeKind)


class VerdictSettings(OutwardSection, frozen=True):
    """`[verdicts]`: where verdicts become comments on pull requests."""

    base_url: Annotated[
        NonEmpty | None, Meta(description="A GitHub-compatible API, such as https://api.github.com.")
    ] = None
    token: Annotated[
        NonEmpty | None, Meta(description="Token that may read and write comments.", extra={"secret": True})
    ] = None
    author: Annotated[
        NonEmpty | None,
        Meta(description="Login that the token writes as, where the API does not tell it (`GET /user`)."),
    ] = None
