"""What a turn's asker may know of what the model saw: from the verdict in the log, and no text."""

from __future__ import annotations

import msgspec
from conversation_scenes import ALICE, CONVERSATION, RING, Log, Ring, everything
from minutebook.domain.conversations.counting import HeuristicCounter
from minutebook.domain.conversations.events import ContextDecided
from minutebook.domain.conversations.fit import Sized, fit_to_window
from minutebook.domain.conversations.ledger import LedgerTurn, Present, ledger_of
from minutebook.domain.conversations.prompt import (
    Asked,
    ToolSpec,
    assemble,
    digest,
    fixed_texts,
    prompt_text,
    told,
    tools_text,
    turn_texts,
)
from minutebook.domain.conversations.turns import Shown
from msgspec import UNSET
from msgspec.structs import replace

SYSTEM = "You help the on-call team; the pass phrase is swordfish."
TOOLS = [ToolSpec("look", "Looks.", {"type": "object"})]
PRESENT = Present(SYSTEM, tools_text(TOOLS), "scripted")


def decided() -> ContextDecided:
    """The verdict of a second turn, made the way a runner makes it."""
    log = Log().start()
    log.turn("what is up?", "all is well")
    log.send("and now?")
    prompt = Asked(ALICE, "and now?")

    def shown(state: object) -> Shown:
        window = [told(turn, Asked(ALICE, "what is up?"), "all is well") for turn in log.state.window]
        turns = [Sized(each.ord, UNSET, turn_texts(each)) for each in window]
        fitted = fit_to_window(4000, 500, fixed_texts(SYSTEM, TOOLS, None, prompt), turns, HeuristicCounter())
        assert fitted is not None
        made = assemble(RING, CONVERSATION, SYSTEM, None, window, prompt)
        return Shown(
            fitted,
            500,
            0,
            digest(RING, CONVERSATION, "prompt", prompt_text(made)),
            digest(RING, CONVERSATION, "system", SYSTEM),
            digest(RING, CONVERSATION, "tools", tools_text(TOOLS)),
            "scripted",
        )

    log.step(shown)
    return log.events(ContextDecided)[-1]


def test_a_ledger_says_what_was_shown_and_no_word_of_it() -> None:
    verdict = decided()
    ledger = ledger_of(CONVERSATION, verdict, PRESENT, RING)
    assert (ledger.turn, ledger.ord, ledger.evicted, ledger.summary, ledger.reserved) == (2, 3, (), 0, 500)
    assert ledger.kept == (LedgerTurn(1, verdict.kept_tokens[0]),)
    assert ledger.tokens == sum(ledger.parts.values())
    assert set(ledger.parts) == {"system", "tools", "summary", "turns", "prompt"}
    assert (ledger.changed, ledger.unknown) == ((), ())
    text = msgspec.json.encode(ledger).decode()
    assert "swordfish" not in text
    assert "all is well" not in text
    assert '"promptDigest"' in text


def test_a_part_that_the_settings_changed_is_marked() -> None:
    verdict = decided()
    changes = {
        "system": replace(PRESENT, system=SYSTEM + " "),
        "tools": replace(PRESENT, tools=tools_text([*TOOLS, *TOOLS])),
        "model": replace(PRESENT, model="another"),
    }
    for part, present in changes.items():
        assert ledger_of(CONVERSATION, verdict, present, RING).changed == (part,)


def test_a_key_that_was_rotated_still_compares_and_one_that_is_gone_does_not() -> None:
    verdict = decided()
    rotated = Ring(k2=b"2" * 32, k1=b"1" * 32)
    assert ledger_of(CONVERSATION, verdict, PRESENT, rotated).changed == ()
    gone = ledger_of(CONVERSATION, verdict, PRESENT, Ring(k2=b"2" * 32))
    assert (gone.changed, gone.unknown) == ((), ("system", "tools"))


def test_of_an_agent_that_is_gone_nothing_can_be_compared() -> None:
    ledger = ledger_of(CONVERSATION, decided(), None, RING)
    assert (ledger.changed, ledger.unknown) == ((), ("system", "tools", "model"))


def test_a_ledger_names_what_was_evicted_and_dropped() -> None:
    log = Log().start()
    log.turn()
    log.turn()
    log.send()

    def shown(state: object) -> Shown:
        verdict = everything(log.state, evicted=(1,))
        return replace(verdict, fitted=replace(verdict.fitted, summary_dropped=True))

    log.step(shown)
    ledger = ledger_of(CONVERSATION, log.events(ContextDecided)[-1], None, RING)
    assert (ledger.kept, ledger.evicted, ledger.summary_dropped) == ((LedgerTurn(3, 10),), (1,), True)
