"""Rooms with two people who may decide, and their decisions over HTTP at any of the servers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from bridges import Bridge
from live_server import LiveServer, open_room

APPROVERS = ("anna", "abel")
WORDS = ("approved", "denied")
"""What each of them says."""


def approved_room(server: LiveServer, **approvals: Any) -> Bridge:
    """The bridge of a running run in alice's room, where anna and abel may decide; `approvals` as a room's."""
    members = [{"principal": f"human:{name}", "role": "watcher", "approver": True} for name in APPROVERS]
    return Bridge(server, open_room(server.member("alice"), members=members, approvals=approvals)).hello()


def decide(client: httpx.Client, room: str, asked: dict[str, Any], decision: str = "approved") -> httpx.Response:
    """Decide a request."""
    body = {"decision": decision, "actionDigest": asked["actionDigest"]}
    return client.post(f"/v1/rooms/{room}/approvals/{asked['approvalId']}/decision", json=body)


def at_once(pool: ThreadPoolExecutor, *calls: Callable[[], httpx.Response]) -> list[httpx.Response]:
    """The answers of calls that begin at the same instant."""
    start = threading.Barrier(len(calls))

    def begin(call: Callable[[], httpx.Response]) -> httpx.Response:
        start.wait(10)
        return call()

    return list(pool.map(begin, calls))


def both_decide(
    pool: ThreadPoolExecutor, clients: list[httpx.Client], room: str, asked: dict[str, Any]
) -> tuple[str, int]:
    """Both decide at the same instant; the decision that won, and whose it was. The other one is told of it."""
    first, second = at_once(
        pool,
        lambda: decide(clients[0], room, asked, WORDS[0]),
        lambda: decide(clients[1], room, asked, WORDS[1]),
    )
    winner = 0 if first.status_code == 200 else 1
    won, lost = (first, second) if winner == 0 else (second, first)
    assert (won.status_code, won.json()["decision"]) == (200, WORDS[winner]), (won.text, lost.text)
    assert (lost.status_code, lost.json()["code"]) == (409, "already_decided"), lost.text
    assert lost.json()["decision"] == WORDS[winner]
    return WORDS[winner], winner


def approvers_at(*servers: LiveServer) -> list[httpx.Client]:
    """The two approvers, each at a server."""
    return [server.client(f"human:{name}") for name, server in zip(APPROVERS, servers, strict=True)]


def decisions(bridge: Bridge) -> list[dict[str, Any]]:
    """All decisions in the room's log."""
    return [event for event in bridge.log() if event["type"] == "approval_decided"]
