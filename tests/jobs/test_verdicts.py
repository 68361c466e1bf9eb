"""Verdicts on pull requests: the one that the run was registered for, one comment ever, and nothing that pings."""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from minutebook.commands.jobs import TryAgain
from minutebook.commands.outward import NotPosted, Posted, Verdict
from minutebook.infra.outward_http import OutwardClient
from minutebook.infra.pull_requests import PullRequest, comment_body, marker, parse_repository, pull_request
from minutebook.infra.verdict_poster import MAX_PAGES, PAGE_SIZE, GitHubVerdicts
from outside import (
    Forge,
    Mischief,
    Reply,
    Request,
    garbage,
    huge,
    lost_after,
    lost_before,
    serving,
    status,
)

PULL = "https://github.com/acme/widget/pull/7"


def verdict(**fields: Any) -> Verdict:
    values: dict[str, Any] = {
        "room": "aaaaaaaa",
        "seq": 12,
        "ts": "2026-01-02T03:04:05.000006Z",
        "task_url": PULL,
        "repository": "acme/widget",
        "verdict": "approve",
        "commit": "abcdef1",
        "summary": "Looks right.",
        "is_public": True,
    }
    return Verdict(**{**values, **fields})


@pytest.fixture
def forge() -> Iterator[Forge]:
    outside = Forge()
    with serving(outside):
        yield outside


def poster(forge: Forge, token: str = "right", author: str | None = None) -> GitHubVerdicts:  # noqa: S107
    return GitHubVerdicts(
        forge.url + "/", token, OutwardClient(2, allow_private=True), author=author, settle_s=0.5
    )  # fmt: skip


def post(forge: Forge, what: Verdict | None = None, **options: Any) -> Posted | NotPosted:
    """As a job's attempt in a new process."""

    async def body() -> Posted | NotPosted:
        found = poster(forge, **options)
        try:
            return await found.post(what or verdict())
        finally:
            await found.close()

    return asyncio.run(body())


def posts(forge: Forge) -> list[Request]:
    return [request for request in forge.requests if request.method == "POST"]


# Which pull request


@pytest.mark.parametrize(
    "repository",
    [
        "acme/widget",
        "ACME/Widget",
        "github.com/acme/widget",
        "https://github.com/acme/widget",
        "https://GitHub.com/acme/widget.git",
        "https://github.com/acme/widget/",
        "git@github.com:acme/widget.git",
        "ssh://git@github.com/acme/widget.git",
    ],
)
@pytest.mark.parametrize("task_url", [PULL, PULL + "/", "https://github.com/Acme/WIDGET/pull/7?x=1#note"])
def test_a_pull_request_of_the_rooms_repository(repository: str, task_url: str) -> None:
    found = pull_request(task_url, repository)
    assert found is not None
    assert (found.owner.lower(), found.name.lower(), found.number) == ("acme", "widget", 7)
    assert found.comments_path.lower() == "/repos/acme/widget/issues/7/comments"


@pytest.mark.parametrize(
    "task_url",
    [
        "https://github.com/acme/other/pull/7",
        "https://github.com/evil/widget/pull/7",
        "https://github.com/acme/widget/issues/7",
        "https://github.com/acme/widget/pull/0",
        "https://github.com/acme/widget/pull/07",
        "https://github.com/acme/widget/pull/7/files",
        "https://github.com/acme/widget/pull/7%2F..",
        "https://github.com/acme/widget/pull/99999999999",
        "https://github.com/acme/widget/pull/\u0667",
        "https://github.com//acme/widget/pull/7",
        "https://github.com/x/../acme/widget/pull/7",
        "http://github.com/acme/widget/pull/7",
        "https://github.com@evil.example/acme/widget/pull/7",
        "https://me@github.com/acme/widget/pull/7",
        "https://[::1/acme/widget/pull/7",
        "acme/widget/pull/7",
        "",
    ],
)
def test_anything_else_is_no_pull_request_of_it(task_url: str) -> None:
    assert pull_request(task_url, "acme/widget") is None


@pytest.mark.parametrize(
    "host", ["https://evil.example/acme/widget", "git@evil.example:acme/widget", "evil.example/acme/widget"]
)
def test_the_host_counts_where_the_room_names_one(host: str) -> None:
    assert pull_request(PULL, host) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "widget", "a/b/c", "../..", "acme/..", "acme/.", "-a/b", "a b/c", "acme/w?x"),
        *("https://h/acme/w?x=1", "file:///acme/w", "https://h/a/b/c"),
    ],
)
def test_a_repository_that_is_none(text: str) -> None:
    assert parse_repository(text) is None
    assert pull_request(PULL, text) is None


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_leads_elsewhere_or_breaks_it(task_url: str, repository: str) -> None:
    for repo in (repository, "acme/widget"):
        found = pull_request(task_url, repo)
        if found is not None:
            assert re.fullmatch(r"/repos/[A-Za-z0-9-]+/[A-Za-z0-9._-]+/issues/[1-9]\d*/comments", found.comments_path)


