"""Words that nobody may find: planted where a viewer is not cleared, and looked for in every byte that they receive."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import httpx
from live_server import REQUEST_S

STREAM_BYTES = 8 * 1024 * 1024
"""More than any stream of these tests sends until what is waited for."""


class Canary(NamedTuple):
    """One planted word, and where it was planted. Letters and digits alone, so that no escaping takes it apart."""

    place: str
    word: str

    def forms(self) -> Iterator[bytes]:
        """The word as it is and as it is commonly encoded: in base64 whatever stands before it, in hex, percent-coded,
        as JSON escapes, and as a digest without a key, which tells whoever guesses that they guessed it."""
        raw = self.word.encode()
        yield raw
        yield raw[::-1]
        for shift in range(3):
            yield base64.b64encode(b"\0" * shift + raw)[4:-4]  # what stands before and behind changes its ends
        yield raw.hex().encode()
        yield "".join(f"%{byte:02x}" for byte in raw).encode()
        yield "".join(f"\\u{byte:04x}" for byte in raw).encode()
        for algorithm in ("md5", "sha1", "sha256"):
            yield hashlib.new(algorithm, raw).hexdigest().encode()


def canary(place: str) -> Canary:
    """A new word."""
    return Canary(place, "zq" + secrets.token_hex(12))


class Net:
    """Looks for canaries in bytes, all of them at once."""

    def __init__(self, canaries: Iterable[Canary], *words: str) -> None:
        """words: looked for as they are, too."""
        self._places = {form.lower(): each.place for each in canaries for form in each.forms()}
        self._places |= {word.lower().encode(): f"the word {word}" for word in words}
        self._pattern = re.compile(b"|".join(map(re.escape, self._places)))
        self.caught: list[str] = []
        self.bytes = 0

    def look(self, data: bytes | str, where: str) -> None:
        """Search `data`; what is found is `caught`, with the place where it was planted and where it came out."""
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        self.bytes += len(raw)
        for found in self._pattern.finditer(raw.lower()):
            self.caught.append(f"{self._places[found[0]]} in {where}")

    def heard(self, answer: httpx.Response, where: str) -> None:
        """Search an answer: its status line, its headers and its body."""
        self.look(f"{answer.status_code} {answer.reason_phrase}", where)
        self.look(b"\n".join(b": ".join(pair) for pair in answer.headers.raw), f"headers of {where}")
        self.look(answer.content, where)


def received(client: httpx.Client, path: str, until: bytes, **query: Any) -> bytes:
    """What a stream sends until `until` was in it, or to its end; its answer where it does not begin."""
    headers = {"last-event-id": str(query.pop("last_event_id"))} if "last_event_id" in query else {}
    got = b""
    with client.stream("GET", path, params=query, headers=headers, timeout=REQUEST_S) as response:
        got += repr(response.headers.raw).encode()
        for chunk in response.iter_raw():
            got += chunk
            if until in got:
                break
            assert len(got) < STREAM_BYTES, f"{until!r} did not come"
    return got


def calls(
    document: Mapping[str, Any], fills: Mapping[str, Iterable[str]], bodies: Mapping[tuple[str, str], Iterable[Any]]
) -> Iterator[tuple[str, str, str, Any]]:
    """Every operation of an OpenAPI document that is no stream, with every value for the places of its path and each of
    its bodies: operation, method, path, body. A place without a value is a KeyError: someone has to think of it."""
    for path, item in document["paths"].items():
        names = re.findall(r"\{(\w+)\}", path)
        for method in item:
            told = bodies.get((method, path), ({},) if method != "get" else (None,))
            for values in itertools.product(*(fills[name] for name in names)):
                filled = path
                for name, value in zip(names, values, strict=True):
                    filled = filled.replace(f"{{{name}}}", value)
                for body in told:
                    yield f"{method.upper()} {path}", method, filled, body
