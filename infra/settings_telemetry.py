"""The settings of traces (delivery.md, Operators)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .settings_section import SecretSection, parse_duration

NonEmpty = Annotated[str, Meta(min_length=1)]


class TelemetrySettings(SecretSection, frozen=True):
    """`[telemetry]`: who collects the traces of deliveries. Without a URL there are none."""

    otlp_url: Annotated[
        NonEmpty | None,
        Meta(description="Where traces go by OTLP over HTTP, such as https://collector.example/v1/traces."),
    ] = None
    authorization: Annotated[
        NonEmpty | None,
        Meta(description="The Authorization header that the collector wants.", extra={"secret": True}),
    ] = None
    allow_loopback: Annotated[
        bool,
        Meta(description="Whether it may be on this machine or in a private network, and then speak plain http."),
    ] = False
    timeout: Annotated[str, Meta(description="Longest wait for the collector; 1s to 20s.")] = "5s"

    @property
    def timeout_s(self) -> int:
        """`timeout` in seconds."""
        return parse_duration(self.timeout)
