"""What the tests of bad input share: bodies, and what a refusal must look like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

JSON = {"content-type": "application/json"}


def head(client: httpx.Client, room: str) -> int:
    """The room's last seq."""
    return client.get(f"/v1/rooms/{room}").json()["throughSeq"]


def named(rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Rows for parametrize whose first column is their name."""
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def nested(levels: int, kind: str) -> str:
    """That many arrays or objects in one another."""
    return "[" * levels + "]" * levels if kind == "array" else '{"a":' * levels + "1" + "}" * levels


def refused(answer: httpx.Response, status: int, code: str, path: str | None = None) -> None:
    """That refusal, with all fields, and with the path where one is named."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert len(answer.content) < 2_000
    if path is not None:
        assert [error["path"] for error in answer.json()["errors"]] == [path]


def refuse_constant(name: str) -> None:
    """parse_constant of json.loads: an answer has no NaN and no infinity."""
    raise AssertionError(f"the answer has {name} in it")
