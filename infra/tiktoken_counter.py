"""Exact counts for models whose tokenizer the library tiktoken has, or that come with a file of its form."""

from __future__ import annotations

import base64
import binascii
import threading
from pathlib import Path

import tiktoken

from ..domain.conversations.counting import PER_MESSAGE
from .settings import SettingsError

MAX_PIECE_CHARS = 16_384
"""A longer text is counted in pieces: very long ones cost the library much, and some break it."""

LOAD_S = 20.0
"""Longest that loading an encoding by its name may take: the library may download it."""

MAX_FILE_BYTES = 64 << 20

WORDS = r" ?\p{L}+| ?[^\s\p{L}\p{N}]+|\p{N}{1,3}|\s+(?!\S)|\s"
"""How the text is parted before its pieces are merged, where a file of ranks does not say it."""


class TiktokenCounter:
    """Counts with one encoding; what looks like a special token is text."""

    per_message = PER_MESSAGE

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding

    def count(self, text: str) -> int:
        """Tokens of the text; of a very long one a few more than it has."""
        places = range(0, len(text), MAX_PIECE_CHARS)
        return sum(len(self._encoding.encode_ordinary(text[place : place + MAX_PIECE_CHARS])) for place in places)


def by_name(key: str, name: str) -> TiktokenCounter:
    """With an encoding that the library knows, such as o200k_base. Raises SettingsError."""
    known = tiktoken.list_encoding_names()
    if name not in known:
        raise SettingsError(f"{key}: tiktoken has no encoding {name}; it has {', '.join(sorted(known))}.")
    found: list[tiktoken.Encoding] = []
    failed: list[str] = []

    def load() -> None:
        try:
            found.append(tiktoken.get_encoding(name))
        except Exception as error:  # noqa: BLE001 - whatever a download raises
            failed.append(type(error).__name__)

    # The library's download has no limit of its own.
    loading = threading.Thread(target=load, name="minutebook-tiktoken", daemon=True)
    loading.start()
    loading.join(LOAD_S)
    if not found:
        raise SettingsError(
            f"{key}: the encoding {name} cannot be loaded ({failed[0] if failed else f'not within {LOAD_S:g} s'});"
            " tiktoken downloads it once: let it, set TIKTOKEN_CACHE_DIR to where it is, or name a file of ranks."
        )
    return TiktokenCounter(found[0])


def by_file(key: str, path: Path) -> TiktokenCounter:
    """With a file of ranks: lines of a token in base64 and its rank. Raises SettingsError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SettingsError(f"{key}: {path} is larger than {MAX_FILE_BYTES} bytes.")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"{key}: {path} cannot be read ({error.strerror}).") from None
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise SettingsError(f"{key}: line {number} of {path} is not a token in base64 and its rank.") from None
    is_whole = all(bytes((byte,)) in ranks for byte in range(256)) and len(set(ranks.values())) == len(ranks)
    if not is_whole:
        raise SettingsError(f"{key}: {path} must have a rank of its own for each token, and one for every byte.")
    return TiktokenCounter(tiktoken.Encoding(path.stem, pat_str=WORDS, mergeable_ranks=ranks, special_tokens={}))
