"""The scan of raw JSON: laws 20 and 21, field faults B42, B44 and B45."""

from __future__ import annotations

import json
import time
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.domain.errors import Invalid, Malformed
from minutebook.domain.jsontext import (
    MAX_DEPTH,
    MAX_PATH_CHARS,
    check_body,
    compact,
    join_repaired,
    repair_text,
    scan_value,
    strip_nul,
)

SECRET = "hunter2canary"

NOT_JSON = [
    b"",
    b" ",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b'{"a":"\xff"}',
    b'{"\xe9":1}',
    b'"\xed\xa0\x80"',
    b'"\xc0\x80"',
    b'"\x00"',
    b"{}\x00",
    b'"\x1f"',
    b"NaN",
    b"[Infinity]",
    b'{"a":-Infinity}',
    b"[1,]",
    b'{"a":1,}',
    b"{,}",
    b"01",
    b"-01",
    b"+1",
    b".5",
    b"1.",
    b"1e",
    b"0x10",
    b"1_0",
    b"[1 2]",
    b"{1:2}",
    b"{'a':1}",
    b'{"a" 1}',
    b'"a',
    b'"\\x41"',
    b'"\\u00g0"',
    b"[]]",
    b"{} {}",
    b"// no\n1",
    b"nul",
    b"True",
    b"\xc2\xa01",
    b'"\\ud83d',
    b'{"a":"\\ud800",}',
    b'["\\ud800",NaN]',
]


def refused(body: bytes, **limits: int) -> Malformed | Invalid | None:
    try:
        check_body(body, **limits)
    except (Malformed, Invalid) as error:
        return error
    return None


@pytest.mark.parametrize("body", NOT_JSON)
def test_what_is_not_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        check_body(body)
    refusal = scan_value(body)
    assert refusal is not None
    assert refusal.reason == "syntax"


@pytest.mark.parametrize(
    "body", [b"{}", b" [ ] \r\n\t", b"null", b'"\xc3\xa9\x7f\xe2\x80\xa8"', b'"\\/\\b\\u00e9"', b'{"":0}']
)
def test_plain_json_passes(body: bytes) -> None:
    check_body(body)
    assert scan_value(body) is None


