"""Counters of tokens: exact ones from a file made here, and what stops the start."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.domain.conversations.counting import HeuristicCounter
from minutebook.infra import tiktoken_counter
from minutebook.infra.agents import agents_of
from minutebook.infra.counters import counter_of
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_load import load
from minutebook.infra.tiktoken_counter import MAX_PIECE_CHARS, TiktokenCounter, by_file

KEY = "agents.ops.counter"
MERGES = (b"he", b"ll", b"hell", b"hello", b" wo", b"rl")


def ranks(folder: Path, *lines: bytes) -> Path:
    """A file with every byte and some merges, and more lines."""
    tokens = [*(bytes((byte,)) for byte in range(256)), *MERGES]
    told = [base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens)]
    path = folder / "small.tiktoken"
    path.write_bytes(b"\n".join([*told, *lines]) + b"\n")
    return path


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> TiktokenCounter:
    return by_file(KEY, ranks(tmp_path_factory.mktemp("ranks")))


def test_a_file_of_ranks_counts_exactly(counter: TiktokenCounter) -> None:
    assert [counter.count(text) for text in ("", "hello", "hellohe", "hex", "漢", "😀")] == [0, 1, 2, 2, 3, 4]
    assert counter.per_message == HeuristicCounter.per_message
    # A text that looks like a special token is text.
    assert counter.count("<|endoftext|>") > 1


@given(text=st.text(max_size=200))
def test_no_text_has_more_tokens_than_bytes(counter: TiktokenCounter, text: str) -> None:
    assert counter.count(text) <= len(text.encode())


def test_long_texts_are_counted_in_pieces(counter: TiktokenCounter) -> None:
    text = "hello " * (MAX_PIECE_CHARS // 3)
    whole = len(counter._encoding.encode_ordinary(text))
    assert whole <= counter.count(text) <= whole + 4
    assert counter.count("x" * 200_000) == 200_000


def test_an_agent_counts_with_the_file_beside_its_settings(tmp_path: Path) -> None:
    ranks(tmp_path)
    text = "[agents.ops]\nprovider = 'scripted'\ncounter = 'tiktoken:small.tiktoken'"
    (tmp_path / "minutebook.toml").write_text(text, "utf-8")
    agents = agents_of(load(tmp_path, {}))
    assert (agents["ops"].counter.count("hello"), agents["echo"].counter.count("hello")) == (1, 2)


def refusal(named: str) -> str:
    with pytest.raises(SettingsError) as caught:
        counter_of(KEY, named)
    assert str(caught.value).startswith(KEY)
    return str(caught.value)


@pytest.mark.parametrize("line", [b"notbase64! 300", b"aGVsbG8= x", b"aGVsbG8=", b"a b c"])
def test_a_line_that_is_none_stops_the_start_with_its_number(tmp_path: Path, line: bytes) -> None:
    assert f"line {256 + len(MERGES) + 1} of" in refusal(f"tiktoken:{ranks(tmp_path, line)}")


def test_a_file_without_every_byte_or_with_a_rank_twice_stops_the_start(tmp_path: Path) -> None:
    assert "for each token" in refusal(f"tiktoken:{ranks(tmp_path, base64.b64encode(b'xyz') + b' 3')}")
    path = ranks(tmp_path)
    path.write_bytes(b"\n".join(path.read_bytes().splitlines()[1:]))
    assert "every byte" in refusal(f"tiktoken:{path}")


def test_a_file_that_is_not_there_or_an_unknown_name_stops_the_start(tmp_path: Path) -> None:
    assert "cannot be read (No such file" in refusal(f"tiktoken:{tmp_path / 'none.tiktoken'}")
    assert "no encoding nothing_base" in refusal("tiktoken:nothing_base")


def test_an_encoding_that_cannot_be_loaded_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tiktoken_counter, "LOAD_S", 5.0)
    message = refusal("tiktoken:gpt2")
    assert "the encoding gpt2 cannot be loaded (" in message
    assert "TIKTOKEN_CACHE_DIR" in message


def test_without_the_library_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.delitem(sys.modules, "minutebook.infra.tiktoken_counter")
    assert 'pip install "minutebook[tiktoken]"' in refusal("tiktoken:o200k_base")
