"""The process in numbers, for Prometheus. Every label has a closed set of values, and none of them is a principal, a
room, a run or anybody's words: what is in no set counts as `other`."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter as Tally
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from ulid_transform import ulid_to_timestamp

from ..commands.ports import EventRow
from ..commands.signals import Signal
from ..domain.conversations.events import CONVERSATION_EVENTS
from ..domain.conversations.inspections import AUDIT_EVENTS
from ..domain.conversations.turn_events import TURN_EVENTS
from ..domain.deliveries.events import DELIVERY_EVENTS
from ..domain.events import Origin, Unstorable
from ..domain.jsontext import Reason
from ..domain.linking.events import ACCOUNT_EVENTS
from ..domain.principals import Principal
from ..domain.rooms.approval_events import ApprovalDecided, ApprovalOutcome
from ..domain.rooms.events import ROOM_EVENTS, DriverMoved, DriverReason, RunEnded
from .census import CensusCollector
from .problems import STATUS

M = TypeVar("M", Counter, Histogram)

_Children = dict[tuple[str, ...], M]

OTHER = "other"
"""The value of a label for what is in none of its sets."""

APPEND_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
FAN_OUT_S = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
DECISION_S = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600)
"""Upper ends of the histograms' buckets, in seconds."""

EVENT_TYPES = sorted(
    {
        each.type
        for registry in (ROOM_EVENTS, CONVERSATION_EVENTS, TURN_EVENTS, AUDIT_EVENTS, DELIVERY_EVENTS, ACCOUNT_EVENTS)
        for each in registry.declared
    }
)

APPEND_ERRORS = ("unavailable", "conflict", "invalid", "internal")

VIEWER, BRIDGE, LISTENER, INBOX = "viewer", "bridge", "listener", "inbox"
KINDS = (VIEWER, BRIDGE, LISTENER, INBOX)
"""Of streams: a room's viewers and bridges, those who follow a conversation, and inboxes."""

CLIENT_GONE = "client_gone"
ENDS = (
    *("room_closed", "removed", "run_ended", "lease_lost", "server_stopping", "token_expired", "max_age"),
    *("conversation_closed", "not_found"),
    *("slow_consumer", "send_timeout", "read_failed", "failed", CLIENT_GONE),
)
"""Why a stream ended: the reason of its last frame, or what kept that frame from being written."""

STALLS = ("lost", "never_joined", "stuck", "slow_consumer")
"""How a bridge stood still: silent for too long, never there, stuck by its own word, or not reading its stream."""

STUBS = (*get_args(Reason), "key_collision", "secret", "oversize")
"""Why a bridge's item is a placeholder in the log."""

DECIDERS = ("human", "system")

SIGNALS: dict[Signal, str] = {
    "link_attempt": "Steps of a link that somebody tried, by how they ended.",
    "authz_decision": "Messages from channels, by whether they may be acted on.",
    "delivery_scheduled": "Destinations of answers, by whether something goes there.",
    "delivery_attempt": "Sends of a part of a delivery, by how they ended.",
    "retry": "Attempts that failed and come again.",
    "replay": "Replays that an operator asked for.",
    "dead_letter": "Deliveries that became dead letters.",
}
"""Counters of commands/signals.py. Their channels are of the settings, their outcomes and reasons codes of ours."""

MAX_SERIES = 500
"""Series of one of them; what would be one more counts as `other`."""


