"""B52 and B57: what a window holds of texts in any script, and what of an interrupted reply its asker had."""

from __future__ import annotations

import base64
import unicodedata

import pytest
from minutebook.domain.conversations.counting import HeuristicCounter
from minutebook.domain.conversations.fit import CUT_MARK, Fixed, Sized, cut_result, cut_summary, fit_to_window
from minutebook.domain.conversations.prompt import reply_text
from minutebook.domain.conversations.turns import heard

SIZE = 10_000
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
"""One picture of five code points."""

TEXTS = {
    "english": ("The quick brown fox. " * 500)[:SIZE],
    "chinese": "你好世界" * (SIZE // 4),
    "thai": "สวัสดีครับ" * (SIZE // 10),
    "code": ("for (i = 0; i < n; i++) { a[i] += b[i]; }\n" * 300)[:SIZE],
    "joined emoji": FAMILY * (SIZE // 5),
    "base64": base64.b64encode(bytes(range(256)) * 40).decode()[:SIZE],
    "one word": "a" * SIZE,
}


class Bytes:
    """A reference that no byte-level tokenizer exceeds: one token a byte of UTF-8."""

    per_message = 4

    def count(self, text: str) -> int:
        """Its bytes."""
        return len(text.encode())


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("window", [100, 10_000, 60_000, 200_000])
def test_b52_no_prompt_is_above_its_window_by_the_counter_of_its_agent(name: str, window: int) -> None:
    text, counter = TEXTS[name], Bytes()
    turns = [Sized(2 * n + 1, texts=(text, text[: SIZE // 2])) for n in range(4)]
    fixed = Fixed("Help.", "", text)
    fitted = fit_to_window(window, 64, fixed, turns, counter)
    alone = counter.count("Help.") + counter.count(text) + 2 * counter.per_message
    assert (fitted is None) == (alone > window - 64), "the newest message fits or is refused"
    if fitted is not None:
        kept = [turn for turn in turns if turn.ord in fitted.kept]
        said = sum(counter.count(each) + counter.per_message for turn in kept for each in turn.texts)
        assert alone + said == fitted.tokens <= window - 64


@pytest.mark.parametrize("name", ["chinese", "thai", "joined emoji"])
def test_b52_without_a_tokenizer_no_character_of_such_a_script_is_a_fraction(name: str) -> None:
    """A quarter of a token a character would be four to six times too few."""
    assert HeuristicCounter().count(TEXTS[name]) >= len(TEXTS[name])


@pytest.mark.parametrize("name", TEXTS)
def test_b52_what_is_trimmed_ends_between_characters(name: str) -> None:
    text, counter = TEXTS[name], HeuristicCounter()
    for shift in range(6):
        shifted = "x" * shift + text
        for part in (cut_result(shifted).removesuffix(CUT_MARK), cut_summary(shifted, 2000 + shift, counter)):
            assert shifted.startswith(part)
            assert 0 < len(part) < len(shifted)
            following = shifted[len(part)]
            assert "\u200d" not in (part[-1], following)
            assert unicodedata.category(following) not in ("Mn", "Mc", "Me")


REPLY = "0123456789" * 4 + FAMILY + "b" * 55
"""100 code points; the picture stands at 40 to 44."""


@pytest.mark.parametrize(
    ("acknowledged", "had"), [(0, 0), (37, 37), (41, 40), (44, 40), (45, 45), (100, 100), (250, 100), (-1, 0)]
)
def test_b57_later_prompts_hold_what_was_heard_cut_between_characters(acknowledged: int, had: int) -> None:
    seen = heard(REPLY, acknowledged, 100)
    assert seen == had
    shown = reply_text("interrupted", REPLY, seen)
    assert shown == (REPLY[:had] or "(interrupted)"), "no empty message is sent to a model"
    assert heard(REPLY[:had], acknowledged, 100) == had, "a report that is repeated cannot make it grow"


def test_b57_without_a_report_it_is_what_was_sent() -> None:
    assert heard(REPLY, None, 41) == 40
    assert heard("", None, 0) == 0
