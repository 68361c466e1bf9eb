"""One of each event of answers with everything in it."""

from __future__ import annotations

from minutebook.domain.answers.events import (
    AnswerDropped,
    AnswerEvent,
    AnswerRequested,
    IntendedTarget,
    NamedEnd,
    SkippedTarget,
    TargetsResolved,
)

ID = "answ" * 6 + "aa"
DELIVERY = "deli" * 6 + "aa"
TALK = "talk" * 6 + "aa"
KEY = "acct" * 6 + "aa"
CORRELATION = "01JDZX6GM0000000000000ABCD"
HASH = "h:" + "0123456789abcdef" * 2
OTHER = "h:" + "fedcba9876543210" * 2

REQUESTED = AnswerRequested(
    ID,
    "acme",
    TALK,
    "ab" * 32,
    CORRELATION,
    KEY,
    "identities",
    "telegram",
    "internal",
    HASH,
    OTHER,
    True,
    ("hook",),
    (NamedEnd("slack", OTHER),),
    True,
    True,
)
RESOLVED = TargetsResolved(
    3,
    (IntendedTarget(DELIVERY, "slack", OTHER, "pointer", HASH, True, "othr" * 6 + "aa", "telegram"),),
    (SkippedTarget("hook", "audience"),),
    7,
    9,
)
ANSWER_SAMPLES: tuple[AnswerEvent, ...] = (REQUESTED, RESOLVED, AnswerDropped())