# What is written


def test_the_comment_of_a_public_room_quotes_the_summary() -> None:
    assert comment_body(verdict()) == (
        "<!-- minutebook:room=aaaaaaaa:seq=12 -->\n**Review verdict: approve** of `abcdef1`\n\n"
        "```text\nLooks right.\n```\n\nRoom `aaaaaaaa`, entry 12."
    )


def test_the_comment_of_another_room_has_no_word_of_it() -> None:
    body = comment_body(verdict(is_public=False, verdict="changes", summary="SECRET plan", commit="not a commit @all"))
    assert "SECRET" not in body
    assert "@all" not in body
    assert "**Review verdict: request changes**\n" in body


PIECES = [*"`~@#<>!-/*_[]()\\\n\r\t ab\u2028\u202e\x00", "```", "\n```\n", "\n~~~\n", "<!--", "-->", "\n\n    "]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_no_summary_gets_out_of_its_fence(summary: str) -> None:
    tokens = MarkdownIt("commonmark").parse(comment_body(verdict(summary=summary)))
    kinds = [token.type for token in tokens]
    paragraph = ["paragraph_open", "inline", "paragraph_close"]
    quoted = ["fence"] if summary.strip() else []
    assert kinds in (
        ["html_block", *paragraph, *quoted, *paragraph],
        ["html_block", *quoted, *paragraph],  # the marker's line and the next are one block of HTML
    )
    assert "\x00" not in comment_body(verdict(summary=summary))


def test_a_summary_of_many_fences_and_a_long_one() -> None:
    body = comment_body(verdict(summary="`````\n@acme/all fixes #1\n`````"))
    assert "``````text\n`````\n@acme/all fixes #1\n`````\n``````" in body
    assert len(comment_body(verdict(summary="x" * 100_000))) < 9000


# One comment


def test_a_verdict_is_posted_once_however_often_it_is_tried(forge: Forge) -> None:
    first = post(forge)
    assert first == Posted("https://forge.example/c/1")
    for _ in range(3):
        assert post(forge) == first
    assert [comment["body"] for comment in forge.comments] == [comment_body(verdict())]
    assert post(forge, verdict(seq=13)) == Posted("https://forge.example/c/2")
    since = {request.query.get("since") for request in forge.requests if "comments" in request.path} - {None}
    assert since == {"2026-01-01T03:04:05Z"}


@pytest.mark.parametrize("mischief", [lost_after, garbage, huge])
def test_an_answer_that_is_lost_after_the_post_makes_no_second_comment(forge: Forge, mischief: Mischief) -> None:
    forge.troubles = lambda request: request.method == "POST"
    forge.mischief = [mischief]
    with pytest.raises(TryAgain) as caught:
        post(forge)
    assert caught.value.after_s is not None
    assert caught.value.after_s >= 0.5
    assert post(forge) == Posted("https://forge.example/c/1")
    assert len(forge.comments) == len(posts(forge)) == 1


def test_an_answer_that_is_slower_than_the_patience(forge: Forge) -> None:
    go = threading.Event()

    def slow(_request: Request, honest: Any) -> Reply:
        reply = honest()
        go.wait(20)
        return reply

    forge.troubles = lambda request: request.method == "POST"
    forge.mischief = [slow]
    with pytest.raises(TryAgain, match="timeout"):
        post(forge)
    go.set()
    assert isinstance(post(forge), Posted)
    assert len(forge.comments) == 1


def test_a_post_that_was_lost_on_the_way_is_made_again(forge: Forge) -> None:
    forge.troubles = lambda request: request.method == "POST"
    forge.mischief = [lost_before, status(502)]
    for _ in range(2):
        with pytest.raises(TryAgain):
            post(forge)
    assert isinstance(post(forge), Posted)
    assert len(forge.comments) == 1


@pytest.mark.parametrize("where", ["GET", "POST"])
@pytest.mark.parametrize(
    ("mischief", "reason"),
    [(status(404), "http_404"), (status(422), "http_422"), (status(401), "http_401"), (status(403), "http_403"),
     (status(301, location="https://elsewhere.example/"), "redirected")],
)  # fmt: skip
def test_a_refusal_is_final_and_posts_nothing(forge: Forge, where: str, mischief: Mischief, reason: str) -> None:
    forge.troubles = lambda request: request.method == where and "comments" in request.path
    forge.mischief = [mischief]
    assert post(forge) == NotPosted(reason)
    assert forge.comments == []


