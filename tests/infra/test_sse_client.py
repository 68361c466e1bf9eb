"""The parser of event streams: what the standard allows, in any cut, within bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minutebook.infra.sse_client import MAX_FRAME_BYTES, MAX_LINE_BYTES, Frame, SseParser, StreamBroken

STREAM = (
    b"\xef\xbb\xbfretry: 2000\n\n"
    b": a comment\n\n"
    b'id: 7\nevent: event\ndata: {"seq":7}\n\n'
    b"data\n\n"
    b"event:bare\ndata:no space\ndata:  two\nunknown: field\n\n"
    b"id: 8\n\n"
    b"id: a\0b\nretry: soon\nretry: 100\ndata: caf\xc3\xa9 \xff\n\n"
    b"event: never dispatched\ndata: half"
)
FRAMES = [
    Frame("event", '{"seq":7}', "7"),
    Frame("message", ""),
    Frame("bare", "no space\n two"),
    Frame("message", "caf\u00e9 \ufffd"),
]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@given(cuts=st.lists(st.integers(0, len(STREAM) * 2), max_size=12))
def test_frames_do_not_depend_on_line_ends_or_on_how_the_bytes_were_cut(line_end: bytes, cuts: list[int]) -> None:
    raw = STREAM.replace(b"\n", line_end)
    parser = SseParser()
    frames: list[Frame] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(raw)], strict=True):
        frames += parser.feed(raw[start:end])
    assert frames == FRAMES
    assert parser.retry_s == 0.1


def feed_often(parser: SseParser, chunk: bytes, most: int) -> None:
    for _ in range(most // len(chunk) + 1):
        parser.feed(chunk)


def test_a_line_without_end_and_a_frame_without_end_are_refused() -> None:
    with pytest.raises(StreamBroken, match="longer than"):
        feed_often(SseParser(), b"x" * 65536, MAX_LINE_BYTES)
    with pytest.raises(StreamBroken, match="longer than"):
        SseParser().feed(b"data: " + b"x" * MAX_LINE_BYTES + b"\n\n")
    with pytest.raises(StreamBroken, match="larger than"):
        feed_often(SseParser(), b"data: " + b"x" * 65536 + b"\n", MAX_FRAME_BYTES)


def test_the_longest_line_that_is_allowed_passes() -> None:
    line = b"data: " + b"x" * (MAX_LINE_BYTES - 6)
    assert [len(frame.data) for frame in SseParser().feed(line + b"\n\n")] == [MAX_LINE_BYTES - 6]
