"""Launcher and notifier: signed as receivers verify it, repeated under one id, with nothing that need not go."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from minutebook.commands.jobs import Refused, TryAgain
from minutebook.commands.outward import Launch, Notice
from minutebook.infra.launcher import WebhookLauncher
from minutebook.infra.notifier import WebhookNotifier
from minutebook.infra.settings import Settings, SettingsError
from minutebook.infra.settings_load import load
from minutebook.infra.settings_outward import LauncherSettings, NotifySettings
from minutebook.infra.webhooks import MAX_BODY_BYTES
from outside import SECRET, Outside, Reply, huge, now, serving, status
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

OTHER = "whsec_" + base64.b64encode(b"fedcba9876543210fedcba9876543210").decode()
LAUNCH = Launch("aaaaaaaa", "bbbbbbbb", "reviewer", {"room": "aaaaaaaa", "ünï": "c\u0000\u2028ode"}, "the brief")
NOTICE = Notice("approval_pending", "aaaaaaaa", 7, "2026-01-02T03:04:05.000006Z", "bbbbbbbb", "cccccccc")


@pytest.fixture
def receiver() -> Iterator[Outside]:
    with serving(Outside(lambda _: Reply(202))) as outside:
        yield outside


def launch(url: str, what: Launch = LAUNCH, clock: Any = now, **settings: Any) -> None:
    options = {"url": url, "secret": SECRET, "allow_loopback": True, **settings}

    async def body() -> None:
        launcher = WebhookLauncher.of(LauncherSettings(**options), clock)
        assert launcher is not None
        try:
            await launcher.launch(what)
        finally:
            await launcher.close()

    asyncio.run(body())


def notify(url: str, *notices: Notice, **settings: Any) -> None:
    options = {
        "url": url,
        "secret": SECRET,
        "allow_loopback": True,
        "public_url": "https://rooms.example/base/",
        **settings,
    }

    async def body() -> None:
        notifier = WebhookNotifier.of(NotifySettings(**options), now)
        assert notifier is not None
        try:
            for notice in notices:
                await notifier.notify(notice)
        finally:
            await notifier.close()

    asyncio.run(body())


def test_a_launch_is_signed_over_its_very_bytes(receiver: Outside) -> None:
    launch(receiver.url + "/start")
    (request,) = receiver.requests
    assert (request.method, request.path) == ("POST", "/start")
    said = Webhook(SECRET).verify(request.body, request.headers)
    assert said["type"] == "run.requested"
    assert said["data"] == {
        "roomId": "aaaaaaaa",
        "runId": "bbbbbbbb",
        "role": "reviewer",
        "claim": LAUNCH.claim,
        "brief": "the brief",
    }
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body + b" ", request.headers)


def test_a_repetition_has_the_id_of_the_first_try_and_a_time_of_its_own(receiver: Outside) -> None:
    launch(receiver.url)
    launch(receiver.url, clock=lambda: now() + timedelta(seconds=90))
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == "run-bbbbbbbb"
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) in (90, 91)
    Webhook(SECRET).verify(second.body, second.headers)


def test_a_launch_that_is_too_large_is_refused_before_it_is_sent(receiver: Outside) -> None:
    with pytest.raises(Refused, match="body_too_large"):
        launch(receiver.url, Launch("aaaaaaaa", "bbbbbbbb", "reviewer", {}, "x" * MAX_BODY_BYTES))
    assert receiver.requests == []


def test_what_the_launcher_answers_decides(receiver: Outside) -> None:
    receiver.mischief = [status(503, retry_after="9"), status(404), status(307, location=receiver.url), huge]
    with pytest.raises(TryAgain, match="server_error"):
        launch(receiver.url)
    with pytest.raises(Refused, match="http_404"):
        launch(receiver.url)
    with pytest.raises(Refused, match="redirected"):
        launch(receiver.url)
    launch(receiver.url)
    assert len(receiver.requests) == 4


def test_without_allow_loopback_nothing_on_this_machine_is_called(receiver: Outside) -> None:
    with pytest.raises(Refused, match="address_refused"):
        launch(receiver.url, allow_loopback=False)
    with pytest.raises(Refused, match="address_refused"):
        notify(receiver.url, NOTICE, allow_loopback=False)
    assert receiver.requests == []


def test_a_notice_has_ids_a_kind_and_a_link_and_nothing_else(receiver: Outside) -> None:
    notify(receiver.url, NOTICE, Notice("run_handed_over", "aaaaaaaa", 9, "2026-01-02T03:04:06.000000Z"))
    first, second = (Webhook(SECRET).verify(each.body, each.headers) for each in receiver.requests)
    assert first == {
        "type": "approval.pending",
        "timestamp": "2026-01-02T03:04:05.000006Z",
        "data": {
            "roomId": "aaaaaaaa",
            "seq": 7,
            "runId": "bbbbbbbb",
            "approvalId": "cccccccc",
            "url": "https://rooms.example/base/rooms/aaaaaaaa",
        },
    }
    assert (second["type"], set(second["data"])) == ("run.handed_over", {"roomId", "seq", "url"})
    ids = [each.headers["webhook-id"] for each in receiver.requests]
    assert ids == ["aaaaaaaa-7-approval_pending", "aaaaaaaa-9-run_handed_over"]


def test_a_kind_that_nobody_wants_is_not_told(receiver: Outside) -> None:
    notify(receiver.url, NOTICE, events=("run_ended",))
    assert receiver.requests == []


def test_nothing_configured_is_nothing_to_call() -> None:
    assert WebhookLauncher.of(LauncherSettings(), now) is None
    assert WebhookNotifier.of(NotifySettings(), now) is None


def loaded(tmp_path: Path, text: str, **env: str) -> Settings:
    (tmp_path / "minutebook.toml").write_text(text)
    return load(tmp_path, env)


def test_the_settings_and_their_secrets(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        f"""
        [launcher]
        url = "https://launch.example/runs?team=a"
        secret = "env:LAUNCH"
        timeout = "5s"
        [notify]
        url = "http://127.0.0.1:9/hook"
        secret = "{OTHER}"
        publicUrl = "https://rooms.example"
        events = ["run_ended", "approval_pending"]
        allowLoopback = true
        [verdicts]
        baseUrl = "https://api.forge.example"
        token = "env:TOKEN"
        author = "bot"
        """,
        LAUNCH=SECRET,
        TOKEN="t0p",
    )
    assert (settings.launcher.secret, settings.launcher.timeout_s) == (SECRET, 5)
    assert settings.notify.events == ("run_ended", "approval_pending")
    assert settings.verdicts.token == "t0p"
    shown = repr(settings)
    assert "https://launch.example" in shown
    assert not any(secret in shown for secret in (SECRET, OTHER, "t0p"))
    env = {"URL": "https://launch.example/runs?team=a", "SECRET": SECRET, "TIMEOUT": "5s"}
    by_env = loaded(tmp_path, "", **{f"MINUTEBOOK_LAUNCHER_{name}": value for name, value in env.items()})
    assert by_env.launcher == settings.launcher


HOOK = f'secret = "{SECRET}"'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[launcher]\nurl = "https://x.example"', r"launcher\.secret: set both url and secret"),
        (f"[launcher]\n{HOOK}", r"launcher\.secret: set both url and secret"),
        (f'[launcher]\nurl = "http://x.example"\n{HOOK}', r"launcher\.url must be https; .* launcher\.allowLoopback"),
        (f'[launcher]\nurl = "https://localhost/"\n{HOOK}', r"launcher\.url is on this machine: set launcher\.allow"),
        (f'[launcher]\nurl = "ftp://x.example"\n{HOOK}', r"launcher\.url must be a URL such as"),
        (f'[launcher]\nurl = "https://me:pw@x.example"\n{HOOK}', r"launcher\.url must be a URL without user"),
        (f'[launcher]\nurl = "https://x.example"\n{HOOK}\ntimeout = "1m"', r"launcher\.timeout must be 1s to 20s"),
        (f'[launcher]\nurl = "https://x.example"\n{HOOK}\ntimeout = "soon"', r"launcher\.timeout must be a whole"),
        (
            '[launcher]\nurl = "https://x.example"\nsecret = "whsec_c2hvcnQ="',
            r"launcher\.secret must be whsec_ and the",
        ),
        ('[launcher]\nurl = "https://x.example"\nsecret = "not base64!"', r"launcher\.secret must be whsec_"),
        (f'[notify]\nurl = "https://x.example"\n{HOOK}', r"notify\.publicUrl: set both url and publicUrl"),
        (f'[notify]\nurl = "https://x.example"\n{HOOK}\npublicUrl = "rooms"', r"notify\.publicUrl must be a URL"),
        (
            f'[notify]\nurl = "https://x.example"\n{HOOK}\npublicUrl = "https://r.example"\nevents = ["all"]',
            r"notify\.",
        ),
        (
            (
                f'[launcher]\nurl = "https://x.example"\n{HOOK}\n'
                f'[notify]\nurl = "https://x.example"\n{HOOK}\npublicUrl = "https://r.example"'
            ),
            r"notify\.secret must not be launcher\.secret",
        ),
        ('[verdicts]\nbaseUrl = "https://x.example"', r"verdicts\.token: set both baseUrl and token"),
        ('[verdicts]\nbaseUrl = "https://x.example/?a=b"\ntoken = "t"', r"verdicts\.baseUrl must be a URL without"),
        ('[verdicts]\nbaseUrl = "https://x.example"\ntoken = "a\\nb"', r"verdicts\.token must be visible ASCII"),
    ],
)
def test_settings_that_cannot_work_stop_the_start_without_showing_a_secret(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        loaded(tmp_path, text)
    assert SECRET not in str(caught.value)
    assert "c2hvcnQ" not in str(caught.value)
