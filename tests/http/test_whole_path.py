"""A person's whole path over real sockets: asks on one channel, links a second one, walks away, is answered where they
were last, once, although all processes were killed in between; then parts the two again (delivery.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inbound_scenes import Desk, inbound_desk
from live_server import until

ANSWER = " ".join(f"w{number}" for number in range(1, 31))
SLOW = "!slow 30 200"
"""An answer of six seconds."""


@pytest.fixture
def desk(new_data_dir: Callable[[], Path]) -> Iterator[Desk]:
    """A server with a channel of each kind."""
    with inbound_desk(new_data_dir()) as made:
        yield made


def answers(desk: Desk, chat: str, text: str) -> int:
    """How often a text was sent to a chat."""
    return desk.platforms.texts(chat).count(text)


def link(desk: Desk) -> None:
    """The chat of user 7 joins the account of ann, whose end is the webhook."""
    assert desk.hook(None, command="/link").json()["outcome"] == "accepted"
    told = desk.platforms.told("ann", "Your code is")
    found = re.search(r"[0-9A-Z]{4}-[0-9A-Z]{4}", told)
    assert found is not None
    assert desk.telegram(f"/link {found[0]}").status_code == 200
    confirm = re.search(r"/confirm (\w+)", desk.platforms.told("ann", "wants to be linked"))
    assert confirm is not None
    assert desk.hook(None, command=confirm[0]).json()["outcome"] == "accepted"
    desk.platforms.told("ann", "linked now")


def states(desk: Desk, correlation_id: str) -> list[tuple[str, str]]:
    """Channel and state of what was sent because of one request, as an operator sees it."""
    operator = desk.server.client("human:op", "agents-operator", tenant="acme")
    found = operator.get("/v1/ops/deliveries", params={"correlation": correlation_id})
    assert found.status_code == 200, found.text
    assert "w1 w2" not in found.text
    deliveries: list[dict[str, Any]] = found.json()["deliveries"]
    return [(each["channel"], each["state"]) for each in deliveries]


def test_asked_on_one_channel_linked_with_another_and_answered_there_once(desk: Desk) -> None:
    link(desk)
    asked = desk.hook(SLOW, background=True, responseTarget={"kind": "active"})
    assert asked.json()["outcome"] == "accepted", asked.text
    assert set(asked.json()["continuation"]) == {"token", "url", "expiresAt"}
    assert desk.telegram("on the train now").status_code == 200
    desk.platforms.told("7", "echo: on the train now")
    desk.server.kill()
    desk.server.start()
    desk.http.base_url = desk.server.url
    until(lambda: answers(desk, "7", ANSWER) > 0, 60, "the answer on the channel that was used last")
    correlation_id = asked.json()["id"]
    until(lambda: states(desk, correlation_id) == [("tg", "accepted")], 20, "one delivery, accepted")

    assert desk.telegram("/unlink").status_code == 200
    desk.platforms.told("7", "on its own again")
    again = desk.hook("and now", responseTarget={"kind": "active"})
    assert again.json()["outcome"] == "accepted"
    until(lambda: answers(desk, "ann", "echo: and now") > 0, 30, "the answer where ann is left")
    until(lambda: states(desk, again.json()["id"]) == [("hook", "accepted")], 20, "one delivery, accepted")
    assert (answers(desk, "7", ANSWER), answers(desk, "ann", ANSWER)) == (1, 0)
    assert answers(desk, "7", "echo: and now") == 0