class Metrics:
    """Of one process. Nothing here raises or waits. rules: ids of the redaction rules that the server works with."""

    def __init__(self, rules: Collection[str] = ()) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._census: CensusCollector | None = None
        self._appended = _closed(
            self._counter("events_appended", "Events that commands of this process appended.", "type", "origin"),
            EVENT_TYPES,
            get_args(Origin),
        )
        self._append_s = self._histogram(
            "append_seconds", "From a command's append to its commit, the wait for the group included.", APPEND_S
        )
        self._append_errors = _closed(
            self._counter("append_errors", "Appends that ended in an error, by its code.", "code"), APPEND_ERRORS
        )
        self._fan_out_s = self._histogram(
            "fan_out_lag_seconds",
            "From the recording of an event to its handing to the viewers here, by the two clocks.",
            FAN_OUT_S,
        )
        connections = Gauge("minutebook_connections", "Open streams.", ["kind"], registry=self.registry)
        self._connections = {kind: connections.labels(kind) for kind in KINDS}
        self._ended = _closed(
            self._counter("connections_ended", "Streams that ended, and why.", "kind", "reason"),
            KINDS,
            ENDS,
        )
        self._decision_s = _closed(
            self._histogram(
                "decision_seconds", "From a request for approval to what became of it.", DECISION_S, "decision", "by"
            ),
            get_args(ApprovalOutcome),
            DECIDERS,
        )
        self._driver_changes = _closed(
            self._counter("driver_changes", "Moves of a driver token, by how it moved.", "reason"),
            get_args(DriverReason),
        )
        self._redactions = _closed(
            self._counter("redactions", "Appended events out of which a rule took something.", "rule"), rules
        )
        self._refused = _closed(
            self._counter("refused", "Requests and tool calls that were refused, by the code of the answer.", "reason"),
            STATUS,
        )
        self._stalls = _closed(
            self._counter("bridge_stalls", "Bridges that stood still, and how it showed.", "reason"), STALLS
        )
        self._stubs = _closed(
            self._counter("bridge_stubs", "Items of bridges that are placeholders in the log.", "reason"), STUBS
        )
        self._signals = {
            signal: self._counter(signal, words, "channel", "outcome", "reason") for signal, words in SIGNALS.items()
        }
        self._series: dict[Signal, set[tuple[str, str, str]]] = {signal: set() for signal in SIGNALS}

    def gauges(self, read: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """Add gauges that are read when scraped: name to help and function."""
        for name, (words, function) in read.items():
            Gauge(f"minutebook_{name}", words, registry=self.registry).set_function(function)

    def issuers(self, ages: Callable[[], Mapping[str, float]]) -> None:
        """Add the age of each issuer's keys. ages: seconds by the issuer's name in the settings."""
        self.registry.register(_KeyAges(ages))

    def census(self, collector: CensusCollector) -> None:
        """Add the figures of the whole deployment."""
        self._census = collector
        self.registry.register(collector)

    async def text(self) -> bytes:
        """Everything, in Prometheus' text format; for a scrape on the loop."""
        if self._census is not None:
            await self._census.look()
        return generate_latest(self.registry)

    def appended(self, rows: Sequence[EventRow], events: Sequence[tuple[Principal, Any]]) -> None:
        """See commands.ports.Watch."""
        for kind, count in Tally((row.type, row.origin) for row in rows).items():
            _child(self._appended, *kind).inc(count)
        for row in rows:
            for rule in row.redactions:
                _child(self._redactions, rule).inc()
        for actor, event in events:
            self._note(actor, event)

    def _note(self, actor: Principal, event: Any) -> None:
        match event:
            case Unstorable(body=body):
                reason = "oversize" if body.get("oversize") is True else str(body.get("reason"))
                _child(self._stubs, reason).inc()
            case DriverMoved(reason=reason):
                _child(self._driver_changes, reason).inc()
            case RunEnded(reason=reason) if reason in STALLS:
                _child(self._stalls, reason).inc()
            case ApprovalDecided(approval_id=asked, decision=decision):
                # A request's id is the ULID that it was asked under, so it has the time.
                took_s = max(0.0, time.time() - ulid_to_timestamp(asked) / 1000)
                _child(self._decision_s, decision, actor.kind).observe(took_s)
            case _:
                pass

    def append_took(self, seconds: float, code: str | None) -> None:
        """An append came to its end. code: of the error, where it was one."""
        self._append_s.observe(seconds)
        if code is not None:
            _child(self._append_errors, code).inc()

    def fanned_out(self, ts: str) -> None:
        """Events of which the first was recorded at `ts` (RFC 3339) were handed to the viewers of their room."""
        self._fan_out_s.observe(max(0.0, time.time() - datetime.fromisoformat(ts).timestamp()))

    def refused(self, code: str) -> None:
        """A request or a tool call was refused."""
        _child(self._refused, code).inc()

    def signal(self, signal: Signal, channel: str, outcome: str, reason: str) -> None:
        """One of SIGNALS has happened."""
        labels, known = (channel, outcome, reason), self._series[signal]
        if labels not in known:
            if len(known) >= MAX_SERIES:
                labels = (OTHER, OTHER, OTHER)
            known.add(labels)
        self._signals[signal].labels(*labels).inc()

    @contextlib.contextmanager
    def connection(self, kind: str, reason: Callable[[], str]) -> Generator[None]:
        """Counts a stream for as long as the block runs, and what `reason` says at its end. Synchronous at the end, as
        all clean-up of a stream is (fault B28)."""
        self._connections[kind].inc()
        try:
            yield
        finally:
            self._connections[kind].dec()
            ended = reason()
            _child(self._ended, kind, ended).inc()
            if kind == BRIDGE and ended == "slow_consumer":
                _child(self._stalls, ended).inc()

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"minutebook_{name}", words, labels, registry=self.registry)

    def _histogram(self, name: str, words: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"minutebook_{name}", words, labels, buckets=buckets, registry=self.registry)


def _closed(metric: M, *values: Iterable[str]) -> _Children[M]:
    """The children of a metric by the values of its labels, made beforehand: a rate wants its zero to be there."""
    return {key: metric.labels(*key) for key in itertools.product(*((*each, OTHER) for each in values))}


def _child(children: _Children[M], *key: str) -> M:
    """The child of those values; what is in no set counts as `other`."""
    found = children.get(key)
    if found is not None:
        return found
    known = [{values[place] for values in children} for place in range(len(key))]
    return children[tuple(value if value in known[place] else OTHER for place, value in enumerate(key))]


class _KeyAges(Collector):
    """How old the keys of each issuer are; infinite before the first good fetch."""

    def __init__(self, ages: Callable[[], Mapping[str, float]]) -> None:
        self._ages = ages

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """See prometheus_client."""
        family = GaugeMetricFamily(
            "minutebook_jwks_age_seconds", "Since the last good fetch of an issuer's keys.", labels=["issuer"]
        )
        for name, age_s in self._ages().items():
            family.add_metric([name], age_s)
        yield family