@pytest.mark.parametrize("where", ["GET", "POST"])
@pytest.mark.parametrize(
    ("mischief", "reason", "after_s"),
    [(status(429, retry_after="40"), "rate_limited", 40), (status(500), "server_error", None)],
)
def test_patience_where_it_is_asked_for(
    forge: Forge, where: str, mischief: Mischief, reason: str, after_s: float | None
) -> None:
    forge.troubles = lambda request: request.method == where
    forge.mischief = [mischief]
    with pytest.raises(TryAgain) as caught:
        post(forge)
    assert caught.value.reason == reason
    assert after_s is None or caught.value.after_s == after_s
    assert isinstance(post(forge), Posted)


def test_comments_that_cannot_be_read_hold_the_post_up(forge: Forge) -> None:
    forge.troubles = lambda request: request.method == "GET" and "comments" in request.path
    forge.mischief = [garbage, lambda _request, _honest: Reply(200, b'{"message": "come back later"}'), huge]
    for _ in range(2):
        with pytest.raises(TryAgain, match="answer_unreadable"):
            post(forge)
    assert post(forge) == NotPosted("answer_too_large")
    assert forge.comments == []


def test_a_wrong_token_and_a_wrong_pull_request(forge: Forge) -> None:
    assert post(forge, token="wrong") == NotPosted("http_401")
    assert post(forge, verdict(task_url="https://github.com/acme/other/pull/7")) == NotPosted("no_pull_request")
    assert len(forge.comments) == 0


# Whose comment it is


def test_the_marker_is_looked_for_on_every_page(forge: Forge) -> None:
    for number in range(3 * PAGE_SIZE + 5):
        forge.add(f"comment {number}", "somebody")
    forge.add(comment_body(verdict()))
    forge.add("the last", "somebody")
    assert isinstance(post(forge), Posted)
    assert posts(forge) == []


def test_more_comments_than_are_looked_through_post_nothing(forge: Forge) -> None:
    for number in range(MAX_PAGES * PAGE_SIZE):
        forge.add(f"{number}", "somebody")
    assert post(forge) == NotPosted("too_many_comments")
    assert posts(forge) == []


def test_an_api_without_pages_is_read_once(forge: Forge) -> None:
    for number in range(PAGE_SIZE):
        forge.add(f"{number}", "somebody")
    forge.troubles = lambda request: request.method == "GET" and "comments" in request.path

    def all_again(request: Request, honest: Any) -> Reply:
        request.query["page"] = "1"
        return honest()

    forge.mischief = [all_again] * 5
    assert isinstance(post(forge), Posted)
    assert sum(request.method == "GET" and "comments" in request.path for request in forge.requests) == 2


def test_somebody_elses_marker_does_not_keep_a_verdict_away(forge: Forge) -> None:
    forge.add(comment_body(verdict()), "mallory")
    assert post(forge) == Posted("https://forge.example/c/2")
    assert isinstance(post(forge, author="Minutebook-Bot"), Posted)
    assert len(forge.comments) == 2


def test_where_the_author_is_not_known_any_marker_counts(forge: Forge) -> None:
    forge.tells_author = False
    forge.add(comment_body(verdict()), "mallory")
    assert post(forge) == Posted("https://forge.example/c/1")
    # Named in the settings it is known.
    assert post(forge, author=Forge.LOGIN) == Posted("https://forge.example/c/2")


def test_a_quoted_marker_of_another_verdict_does_not_stand_for_it(forge: Forge) -> None:
    assert isinstance(post(forge, verdict(seq=11, summary=marker("aaaaaaaa", 12) + "\n# approved")), Posted)
    assert post(forge) == Posted("https://forge.example/c/2")


def test_a_strange_comment_is_none_of_ours(forge: Forge) -> None:
    forge.comments += [{"id": "x"}, {"id": 2, "body": None, "user": None}, {"id": 3, "body": 7}]  # pyright: ignore[reportArgumentType]
    assert isinstance(post(forge), Posted)


def test_an_address_that_is_none_becomes_that_of_the_pull_request(forge: Forge) -> None:
    forge.troubles = lambda request: request.method == "POST"

    def odd(_request: Request, honest: Any) -> Reply:
        honest()
        return Reply(201, b'{"id": 1, "html_url": "javascript:alert(1)"}')

    forge.mischief = [odd]
    assert post(forge) == Posted(PULL)


@pytest.mark.parametrize("seed", range(20))
def test_any_run_of_bad_luck_leaves_one_comment_at_most(forge: Forge, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    luck = [lost_before, lost_after, garbage, status(429), status(502), lambda _request, honest: honest()]
    forge.mischief = [chance.choice(luck) for _ in range(12)]
    for _ in range(30):
        try:
            outcome = post(forge)
        except TryAgain:
            continue
        if isinstance(outcome, Posted):
            break
    assert len(forge.comments) <= 1
    assert PullRequest("acme", "widget", 7).comments_path in {request.path for request in forge.requests}
