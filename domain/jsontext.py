"""Scans raw JSON before anything is decoded into types: what the log cannot keep as sent is refused here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from typing import Any, Literal, NoReturn, cast

import msgspec

from .errors import Invalid, Malformed

MAX_DEPTH = 64
"""Deepest nesting of arrays and objects that a body may have."""

MAX_PATH_CHARS = 200
"""Longest JSON path in an error; a longer one is cut and ends in an ellipsis."""

MAX_NAME_CHARS = 80
"""Longest member name that an error quotes, in the characters of its escaped form."""

Reason = Literal["syntax", "depth", "duplicate_key", "number", "surrogate"]

_Steps = tuple[str | int, ...]
"""Where a value is: member names and array positions from the root."""

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
_MAX_INT_CHARS = len(str(_MIN_INT))
_MAX_SURE_DIGITS = 15
"""A double keeps every decimal of so many digits, whatever they are."""

_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_SUSPECT_RUN = b"0" * 19
_SUSPECT_INT = re.compile(rb"-?[0-9]{19,}")

_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))

_NUL_ESCAPE = b"\\u0000"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Refusal(msgspec.Struct, frozen=True):
    """Why a JSON text is refused. `detail` is a sentence that shows positions and member names, no values."""

    reason: Reason
    detail: str


class _InexactError(ValueError):
    """A number that would not come back value-equal."""


class _Members(list[tuple[str, Any]]):
    """An object as its members in order, so that duplicates survive parsing."""


def check_body(body: bytes, *, max_depth: int = MAX_DEPTH) -> None:
    """Refuses a request body that is not JSON as the log can keep it (laws 20 and 21; B42, B44, B45).

    Raises Malformed for: not UTF-8, not JSON (RFC 8259, no byte order mark), nesting over `max_depth` (a few
    hundred at most), a member name twice in one object at any depth, an integer beyond signed 64 bit, a
    number that a double does not keep value-equal. Raises Invalid, with the path, for a NUL character or a
    lone surrogate in a string or in a member name: then the path is that of its object, and the message
    quotes the name.
    """
    refusal = _refusal(body, max_depth)
    if refusal is not None and refusal.reason != "surrogate":
        raise Malformed(refusal.detail)
    if refusal is not None or _NUL_ESCAPE in body:
        for steps, text, is_name in _texts(_parse(body)):
            _refuse_text(steps, text, is_name)


def scan_value(raw: bytes, max_depth: int = MAX_DEPTH) -> Refusal | None:
    """Whether one item's payload from a bridge can be stored; never raises for content (rooms.md, B42).

    As check_body, except that NUL characters are no reason: the caller strips them (strip_nul). Names that
    become equal by that are duplicates here, so that stripping loses no member.
    """
    refusal = _refusal(raw, max_depth)
    if refusal is None and _NUL_ESCAPE in raw:
        return _duplicate(_parse(raw), ignored="\0")
    return refusal


def repair_text(text: str) -> str:
    """`text` with each lone surrogate as U+FFFD and each pair of halves as its character (law 20)."""
    if text.isascii() or _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def join_repaired(parts: Iterable[str]) -> str:
    """The parts of a text, joined before the repair: a character split over chunks survives (law 20)."""
    return repair_text("".join(parts))


def may_hold_nul(raw: bytes) -> bool:
    """Whether a JSON text that passed a scan may have a NUL character in a string or a member name."""
    return _NUL_ESCAPE in raw


def strip_nul(value: Any) -> Any:
    """A JSON value without NUL characters in its strings and member names, at any depth.

    Containers are copied, never changed. Of names that become equal the last one wins; scan_value refuses
    such a payload before.
    """
    root: list[Any] = [value]
    open_containers: list[dict[str, Any] | list[Any]] = [root]
    while open_containers:
        container = open_containers.pop()
        places = container.items() if isinstance(container, dict) else enumerate(container)
        for place, inner in list(places):
            fresh = _without_nul(inner)
            cast("dict[Any, Any]", container)[place] = fresh
            if isinstance(fresh, (dict, list)):
                open_containers.append(cast("dict[str, Any] | list[Any]", fresh))
    return root[0]


def compact(value: Any) -> bytes:
    """Compact UTF-8 JSON of a decoded value: the bytes by which payloads are measured.

    The value has passed a scan; a lone surrogate or more depth than the interpreter's stack raises.
    """
    return _encoder.encode(value)


def _refusal(raw: bytes, max_depth: int) -> Refusal | None:
    if _is_deeper(raw, max_depth):
        return _too_deep(max_depth)
    try:
        value = _decoder.decode(raw)
    except msgspec.ValidationError:
        return _bad_number()
    except msgspec.DecodeError as error:
        return _undecodable(raw, error)
    except RecursionError:  # max_depth allows more than the interpreter's stack holds
        return _too_deep(max_depth)
    if _has_big_int(raw):
        return _bad_number()
    return _duplicate(_parse(raw)) if _may_have_duplicate(raw, value) else None


def _is_deeper(raw: bytes, max_depth: int) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= max_depth:
        return False
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = raw.translate(None, _NOT_STRUCTURE)
    # Two quotes side by side may go, wherever they stand: the rest stays inside or outside of strings.
    structure = b"".join(structure.replace(b'""', b"").split(b'"')[::2])
    # Read as signed bytes, an opening bracket is +1 and a closing one is -1: their running sum is the depth.
    steps = memoryview(structure.translate(_BRACKETS)).cast("b")
    return any(map(max_depth.__lt__, accumulate(steps)))


def _has_big_int(raw: bytes) -> bool:
    if _SUSPECT_RUN not in raw.translate(_AS_ZEROS):
        return False
    if all(map(_fits_int, _SUSPECT_INT.findall(raw))):
        return False
    # A long run of digits may stand in a string or in a fraction, which only a parse can tell.
    try:
        _parse(raw)
    except _InexactError:
        return True
    return False


def _fits_int(digits: bytes | str) -> bool:
    return len(digits) <= _MAX_INT_CHARS and _MIN_INT <= int(digits) <= _MAX_INT


def _exact_int(text: str) -> int:
    if not _fits_int(text):
        raise _InexactError
    return int(text)


def _exact_float(text: str) -> float:
    number = float(text)
    if len(text) <= _MAX_SURE_DIGITS and text.replace(".", "").removeprefix("-").isdigit():
        return number
    shown = repr(number)
    try:
        if shown == text or (math.isfinite(number) and Decimal(text) == Decimal(shown)):
            return number
    except InvalidOperation:  # an exponent that is too large even for Decimal
        pass
    raise _InexactError


_decoder = msgspec.json.Decoder(float_hook=_exact_float)
_encoder = msgspec.json.Encoder()


def _may_have_duplicate(raw: bytes, value: Any) -> bool:
    # Decoding keeps one member per name, so a duplicate costs at least one colon. An escaped colon gains one:
    # then only the caller's slow look can tell.
    if b"\\u003a" in raw or b"\\u003A" in raw:
        return True
    return raw.count(b":") != _encoder.encode(value).count(b":")


def _undecodable(raw: bytes, error: msgspec.DecodeError) -> Refusal:
    """msgspec takes a lone surrogate for a syntax error; json.loads tells the two apart."""
    if _SURROGATE_ESCAPE.search(raw) is None:
        return _bad_syntax(error)
    try:
        tree = _parse(raw)
    except _InexactError:
        return _bad_number()
    except ValueError:
        return _bad_syntax(error)
    refusal = _duplicate(tree)
    if refusal is None and any(_SURROGATE.search(text) for _, text, _ in _texts(tree)):
        refusal = Refusal("surrogate", "A string or a member name holds a lone surrogate.")
    return refusal or _bad_syntax(error)


def _bad_syntax(error: msgspec.DecodeError) -> Refusal:
    place = re.search(r"\(byte (\d+)\)", str(error))
    where = f" at byte {place[1]}" if place else ""
    return Refusal("syntax", f"This is not JSON in UTF-8 (RFC 8259, without a byte order mark){where}.")


def _too_deep(max_depth: int) -> Refusal:
    return Refusal("depth", f"Arrays and objects nest more than {max_depth} levels deep.")


def _bad_number() -> Refusal:
    return Refusal("number", "A number fits neither a signed 64-bit integer nor a double; send it as text.")


def _duplicate(tree: Any, ignored: str = "") -> Refusal | None:
    """The first member name that an object has twice once the characters `ignored` are taken out."""
    for steps, value in _walk(tree):
        seen: set[str] = set()
        for name, _ in value if isinstance(value, _Members) else ():
            known = name.replace(ignored, "") if ignored else name
            if known in seen:
                detail = f"{_path(steps)}: the member name {_quoted(name)} occurs twice."
                return Refusal("duplicate_key", detail)
            seen.add(known)
    return None


def _parse(raw: bytes) -> Any:
    """The slow parse, which keeps duplicates and lone surrogates; raises ValueError."""
    return json.loads(
        raw.decode(),
        object_pairs_hook=_Members,
        parse_int=_exact_int,
        parse_float=_exact_float,
        parse_constant=_refuse_constant,
    )


def _refuse_constant(_text: str) -> NoReturn:
    raise ValueError("not a JSON number")


def _walk(tree: Any) -> Iterator[tuple[_Steps, Any]]:
    """Every value of a slow parse with its place, in the order of the text."""
    waiting: list[tuple[_Steps, Any]] = [((), tree)]
    while waiting:
        steps, value = waiting.pop()
        yield steps, value
        if isinstance(value, _Members):
            waiting.extend(((*steps, name), inner) for name, inner in reversed(value))
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            waiting.extend(((*steps, i), items[i]) for i in range(len(items) - 1, -1, -1))


def _texts(tree: Any) -> Iterator[tuple[_Steps, str, bool]]:
    """Every string and member name of a slow parse: place (a name's is its object's), text, is it a name."""
    for steps, value in _walk(tree):
        if isinstance(value, str):
            yield steps, value, False
        elif isinstance(value, _Members):
            for name, _ in value:
                yield steps, name, True


def _refuse_text(steps: _Steps, text: str, is_name: bool) -> None:
    if "\0" in text:
        what = "a NUL character"
    elif _SURROGATE.search(text) is not None:
        what = "a lone surrogate"
    else:
        return
    subject = f"the member name {_quoted(text)}" if is_name else "the text"
    raise Invalid.at(_path(steps), f"{subject} must not hold {what}")


def _path(steps: _Steps) -> str:
    path = "$"
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif _PLAIN_NAME.fullmatch(step):
            path += f".{step}"
        else:
            path += f"[{_quoted(step)}]"
        if len(path) > MAX_PATH_CHARS:
            return path[: MAX_PATH_CHARS - 1] + "…"
    return path


def _quoted(name: str) -> str:
    """A member name in escaped ASCII, so that no error carries the character that it complains about."""
    shown = json.dumps(name[:MAX_NAME_CHARS])
    return shown if len(shown) <= MAX_NAME_CHARS else shown[: MAX_NAME_CHARS - 2] + '…"'


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\0", "")
        case dict():
            members = cast("dict[str, Any]", value)
            return {name.replace("\0", ""): inner for name, inner in members.items()}
        case list() | tuple():
            return list(cast("list[Any]", value))
        case _:
            return value
