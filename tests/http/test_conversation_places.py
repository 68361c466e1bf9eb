"""Places of a process for streams of conversations: each bound by itself, and free again once somebody leaves."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from minutebook.domain.errors import MinutebookError
from minutebook.domain.principals import Caller, Principal
from minutebook.http.conversation_places import Places
from minutebook.infra.settings_conversations import ConversationSettings

ANN, BEN = (Caller(Principal("human", name), "acme") for name in ("ann", "ben"))


@pytest.mark.parametrize(
    ("limits", "taken", "code"),
    [
        ({"streams": 2}, [(ANN, "a"), (BEN, "b")], "unavailable"),
        ({"streams_per_principal": 2}, [(ANN, "a"), (ANN, "b")], "rate_limited"),
        ({"viewers": 2}, [(ANN, "c"), (BEN, "c")], "rate_limited"),
    ],
)
def test_the_next_one_waits_until_somebody_leaves(
    limits: dict[str, int], taken: list[tuple[Caller, str]], code: str
) -> None:
    places = Places(ConversationSettings(**limits))
    with ExitStack() as stack:
        for caller, talk in taken:
            places.check(caller, talk)
            stack.enter_context(places.place(caller, talk))
        assert places.taken == 2
        with pytest.raises(MinutebookError) as refused:
            places.check(ANN, "c")
        assert (refused.value.code, refused.value.attributes["retryAfterMs"] > 0) == (code, True)
    places.check(ANN, "c")
    assert places.taken == 0