def arrays(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def objects(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("nest", [arrays, objects])
@pytest.mark.parametrize("levels", [65, 100, 1_000, 5_000, 200_000])
def test_b44_deeper_than_the_limit_is_refused_fast(nest: Any, levels: int) -> None:
    body = nest(levels)
    started = time.process_time()
    with pytest.raises(Malformed, match="64 levels"):
        check_body(body)
    assert time.process_time() - started < 1
    refusal = scan_value(body, MAX_DEPTH)
    assert refusal is not None
    assert refusal.reason == "depth"


@pytest.mark.parametrize("nest", [arrays, objects])
@pytest.mark.parametrize("levels", [1, 32, 64])
def test_b44_up_to_the_limit_it_passes(nest: Any, levels: int) -> None:
    check_body(nest(levels))


def test_b44_depth_is_depth_and_not_a_count_of_brackets() -> None:
    check_body(b"[" + b",".join([b"[{}]"] * 1_000) + b"]")
    check_body(json.dumps({"text": '["{' * 1_000, '["\\': ['\\"[', "[[["] * 50}).encode())
    late = b"[" + b"[]," * 10_000 + arrays(64) + b"]"
    assert isinstance(refused(late), Malformed)
    assert refused(late, max_depth=65) is None


def test_b44_brackets_behind_escaped_quotes_do_not_hide_depth() -> None:
    body = b'["\\\\",' + arrays(64) + b',"\\""]'
    assert isinstance(refused(body), Malformed)
    assert refused(body, max_depth=65) is None


def test_b44_a_limit_beyond_the_stack_still_refuses() -> None:
    with pytest.raises(Malformed, match="levels deep"):
        check_body(arrays(200_000), max_depth=1_000_000)


def test_b44_unclosed_brackets_are_refused_too() -> None:
    with pytest.raises(Malformed):
        check_body(b"[" * 200_000)
    with pytest.raises(Malformed):
        check_body(b"]" * 200_000)


KEPT = [
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1e5",
    "1E+5",
    "0.1",
    "1e-7",
    "9007199254740993",
    str(2**63 - 1),
    str(-(2**63)),
]
KEPT_LONG = [
    "0.30000000000000004",
    "5e-324",
    "1.7976931348623157e308",
    "1e22",
    "1." + "0" * 5_000,
    "123456789.012345",
]
LOST = [str(2**63), str(-(2**63) - 1), str(2**64), "1" * 30, "1" * 5_000, "1e400", "-1e400", "1e-400"]
LOST_LONG = [
    "0.1234567890123456789",
    "9007199254740993.0",
    "0." + "1" * 5_000,
    "1e" + "9" * 30,
    "0e" + "9" * 30,
    "1e-" + "9" * 30,
    "0.1000000000000000001",
    "123456789012345.678",
]


@pytest.mark.parametrize("number", KEPT + KEPT_LONG)
def test_b45_numbers_that_come_back_value_equal_pass(number: str) -> None:
    body = f'{{"a":[{number}]}}'.encode()
    check_body(body)
    assert scan_value(body) is None
    back = json.loads(compact(msgspec.json.decode(body)), parse_float=Decimal, parse_int=Decimal)
    assert back == {"a": [Decimal(number)]}


@pytest.mark.parametrize("number", LOST + LOST_LONG)
def test_b45_numbers_that_would_change_are_refused(number: str) -> None:
    body = f'{{"a":[{number}]}}'.encode()
    with pytest.raises(Malformed, match="number"):
        check_body(body)
    refusal = scan_value(body)
    assert refusal is not None
    assert refusal.reason == "number"


def test_b45_digits_in_texts_and_names_are_no_numbers() -> None:
    check_body(json.dumps({"1" * 40: "2" * 5_000, "hash": "3e400", "pi": "0.1234567890123456789"}).encode())


def test_b45_a_bad_number_beside_a_lone_surrogate_is_malformed() -> None:
    for number in (b"1e400", b"18446744073709551616", b"0.1234567890123456789"):
        body = b'["\\ud800",' + number + b"]"
        assert isinstance(refused(body), Malformed)
        refusal = scan_value(body)
        assert refusal is not None
        assert refusal.reason == "number"


DUPLICATES = [
    (b'{"a":1,"a":1}', "$:"),
    (b'{"a":1,"\\u0061":2}', "$:"),
    (b'{"x":[{},{"b":{"c":1,"d":2,"c":3}}]}', "$.x[1].b:"),
    (b'{"a":{"b:":1},"a":{":":1}}', "$:"),
    (b'{"":1,"":2}', "$:"),
    (b'{"\\u003a":1,":":2}', "$:"),
    (b'{"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":2}', "$:"),
    (b'{"\\ud800":1,"\\ud800":2}', "$:"),
    (b'{"a":{"a":1,"\\u003A":":"},"a":2}', "$:"),
]


@pytest.mark.parametrize(("body", "path"), DUPLICATES)
def test_law21_a_member_name_twice_is_malformed_at_any_depth(body: bytes, path: str) -> None:
    with pytest.raises(Malformed, match="occurs twice") as caught:
        check_body(body)
    assert caught.value.detail.startswith(path)
    refusal = scan_value(body)
    assert refusal is not None
    assert refusal.reason == "duplicate_key"


def test_law21_equal_names_in_different_objects_pass() -> None:
    check_body(b'[{"a":":"},{"a":{"a":"\\u003a","A":1,"\xc3\xa9":1,"e\xcc\x81":1}}]')


TEXTS = [
    ('{"text":"a%sb"}', "$.text", "the text"),
    ('{"a":{"b":[0,1,{},"%s"]}}', "$.a.b[3]", "the text"),
    ('{"a":{"x%s":1}}', "$.a", "member name"),
    ('{"odd name":["%s"]}', '$["odd name"][0]', "the text"),
    ('"%s"', "$", "the text"),
    ('{"message":{"tool":{"output":"%s"}}}', "$.message.tool.output", "the text"),
]


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud800", "\\uDFFF", "\\udc00\\ud800", "\\ud800\\u0041", "\\uD83Dx"])
@pytest.mark.parametrize(("template", "path", "subject"), TEXTS)
def test_b42_law20_nul_and_lone_surrogates_are_invalid_with_their_path(
    escape: str, template: str, path: str, subject: str
) -> None:
    with pytest.raises(Invalid, match=subject) as caught:
        check_body((template % escape).encode())
    assert [error["path"] for error in caught.value.attributes["errors"]] == [path]
    msgspec.json.encode(caught.value.attributes)


@pytest.mark.parametrize("text", ["\\\\u0000", "\\\\ud800", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ufffd", "\\ud7ff"])
def test_b42_law20_what_only_looks_like_it_passes(text: str) -> None:
    check_body(f'{{"{text}":"{text}"}}'.encode())
    assert scan_value(f'{{"{text}":"{text}"}}'.encode()) is None


def test_b42_the_first_bad_text_is_named() -> None:
    error = refused(b'{"a":["ok","\\u0000"],"b":"\\ud800"}')
    assert isinstance(error, Invalid)
    assert error.attributes["errors"][0]["path"] == "$.a[1]"


def test_b42_a_bad_name_is_quoted_in_escapes() -> None:
    error = refused(b'{"k\\u0000\\ud800":1}')
    assert error is not None
    assert '"k\\u0000\\ud800"' in error.detail


def test_law20_malformed_wins_over_invalid() -> None:
    assert isinstance(refused(b'{"a":"\\u0000","a":1}'), Malformed)
    assert isinstance(refused(b'{"a":"\\ud800","b":{"c":1,"c":2}}'), Malformed)
    assert isinstance(refused(b'["\\u0000",1e400]'), Malformed)
    assert isinstance(refused(b'["\\ud800","\xff"]'), Malformed)


def test_b42_bridges_get_surrogates_refused_and_nul_let_through() -> None:
    refusal = scan_value(b'{"output":"\\udead"}')
    assert refusal is not None
    assert refusal.reason == "surrogate"
    assert scan_value(b'{"output":"a\\u0000b","k\\u0000":1}') is None


def test_b42_names_that_stripping_would_make_equal_are_duplicates_for_bridges() -> None:
    body = b'{"x":[{"a\\u0000":1,"a":2}]}'
    refusal = scan_value(body)
    assert refusal is not None
    assert refusal.reason == "duplicate_key"
    assert isinstance(refused(body), Invalid)


@pytest.mark.parametrize(
    "body",
    [
        f'{{"text":"{SECRET}","text":2}}',
        f'{{"text":"{SECRET}\\u0000"}}',
        f'{{"text":"{SECRET}\\ud800"}}',
        f'{{"text":"{SECRET}",}}',
        f'["{SECRET}",1e400]',
    ],
)
def test_no_error_carries_what_the_body_says(body: str) -> None:
    error = refused(body.encode())
    assert error is not None
    assert SECRET not in error.detail + repr(error.attributes)


def test_paths_and_names_are_bounded() -> None:
    error = refused(json.dumps({"é" * 100_000: [{"b" * 150: [{"c" * 150: "\0"}]}]}).encode())
    assert isinstance(error, Invalid)
    assert len(error.attributes["errors"][0]["path"]) == MAX_PATH_CHARS
    assert error.attributes["errors"][0]["path"].endswith("…")
    name = refused(b'{"' + b"n" * 100_000 + b'\\u0000":1}')
    twice = refused(('{"' + "é" * 100_000 + '":1,"' + "é" * 100_000 + '":1}').encode())
    assert isinstance(name, Invalid)
    assert isinstance(twice, Malformed)
    assert len(name.detail) < 200
    assert len(twice.detail) < 200


def test_law20_lone_surrogates_become_the_replacement_character() -> None:
    assert repair_text("plain") == "plain"
    assert repair_text("é\U0001f600") == "é\U0001f600"
    assert repair_text("a\ud800b") == "a\ufffdb"
    assert repair_text("\udc00\ud800") == "\ufffd\ufffd"
    assert repair_text("\ud800\ud83d\ude00\ud800") == "\ufffd\U0001f600\ufffd"


def test_law20_halves_split_over_chunks_are_joined_first() -> None:
    assert join_repaired(["a\ud83d", "\ude00b"]) == "a\U0001f600b"
    assert join_repaired(iter(["\ud83d", "", "\ude00", "\ud83d"])) == "\U0001f600\ufffd"
    assert join_repaired([]) == ""


@given(st.text(st.characters(codec=None)), st.data())
def test_law20_the_repair_is_the_same_however_the_text_was_cut(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(text)))
    repaired = join_repaired([text[:cut], text[cut:]])
    assert repaired == repair_text(text)
    assert repair_text(repaired) == repaired
    repaired.encode()


def test_b42_strip_nul_reaches_every_string_and_name() -> None:
    value = {"a\0": ["\0", {"b\0\0": "x\0y"}, 1, None, True, 1.5], "c": "d"}
    assert strip_nul(value) == {"a": ["", {"b": "xy"}, 1, None, True, 1.5], "c": "d"}
    assert value == {"a\0": ["\0", {"b\0\0": "x\0y"}, 1, None, True, 1.5], "c": "d"}
    assert strip_nul("\0") == ""
    assert strip_nul(7) == 7


def test_b42_b44_strip_nul_does_not_recurse() -> None:
    value: Any = "\0deep"
    for _ in range(50_000):
        value = [value]
    stripped = strip_nul(value)
    for _ in range(50_000):
        (stripped,) = stripped
    assert stripped == "deep"


def test_compact_is_utf8_without_spaces() -> None:
    assert compact({"a": [1, "é", None]}) == '{"a":[1,"é",null]}'.encode()


clean_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | clean_text,
    lambda inner: st.lists(inner) | st.dictionaries(clean_text, inner),
    max_leaves=20,
)


@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_every_storable_value_passes_and_round_trips(value: Any, ascii_only: bool, indent: int | None) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    check_body(body)
    assert scan_value(body) is None
    assert json.loads(compact(msgspec.json.decode(body))) == value
    assert strip_nul(value) == value


def passes_by_the_book(body: bytes) -> bool:
    """The same rules written plainly on json.loads: slow and recursive, but another way to the answer."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("duplicate")
        return dict(pairs)

    def integer(text: str) -> int:
        if len(text) > 30 or not -(2**63) <= int(text) < 2**63:
            raise ValueError("integer")
        return int(text)

    def fraction(text: str) -> float:
        if "inf" in repr(float(text)) or Decimal(text) != Decimal(repr(float(text))):
            raise ValueError("fraction")
        return float(text)

    def constant(_text: str) -> None:
        raise ValueError("constant")

    try:
        value = json.loads(
            body.decode(),
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=fraction,
            parse_constant=constant,
        )
        shown = json.dumps(value, ensure_ascii=False)
        shown.encode()
    except (ValueError, InvalidOperation):
        return False
    return "\\u0000" not in shown.replace("\\\\", "")


FRAGMENTS = [
    *'{}[],:"',
    '"a"',
    '"b":',
    '{"a":',
    "0",
    "-",
    "1",
    ".",
    "e",
    "9" * 18,
    "true",
    "null",
    " ",
    "\n",
    "é",
]
ESCAPES = [
    "\\",
    "\\u",
    "\\u0000",
    "\\ud83d",
    "\\ude00",
    "\\u003a",
    "\\u0061",
    "\\\\",
    '\\"',
    "NaN",
    "\0",
    "\x1f",
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(FRAGMENTS + ESCAPES), max_size=14))
def test_accepts_exactly_what_the_book_accepts(pieces: list[str]) -> None:
    for body in ("".join(pieces).encode(), ('["' + "".join(pieces) + '"]').encode()):
        assert (refused(body) is None) == passes_by_the_book(body)


@settings(max_examples=300)
@given(json_values, st.data())
def test_damaged_json_is_judged_by_the_book(value: Any, data: st.DataObject) -> None:
    body = bytearray(json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert (refused(bytes(body)) is None) == passes_by_the_book(bytes(body))


members_lists = st.recursive(
    st.integers(0, 9).map(str) | st.sampled_from(['":"', '"\\u003a"', '"{\\"a\\":1}"']),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["a", "\\u0061", "b", ":", "\\u003A", ""]), inner), max_size=3
    ).map(lambda pairs: "{" + ",".join(f'"{name}":{text}' for name, text in pairs) + "}"),
    max_leaves=8,
)


@settings(max_examples=300)
@given(members_lists)
def test_law21_duplicates_are_found_exactly(text: str) -> None:
    assert (refused(text.encode()) is None) == passes_by_the_book(text.encode())


@given(st.binary(max_size=40))
def test_scan_never_raises_for_content(raw: bytes) -> None:
    refusal = scan_value(raw)
    if refusal is None:
        compact(strip_nul(msgspec.json.decode(raw)))
