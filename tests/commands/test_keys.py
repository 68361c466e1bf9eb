"""Whose an idempotency key is."""

from __future__ import annotations

from typing import Any, cast

from minutebook.commands.dispatcher import Bounds, Dispatcher, Fingerprints
from minutebook.domain.principals import Caller, Principal

ADA = Principal("human", "ada")
DESK = Principal("system", "desk")


def test_who_acts_for_a_person_has_keys_of_their_own() -> None:
    dispatcher = Dispatcher(cast("Any", None), Fingerprints(b"k"), Bounds())
    callers = (
        Caller(ADA, "acme"),
        Caller(ADA, "acme", delegate=DESK),
        Caller(DESK, "acme", delegate=ADA),
        Caller(DESK, "acme"),
        Caller(ADA, "other"),
    )
    keys = [dispatcher.key(caller, "start", "", "k1", {}, 201) for caller in callers]
    assert len({key.place for key in keys if key is not None}) == len(callers)
