"""`minutebook deliveries`: what an operator sees of them, and what they do to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from delivery_office import CANARY, CHANNEL, Office, office_of
from live_server import LiveServer
from verbs import Done, verb

FINDING = 1
USAGE = 2


@pytest.fixture(scope="module")
def office(server: LiveServer) -> Iterator[Office]:
    """See office_of."""
    with office_of(server) as made:
        yield made


@pytest.fixture
def deliveries(here: list[object]) -> Any:
    """Runs a verb of `minutebook deliveries` as an operator of the tenant acme."""

    def run(*args: object) -> Done:
        done = verb("deliveries", *args, *here, "--tenant", "acme")
        assert CANARY not in done.out + done.err
        return done

    return run


def fine(done: Done) -> Done:
    """A verb that went well."""
    assert done.code == 0, done.said
    return done


def test_a_dead_letter_is_found_seen_and_sent_again(office: Office, deliveries: Any) -> None:
    delivery_id = office.dead()
    lines = fine(deliveries("list", "--state", "dead", "--channel", CHANNEL)).out.splitlines()
    assert [line.split() for line in lines] == [[delivery_id, "dead", CHANNEL, "attempts", "1", "gone"]]
    shown = fine(deliveries("show", delivery_id)).out
    for words in ("state        dead", "reason       gone", "destination  h:", "permanent"):
        assert words in shown, shown
    assert fine(deliveries("show", delivery_id, "--json")).json["delivery"]["id"] == delivery_id
    again = fine(deliveries("replay", delivery_id, "--reason", "mended"))
    assert f"{delivery_id} is sent again; its state is planned" in again.said
    office.receiver.troubles = lambda _request: False
    office.send()
    assert office.receiver.took[f"{delivery_id}.1"] == 1
    refused = deliveries("replay", delivery_id, "--reason", "mended", "--resend-unknown")
    assert (refused.code, "never sent again" in refused.said) == (FINDING, True), refused.said


def test_what_is_revoked_or_purged_stays_so(office: Office, deliveries: Any) -> None:
    revoked, purged = office.plan(2)
    assert f"{revoked} is revoked" in fine(deliveries("revoke", revoked, "--reason", "wrong_person")).said
    assert fine(deliveries("purge", purged, "--reason", "wrong_person", "--json")).json["state"] == "cancelled"
    assert (office.payloads(revoked), office.payloads(purged)) == (1, 0)
    assert deliveries("replay", revoked, "--reason", "please").code == FINDING


def test_a_list_goes_on_over_pages_to_its_limit(office: Office, deliveries: Any) -> None:
    ids = office.plan(105, run_id="run-of-105")
    found = fine(deliveries("list", "--run", "run-of-105", "--limit", 200, "--json")).json["deliveries"]
    assert sorted(row["id"] for row in found) == sorted(ids)
    some = fine(deliveries("list", "--run", "run-of-105", "--limit", 102))
    assert {line.split()[0] for line in some.out.splitlines()} < set(ids)
    assert len(some.out.splitlines()) == 102
    assert "more than these 102" in some.said
    assert fine(deliveries("list", "--run", "run-of-none", "--json")).json == {"deliveries": []}
    assert "No delivery is like that." in fine(deliveries("list", "--run", "run-of-none")).said


def test_who_is_no_operator_learns_it(here: list[object], server: LiveServer, deliveries: Any) -> None:
    token = server.token("human:olaf", "agents-member", tenant="acme")
    done = verb("deliveries", "list", *here, "--token", token)
    assert (done.code, "agents-operator" in done.said) == (USAGE, True), done.said
    assert deliveries("show", "nothing").code == USAGE
    assert deliveries("list", "--limit", 0).code == USAGE
    assert deliveries("list", "--state", "lost").code == USAGE


def test_channels_show_what_waits(office: Office, here: list[object]) -> None:
    office.send()
    none = fine(verb("channels", "list", *here, "--tenant", "acme"))
    assert "nothing waits" in none.said
    office.plan(2)
    lines = fine(verb("channels", "list", *here, "--tenant", "acme")).out.splitlines()
    assert lines[0].split() == ["CHANNEL", "WAITING", "OLDEST", "SHUT", "NEXT", "PROBE", "PAUSED"]
    assert lines[1].split()[:2] == [CHANNEL, "2"]
    (channel,) = fine(verb("channels", "list", *here, "--tenant", "acme", "--json")).json["channels"]
    assert (channel["waiting"], channel["breaker"]) == (2, {"shut": 0})


def test_many_are_planned_run_watched_and_stopped(office: Office, deliveries: Any) -> None:
    office.plan(3, run_id="run-of-bulk")
    made = fine(deliveries("bulk", "plan", "revoke", "--run", "run-of-bulk", "--reason", "wrong_person"))
    assert ["safe", "3"] in [line.split() for line in made.out.splitlines()]
    plan = fine(
        deliveries("bulk", "plan", "revoke", "--run", "run-of-bulk", "--reason", "wrong_person", "--json")
    ).json["planId"]
    assert f"plan {plan} runs" in fine(deliveries("bulk", "run", plan)).said
    assert "revoke running: 0 done, 0 skipped, 0 failed, 3 left" in fine(deliveries("bulk", "show", plan)).out
    assert f"plan {plan} is stopped" in fine(deliveries("bulk", "stop", plan)).said
    assert fine(deliveries("bulk", "show", plan, "--json")).json["state"] == "stopped"
    assert deliveries("bulk", "run", plan).code == FINDING
    assert deliveries("bulk", "plan", "revoke", "--reason", "everything").code == USAGE


def test_what_nobody_can_prove_is_counted(office: Office, deliveries: Any) -> None:
    assert fine(deliveries("reconcile", "--channel", CHANNEL, "--json")).json["examined"] == 0
    assert "EXAMINED" in fine(deliveries("reconcile")).out


def test_a_channel_is_paused_and_resumed(office: Office, here: list[object]) -> None:
    office.plan()
    options = (*here, "--tenant", "acme")
    fine(verb("channels", "pause", CHANNEL, "--reason", "maintenance", *options))
    assert "maintenance" in fine(verb("channels", "list", *options)).out
    fine(verb("channels", "resume", CHANNEL, "--reason", "mended", *options))
    assert "maintenance" not in fine(verb("channels", "list", *options)).out
