"""The poster of verdicts: one comment a verdict on a pull request, through a GitHub-compatible API."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

import msgspec
import structlog

from ..commands.jobs import Refused, TryAgain
from ..commands.outward import NotPosted, Posted, Verdict
from .outward_http import MaybeSent, OutwardClient
from .pull_requests import PullRequest, comment_body, marker, pull_request
from .settings_outward import VerdictSettings

PAGE_SIZE = 100
MAX_PAGES = 30
"""Pages of comments that are looked through; a pull request with more of them since the verdict gets none."""

MAX_PAGE_BYTES = 32 << 20
"""Largest page: so many comments of the most that a forge takes."""

MAX_ANSWER_BYTES = 1 << 20
MAX_URL_CHARS = 2048

SKEW = timedelta(days=1)
"""A comment of a verdict cannot be older than the verdict; so much the clocks may differ."""

SETTLE_S = 30.0
"""After a call whose fate is unknown, so long is waited before the comment is looked for: the other side may still be
at it."""

log = structlog.get_logger(__name__)


class _Author(msgspec.Struct):
    login: str


class _Comment(msgspec.Struct):
    id: int
    body: str | None = None
    html_url: str | None = None
    user: _Author | None = None


class GitHubVerdicts:
    """Looks for the comment of a verdict by its marker, and writes it where it is not there.

    `author` is the login that the token writes as; None asks the API once. Where the API does not tell (it does not for
    every kind of token), a marker counts whoever wrote it: nothing is posted twice, but somebody who may comment there
    and knows room and seq beforehand could keep a verdict away.
    """

    def __init__(
        self, base_url: str, token: str, client: OutwardClient, *, author: str | None = None, settle_s: float = SETTLE_S
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client
        self._author = author
        self._knows_author = author is not None
        self._settle_s = settle_s
        self._headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
        }

    @classmethod
    def of(cls, settings: VerdictSettings) -> GitHubVerdicts | None:
        """None where no poster is configured."""
        if settings.base_url is None or settings.token is None:
            return None
        client = OutwardClient(settings.timeout_s, allow_private=settings.allow_loopback)
        return cls(settings.base_url, settings.token, client, author=settings.author)

    async def post(self, verdict: Verdict) -> Posted | NotPosted:
        """See commands.outward.VerdictPoster.

        Reasons of NotPosted: `no_pull_request`, `too_many_comments`, and those of OutwardClient.call.
        """
        target = pull_request(verdict.task_url, verdict.repository)
        if target is None:
            return NotPosted("no_pull_request")
        try:
            await self._learn_author()
            found = await self._find(target, verdict)
            return found or await self._write(target, verdict)
        except Refused as error:
            return NotPosted(error.reason)

    async def close(self) -> None:
        """Close its connections."""
        await self._client.close()

    async def _learn_author(self) -> None:
        if self._knows_author:
            return
        try:
            answer = await self._client.call(
                "GET", f"{self._base_url}/user", headers=self._headers, max_bytes=MAX_ANSWER_BYTES
            )
            self._author = msgspec.json.decode(answer.body, type=_Author).login
        except (Refused, msgspec.DecodeError, UnicodeDecodeError):
            log.warning("the author of verdicts is not known; set verdicts.author")
        self._knows_author = True

    async def _find(self, target: PullRequest, verdict: Verdict) -> Posted | None:
        since = (datetime.fromisoformat(verdict.ts) - SKEW).strftime("%Y-%m-%dT%H:%M:%SZ")
        seen = set[int]()
        for page in range(1, MAX_PAGES + 1):
            query = urlencode({"per_page": PAGE_SIZE, "page": page, "since": since})
            answer = await self._client.call(
                "GET",
                f"{self._base_url}{target.comments_path}?{query}",
                headers=self._headers,
                max_bytes=MAX_PAGE_BYTES,
            )
            comments = _comments(answer.body)
            for comment in comments:
                if self._is_ours(comment, verdict):
                    return Posted(_url(comment.html_url, verdict))
            new = {comment.id for comment in comments} - seen
            if len(comments) < PAGE_SIZE or not new:  # an API without pages answers the same again
                return None
            seen |= new
        raise Refused("too_many_comments")

    def _is_ours(self, comment: _Comment, verdict: Verdict) -> bool:
        """At the very beginning only: a summary that quotes the marker of another verdict must not stand for it."""
        if not (comment.body or "").startswith(marker(verdict.room, verdict.seq)):
            return False
        if self._author is None:
            return True
        return comment.user is not None and comment.user.login.lower() == self._author.lower()

    async def _write(self, target: PullRequest, verdict: Verdict) -> Posted:
        try:
            answer = await self._client.call(
                "POST",
                f"{self._base_url}{target.comments_path}",
                headers={**self._headers, "content-type": "application/json"},
                content=msgspec.json.encode({"body": comment_body(verdict)}),
                max_bytes=MAX_ANSWER_BYTES,
            )
            comment = msgspec.json.decode(answer.body, type=_Comment)
        except MaybeSent as error:
            raise TryAgain(error.reason, max(self._settle_s, error.after_s or 0)) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TryAgain("answer_unreadable", self._settle_s) from None
        except Refused as error:
            if error.reason in ("answer_unreadable", "answer_too_large"):
                raise TryAgain(error.reason, self._settle_s) from None  # it said yes, and then something else
            raise
        return Posted(_url(comment.html_url, verdict))


def _comments(body: bytes) -> list[_Comment]:
    """Those that can be read: one that cannot is none of ours, and must not keep a verdict away. Raises TryAgain where
    it is no list of them: something between here and there spoke."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = None
    if not isinstance(document, list):
        raise TryAgain("answer_unreadable")
    found: list[_Comment] = []
    for each in cast("list[Any]", document):
        try:
            found.append(msgspec.convert(each, _Comment))
        except msgspec.ValidationError:
            found.append(_Comment(-len(found) - 1))
    return found


def _url(text: str | None, verdict: Verdict) -> str:
    """The comment's address, the pull request's where the API's is none: it goes into the room's log."""
    try:
        parts = urlsplit(text or "")
        if parts.scheme in ("http", "https") and parts.hostname and len(text or "") <= MAX_URL_CHARS:
            return text or ""
    except ValueError:
        pass
    return verdict.task_url
