"""What Prometheus would see: one scrape as figures by name and labels."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
from live_server import NO_TLS
from prometheus_client.parser import text_string_to_metric_families

Key = tuple[str, tuple[tuple[str, str], ...]]


class Scrape:
    """One scrape of a URL."""

    def __init__(self, url: str) -> None:
        text = httpx.get(f"{url}/metrics", verify=NO_TLS, timeout=20).raise_for_status().text
        self.samples: dict[Key, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value

    def get(self, name: str, **labels: str) -> float:
        """A figure by its name without the prefix; KeyError where there is none."""
        return self.samples[f"minutebook_{name}", tuple(sorted(labels.items()))]

    def own(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """All that are ours, by their names without the prefix."""
        for (name, labels), value in self.samples.items():
            if name.startswith("minutebook_"):
                yield name.removeprefix("minutebook_"), dict(labels), value
