"""Erasure of the words of one turn of a conversation, wherever the log holds them (rules.md, law 10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ...commands.conversations.erasing import Piece
from .erasure import TAKE, Erased, eraser_session, held

_NAME = "SELECT outcome, stream_id, named_by FROM minutebook.name_words_erasure_v1(%s, %s, %s, %s, %s, %s, %s)"


class Why(Struct, frozen=True):
    """reason: without secrets; redactions: the rules that took some out of it."""

    reason: str
    redactions: list[str]


async def erase_pieces(
    url: str, pieces: Sequence[Piece], why: Why, new_id: Callable[[], str], *, dry_run: bool = False
) -> list[Erased]:
    """Erase each in a transaction of its own: whoever repeats it after any failure goes on where it ended. `url` is the
    eraser's.

    Everything is looked at before anything is erased. Raises ErasureRefused under legal hold, RoleRefused for another
    role.
    """
    async with eraser_session(url) as session:
        found: list[Erased] = []
        for is_dry in (True,) if dry_run else (True, False):
            found = []
            for piece in pieces:
                async with session.transaction():
                    arguments = (
                        piece.stream, piece.seq, new_id(), why.reason, why.redactions, piece.left, is_dry,
                    )  # fmt: skip
                    row = await (await session.execute(_NAME, arguments)).fetchone()
                    assert row is not None  # noqa: S101 - the function answers one row
                    outcome, stream_id, named_by = row
                    if outcome == "held":
                        raise held(piece.stream)
                    if outcome == "named" and not is_dry:
                        await session.execute(TAKE, (stream_id, piece.seq))
                found.append(Erased(piece.stream, named_by, outcome == "named"))
        return found
