"""Which pull request a run is about, and the comment that carries a verdict there; text in, text out."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from ..commands.outward import Verdict

MAX_QUOTE_CHARS = 8192
"""The most that is quoted of a summary; the rest is left out with a word."""

_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,98}[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_SCP = re.compile(r"(?:[A-Za-z0-9._-]+@)([A-Za-z0-9.-]+):([^:]*)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_FENCE = re.compile(r"`{3,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]")


class PullRequest(NamedTuple):
    """A pull request of a repository at the configured API."""

    owner: str
    name: str
    number: int

    @property
    def comments_path(self) -> str:
        """The path of its comments below the API's base URL."""
        return f"/repos/{self.owner}/{self.name}/issues/{self.number}/comments"


class Repository(NamedTuple):
    """host: in lower case, None where the room does not say."""

    host: str | None
    owner: str
    name: str


def pull_request(task_url: str, repository: str) -> PullRequest | None:
    """The pull request that `task_url` (`https://host/owner/name/pull/7`) is, if it is one of the room's repository."""
    home = parse_repository(repository)
    try:
        parts = urlsplit(task_url)
        host = parts.hostname
    except ValueError:
        return None
    if home is None or parts.scheme != "https" or host is None or parts.username is not None:
        return None
    match parts.path.removesuffix("/").split("/"):
        case ["", owner, name, "pull", number] if _NUMBER.fullmatch(number):
            found = _repository(host, owner, name)
        case _:
            return None
    if found is None or (home.host is not None and home.host != found.host):
        return None
    if (home.owner.lower(), home.name.lower()) != (found.owner.lower(), found.name.lower()):
        return None
    return PullRequest(home.owner, home.name, int(number))


def parse_repository(text: str) -> Repository | None:
    """`owner/name`, `host/owner/name`, `https://host/owner/name[.git]` or `git@host:owner/name.git`; else None."""
    scp = _SCP.fullmatch(text)
    if scp is not None:
        host, path = scp[1], scp[2]
    elif "://" in text:
        try:
            parts = urlsplit(text)
            host, path = parts.hostname, parts.path
        except ValueError:
            return None
        if parts.scheme not in ("https", "http", "ssh", "git") or host is None or parts.query or parts.fragment:
            return None
    else:
        host, path = None, text
    pieces = path.strip("/").split("/")
    if host is None and len(pieces) == 3 and "." in pieces[0]:
        host, *pieces = pieces
    return _repository(host, *pieces) if len(pieces) == 2 else None


def _repository(host: str | None, owner: str, name: str) -> Repository | None:
    name = name.removesuffix(".git")
    if _OWNER.fullmatch(owner) is None or _NAME.fullmatch(name) is None or set(name) == {"."}:
        return None
    return Repository(host.lower() if host is not None else None, owner, name)


def marker(room: str, seq: int) -> str:
    """What a comment of ours begins with, so that it is found again."""
    return f"<!-- minutebook:room={room}:seq={seq} -->"


def comment_body(verdict: Verdict) -> str:
    """The comment. Of what an agent or a person wrote it has the summary alone, and that only of a public room, in a
    fence that it cannot end: there no name pings, no reference links and no markup works."""
    words = "approve" if verdict.verdict == "approve" else "request changes"
    commit = f" of `{verdict.commit}`" if _COMMIT.fullmatch(verdict.commit) else ""
    lines = [marker(verdict.room, verdict.seq), f"**Review verdict: {words}**{commit}", ""]
    if verdict.is_public and verdict.summary.strip():
        lines += [_fenced(verdict.summary), ""]
    return "\n".join([*lines, f"Room `{verdict.room}`, entry {verdict.seq}."])


def _fenced(text: str) -> str:
    text = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    if len(text) > MAX_QUOTE_CHARS:
        text = text[:MAX_QUOTE_CHARS] + "\n[...]"
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text.rstrip()}\n{fence}"
