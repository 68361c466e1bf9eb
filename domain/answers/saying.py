"""What an answer says on a channel: the reply with the question before it, a pointer, or a short notice."""

from __future__ import annotations

from msgspec import UNSET, Struct

from ..conversations.events import ReplyRecorded, UserRecorded
from ..deliveries.events import PartKind
from .events import Form


class Saying(Struct, frozen=True):
    """One part: its kind, and its text without secrets."""

    kind: PartKind
    text: str


def sayings(
    form: Form,
    conversation_id: str,
    user: UserRecorded,
    reply: ReplyRecorded | None,
    *,
    echo: bool,
    is_group: bool = False,
) -> tuple[Saying, ...]:
    """The parts, in the order of sending. reply: None of a message that was not taken up. is_group: they go to the
    shared chat where it was asked."""
    if form == "pointer":
        return (pointer(conversation_id, is_group=is_group),)
    said = _answer(user, reply)
    question = "" if user.text is UNSET or user.is_erased else user.text
    return (Saying("echo", question), *said) if echo and question else said


def pointer(conversation_id: str, *, is_group: bool = False) -> Saying:
    """That there is an answer, and where. is_group: said where others read it, so that it names nothing."""
    if is_group:
        return Saying("pointer", "There is an answer that this chat may not carry. Ask in a private chat.")
    return Saying("pointer", f"There is an answer that this channel may not carry. Read it in {conversation_id}.")


def _answer(user: UserRecorded, reply: ReplyRecorded | None) -> tuple[Saying, ...]:
    if reply is None:
        why = "" if user.reason is UNSET else f" ({user.reason})"
        return (Saying("notice", f"Your message was not taken up{why}."),)
    if reply.status == "failed":
        why = "" if reply.reason is UNSET else f" ({reply.reason})"
        return (Saying("notice", f"There is no answer: the turn failed{why}."),)
    text = reply.text.strip()
    said = (Saying("reply", reply.text),) if text else ()
    if reply.status == "interrupted":
        return (*said, Saying("notice", "The answer was interrupted."))
    return said or (Saying("notice", "The answer has no text."),)
