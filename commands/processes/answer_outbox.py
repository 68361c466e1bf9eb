"""The process of answers: the end of a turn is a wake-up for whoever resolves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct

from ...domain.conversations.events import ReplyRecorded, UserRecorded
from ..jobs import JobRequest
from ..ports import StoredEvent

ANSWERS = "answers"
"""Name of the job, and its key: whoever takes it takes all that is due, so that of any number of turns that end at once
one job waits, and of those that nobody routes nothing is left but a look."""


class _Peek(Struct, frozen=True):
    status: str = ""


class AnswerOutbox:
    """See commands.jobs.Process. Which of the turns have an answer on its way the log's own transaction has written
    down; what is asked for here is only to look."""

    name: ClassVar[str] = "answers"
    kinds: ClassVar[tuple[str, ...]] = ("conversation",)
    types: ClassVar[tuple[str, ...]] = (UserRecorded.type, ReplyRecorded.type)

    def react(self, stream: str, event: StoredEvent) -> Sequence[JobRequest]:  # noqa: ARG002 - the shape of Process
        """See commands.jobs.Process. A question that was taken up has no answer yet."""
        if event.type == UserRecorded.type and _status(event) != "rejected":
            return ()
        return (JobRequest(ANSWERS, ANSWERS),)


def _status(event: StoredEvent) -> str:
    try:
        return msgspec.json.decode(event.payload, type=_Peek).status
    except msgspec.MsgspecError:
        return ""  # not one of ours
