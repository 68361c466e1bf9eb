"""The database's part of an erasure in a conversation: what may enter behind a seal, and who may name it (law 10)."""

from __future__ import annotations

from typing import Any

import pytest
from append_helpers import append, creation, event, one

TURN = "turn:aaaaaaaa"
NAME = "SELECT outcome FROM minutebook.name_words_erasure_v1(%s, %s, %s, 'why', '{}', %s::jsonb, %s)"
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
SAYING = ('{"isErased": true, "text": "words"}', '{"text": ""}', '["words"]', '{"erased": true, "a": "words"}')
LEFT = '{"isErased": true, "text": ""}'


@pytest.fixture
def sealed(any_database: Any) -> str:
    """The steps of a turn at its end: an answer, and its end."""
    answered = event({"text": "words", "step": 1}, t="model_answered", o="broker")
    ended = event({"status": "completed"}, t="turn_ended", o="broker")
    with any_database.connect("app") as app:
        append(app, creation(answered, ended, stream=TURN, seal=True))
    return TURN


def test_words_behind_a_seal_go_and_only_what_says_nothing_takes_their_place(any_database: Any, sealed: str) -> None:
    with any_database.connect("eraser") as eraser:
        assert one(eraser, NAME, sealed, 2, ULID, LEFT, True) == "not_words"
        assert one(eraser, NAME, sealed, 3, ULID, LEFT, True) == "not_found"
        for left in (
            '{"isErased": true, "text": "words"}',
            '{"text": ""}',
            '["words"]',
            '{"erased": true, "a": "words"}',
        ):
            with pytest.raises(Exception, match="sealed") as refused:
                eraser.execute(NAME, (sealed, 1, ULID, left, False))
            assert getattr(refused.value, "sqlstate", None) == "MB002", left
        with eraser.transaction():
            assert one(eraser, NAME, sealed, 1, ULID, LEFT, False) == "named"
            eraser.execute(
                "UPDATE minutebook.events SET payload = NULL, salt = NULL WHERE seq = 1 AND stream_id ="
                " (SELECT s.id FROM minutebook.streams s WHERE s.name = %s)",
                (sealed,),
            )
        assert one(eraser, NAME, sealed, 1, ULID, LEFT, False) == "gone"
        assert one(eraser, NAME, "room:aaaaaaaa", 1, ULID, LEFT, False) == "not_found"
