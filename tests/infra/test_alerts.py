"""The alert rules: each fires on what it is for and on nothing else, names figures that there are, and has its page."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tree import ROOT

PROMTOOL = shutil.which("promtool")
RULES = ROOT / "infra" / "alerts" / "minutebook.yml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]
}

MINUTES = 30
"""What each series of a test is long, in steps of a minute."""

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; Debian: prometheus")


class Case(NamedTuple):
    """Series on which a rule fires at the end of MINUTES, and the same as they are on a good day."""

    bad: dict[str, str]
    good: dict[str, str]


def case(series: str, bad: str, good: str) -> Case:
    """A rule of one series."""
    return Case({series: bad}, {series: good})


def steady(value: float) -> str:
    """The same value for all the time."""
    return f"{value}x{MINUTES}"


def growing(by: float) -> str:
    """A counter that grows by so much a minute."""
    return f"0+{by}x{MINUTES}"


def slow(name: str, fast_le: str) -> Case:
    """A histogram whose observations are all above a bucket, or all in it."""

    def buckets(in_fast: float) -> dict[str, str]:
        fast, end = f'minutebook_{name}_bucket{{le="{fast_le}"}}', f'minutebook_{name}_bucket{{le="+Inf"}}'
        return {
            fast: growing(in_fast),
            f'minutebook_{name}_bucket{{le="2.5"}}': growing(60),
            end: growing(60),
        }

    return Case(buckets(0), buckets(60))


CASES: dict[str, Case] = {
    "MinutebookDown": case('up{job="minutebook", instance="a"}', steady(0), steady(1)),
    "MinutebookJobsDown": case('up{job="minutebook-jobs", instance="a"}', steady(0), steady(1)),
    "MinutebookDatabaseSilent": case("minutebook_census_age_seconds", "0+60x30", steady(2)),
    "MinutebookAppendErrors": case('minutebook_append_errors_total{code="unavailable"}', growing(30), growing(1)),
    "MinutebookAppendsSlow": slow("append_seconds", "0.5"),
    "MinutebookFanOutLate": slow("fan_out_lag_seconds", "1"),
    "MinutebookListenerDown": case("minutebook_listener_up", steady(0), steady(1)),
    "MinutebookNotificationQueueFull": case("minutebook_notification_queue_usage", steady(0.7), steady(0.01)),
    "MinutebookStreamsDropped": Case(
        {'minutebook_connections_ended_total{kind="viewer", reason="slow_consumer"}': growing(30)},
        {
            'minutebook_connections_ended_total{kind="viewer", reason="slow_consumer"}': growing(1),
            'minutebook_connections_ended_total{kind="viewer", reason="client_gone"}': growing(600),
        },
    ),
    "MinutebookApprovalWaits": case("minutebook_oldest_approval_seconds", "600+60x30", steady(600)),
    "MinutebookRefusals": Case(
        {'minutebook_refused_total{reason="internal"}': growing(30)},
        {'minutebook_refused_total{reason="not_found"}': growing(600)},
    ),
    "MinutebookBridgesStall": case('minutebook_bridge_stalls_total{reason="lost"}', growing(1), growing(0.05)),
    "MinutebookStubs": Case(
        {'minutebook_bridge_stubs_total{reason="oversize"}': growing(10)},
        {'minutebook_bridge_stubs_total{reason="secret"}': growing(10)},
    ),
    "MinutebookKeysOld": case('minutebook_jwks_age_seconds{issuer="people"}', "14000+60x30", steady(3600)),
    "MinutebookViewBehind": case('minutebook_view_lag_seconds{view="transcript"}', "0+60x30", steady(1)),
    "MinutebookStreamParked": case('minutebook_parked_streams{view="transcript"}', steady(1), steady(0)),
    "MinutebookJobsWait": case("minutebook_oldest_job_seconds", "0+60x30", steady(20)),
    "MinutebookJobFailed": case("minutebook_jobs_failed", steady(1), steady(0)),
    # The clock of a test begins at 0.
    "MinutebookSweepLate": Case(
        {
            'minutebook_sweep_last_success_timestamp_seconds{sweep="runs"}': steady(60),
            'minutebook_sweep_interval_seconds{sweep="runs"}': steady(30),
        },
        {
            'minutebook_sweep_last_success_timestamp_seconds{sweep="runs"}': "0+60x30",
            'minutebook_sweep_interval_seconds{sweep="runs"}': steady(30),
        },
    ),
}

ALIVE = {'up{job="minutebook", instance="z"}': steady(1), 'up{job="minutebook-jobs", instance="z"}': steady(1)}
"""Without them `absent` would fire on every day."""


def test_every_rule_has_a_case() -> None:
    assert CASES.keys() == ALERTS.keys()


@needs_promtool
def test_the_rules_are_well_formed() -> None:
    told = promtool("check", "rules", str(RULES))
    assert f"{len(ALERTS)} rules found" in told


@needs_promtool
def test_each_rule_fires_on_what_it_is_for_and_no_other_does(tmp_path: Path) -> None:
    tests = [scene(each.bad, {name}) for name, each in CASES.items()]
    tests += [scene(each.good, set()) for each in CASES.values()]
    tests.append(scene({}, {"MinutebookDown", "MinutebookJobsDown"}, alive={}))
    path = tmp_path / "rules.test.yml"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", str(path))


def scene(series: dict[str, str], firing: set[str], *, alive: dict[str, str] = ALIVE) -> dict[str, Any]:
    """A test of promtool: which alerts fire at the end."""
    values = {**alive, **series}
    return {
        "interval": "1m",
        "name": ", ".join(series) or "nothing is scraped",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{MINUTES}m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
            }
        ],
    }


def promtool(*arguments: str) -> str:
    """What it says; it must find nothing."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FIGURE = re.compile(r"\bminutebook_[a-z_]+")


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_names_figures_that_there_are(name: str) -> None:
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    known = set(FIGURE.findall(reference))  # a test compares that page with a scrape
    rule = ALERTS[name]
    used = set(FIGURE.findall(rule["expr"] + rule["annotations"]["description"]))
    assert {each.removesuffix("_bucket") for each in used} <= known


@pytest.mark.parametrize("name", ALERTS)
def test_a_rule_has_its_page(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("page", "ticket")
    page = ROOT / rule["annotations"]["runbook_url"]
    text = page.read_text("utf-8")
    assert f"`{name}`" in text
    for heading in ("## What it means", "## How to look", "## What to do"):
        assert heading in text


def test_no_page_is_left_over() -> None:
    pages = {f"docs/howto/runbooks/{page.name}" for page in (ROOT / "docs" / "howto" / "runbooks").glob("*.md")}
    assert pages == {rule["annotations"]["runbook_url"] for rule in ALERTS.values()}
