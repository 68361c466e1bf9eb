"""What redaction costs: text without secrets, with keywords, with secrets, whole messages, and a stream's chunks.

python tests/bench/bench_redaction.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Figure, table
from minutebook.infra.postgres.embedded import EmbeddedPostgres
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.known import forms_of, forms_of_key
from minutebook.infra.redaction.rules import marked, shipped_rules

ROUNDS = 7
ROUND_S = 0.1
CHUNK_CHARS = 5

SENTENCE = "The agent read the file, ran 14 checks of the module and found one that fails at line 233 of parser.py. "
TALK = "The password reset sends a token to https://forge.example/a/b, whose secret stands in no key of the answer. "


def figures(_server: EmbeddedPostgres, _database: str, _folder: Path) -> list[Figure]:
    """Microseconds a KiB, a message, a chunk; goals of docs/redaction.md."""
    return measure()


def measure() -> list[Figure]:
    """The figures; they need no database."""
    forms = forms_of("postgres-password-1") | forms_of_key(bytes(range(32))) | forms_of_key(bytes(range(64, 96)))
    redactor = Redactor(shipped_rules(), forms)
    clean = (SENTENCE * 200)[:16_384]
    talk = (TALK * 200)[:16_384]
    examples = [marked(each)[0].decode() for rule in shipped_rules() for each in rule.positive]
    dense = "\n".join(SENTENCE + each for each in examples)
    message = {"kind": "chat", "text": (SENTENCE * 3)[:300], "to": [], "delivery": "none"}
    spoken = {"kind": "chat", "text": (TALK * 3)[:300], "to": [], "delivery": "none"}
    call = {"callId": "call_1", "tool": "shell", "args": {"command": SENTENCE, "cwd": "/srv/a"}, "decidedBy": "policy"}
    return [
        _per_kib("redaction, clean text, us/KiB", redactor, clean, 20),
        _per_kib("redaction, text full of keywords, us/KiB", redactor, talk, 60),
        _per_kib("redaction, text full of secrets, us/KiB", redactor, dense, 300),
        _each("redaction, clean message of 300 bytes, us", lambda: redactor.value(message), 10),
        _each("redaction, message with keywords, us", lambda: redactor.value(spoken), 100),
        _each("redaction, clean tool call, us", lambda: redactor.value(call), 10),
        Figure.at_most("redaction, a chunk of a stream, us", _stream_us(redactor, SENTENCE * 20), "us", 100),
    ]


def _per_kib(name: str, redactor: Redactor, text: str, goal: float) -> Figure:
    return Figure.at_most(name, us(lambda: redactor.text(text)) / (len(text.encode()) / 1024), "us", goal)


def _each(name: str, call: Callable[[], Any], goal: float) -> Figure:
    return Figure.at_most(name, us(call), "us", goal)


def us(call: Callable[[], Any]) -> float:
    """Microseconds of a call: the best of some rounds, since whatever disturbs only adds."""
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        count = 0
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < ROUND_S:
            call()
            count += 1
        best = min(best, passed / count)
    return best * 1e6


def _stream_us(redactor: Redactor, text: str) -> float:
    chunks = [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)]

    def whole() -> None:
        stream = redactor.stream()
        for chunk in chunks:
            stream.feed(chunk)
        stream.finish()

    return us(whole) / len(chunks)


if __name__ == "__main__":
    print(table(measure()))
