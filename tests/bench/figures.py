"""One measured figure beside its reference, and the table and file that `make bench` leaves."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec


class Figure(msgspec.Struct, frozen=True, rename="camel"):
    """value in unit; reference in the same unit, measured in the same run; ratio and goal; whether it is met."""

    name: str
    value: float
    unit: str
    reference: float
    ratio: float
    goal: float
    met: bool

    @classmethod
    def ratio_of(cls, name: str, value: float, unit: str, reference: float, goal: float) -> Figure:
        """A rate that must be at least `goal` times its reference."""
        ratio = value / reference
        return cls(name, value, unit, reference, ratio, goal, ratio >= goal)

    @classmethod
    def at_most(cls, name: str, value: float, unit: str, goal: float, reference: float | None = None) -> Figure:
        """A figure that must be at most `goal`; with a reference, at most `goal` times it."""
        base = reference if reference is not None else goal
        ratio = value / base
        return cls(name, value, unit, base, ratio, goal, (ratio if reference is not None else value) <= goal)


def log(text: str) -> None:
    """Progress on stderr."""
    sys.stderr.write(f"bench: {text}\n")
    sys.stderr.flush()


def table(figures: Sequence[Figure]) -> str:
    """A Markdown table."""
    lines = ["| figure | value | reference | ratio | goal | met |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.value:,.1f} {each.unit} | {each.reference:,.1f} | {each.ratio:.2f} |"
        f" {each.goal:g} | {'yes' if each.met else 'no'} |"
        for each in figures
    ]
    return "\n".join(lines)


def write(figures: Sequence[Figure], path: Path) -> None:
    """`build/bench.json` of http.md: {name: {value, unit, reference, ratio, goal, met}}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = {}
    for each in figures:
        fields = msgspec.to_builtins(each)
        body[fields.pop("name")] = fields
    path.write_bytes(msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n")
