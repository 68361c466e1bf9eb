"""The process in numbers, for Prometheus. No label ever holds a principal, a room or words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector


def make_registry(gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> CollectorRegistry:
    """A registry of the process figures and of gauges that are read when scraped: name to (help, function)."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for name, (words, read) in gauges.items():
        Gauge(f"minutebook_{name}", words, registry=registry).set_function(read)
    return registry
