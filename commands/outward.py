"""What rooms tell the outside, as ports: a run to start, a notice to a person, a verdict for its pull request."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from msgspec import Struct

NoticeKind = Literal["approval_pending", "room_waiting", "run_ended", "run_handed_over"]
"""What a person may want to be told (rooms.md, HTTP)."""


class Launch(Struct, frozen=True):
    """A run to start. claim: what its bridge needs to take the room. brief: what it starts from. Both plain JSON."""

    room: str
    run_id: str
    role: str
    claim: Any
    brief: Any


class Launcher(Protocol):
    """Starts runs; the server itself starts no process."""

    async def launch(self, launch: Launch) -> None:
        """Hand a run over. The same run may be handed over again; its webhook-id stays.

        Raises TryAgain where the launcher could not be reached or asked for patience, Refused where it will not.
        """
        ...


class Notice(Struct, frozen=True):
    """Something that a person should look at. No text of the room: ids only. ts: RFC 3339, of the event.

    is_silence: nothing came after that event for long.
    """

    kind: NoticeKind
    room: str
    seq: int
    ts: str
    run_id: str | None = None
    approval_id: str | None = None
    is_silence: bool = False


class Notifier(Protocol):
    """Tells people, somewhere else, that a room needs them."""

    async def notify(self, notice: Notice) -> None:
        """Tell it. The same notice may be told again; its webhook-id stays. Raises TryAgain and Refused."""
        ...


class Verdict(Struct, frozen=True):
    """A reviewer's verdict. task_url: as the run was registered. repository: the room's.

    ts: RFC 3339, of the event. The summary leaves the house only where the room is public.
    """

    room: str
    seq: int
    ts: str
    task_url: str
    repository: str
    verdict: Literal["approve", "changes"]
    commit: str
    summary: str
    is_public: bool


class Posted(Struct, frozen=True):
    """The comment is there."""

    url: str


class NotPosted(Struct, frozen=True):
    """The comment will never be there. reason: a stable code."""

    reason: str


class VerdictPoster(Protocol):
    """Writes verdicts under pull requests."""

    async def post(self, verdict: Verdict) -> Posted | NotPosted:
        """Make sure that the one comment of this verdict is there: looked for first, then written.

        Calls for one verdict must not overlap. Raises TryAgain, also where it is unknown whether it was written.
        """
        ...
