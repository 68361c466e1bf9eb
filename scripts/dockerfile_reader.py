"""Read a Dockerfile and a .dockerignore, as far as this house uses them; refuse what is beyond that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTIONS = frozenset({"CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "RUN", "USER", "WORKDIR"})
"""All that may follow a FROM."""

IMAGE = re.compile(r"python:\d+\.\d+[\w.-]*")


class UnknownError(Exception):
    """The Dockerfile holds something that this script does not know how to run."""


@dataclass(frozen=True)
class Step:
    """One instruction: its upper-case name, the rest of its logical line, and where it starts."""

    name: str
    rest: str
    line: int


@dataclass
class Stage:
    """One FROM with its steps."""

    image: str
    name: str
    steps: list[Step] = field(default_factory=list[Step])


def read_steps(text: str) -> list[Step]:
    """The instructions of a Dockerfile, continuation lines joined, comments left out."""
    steps: list[Step] = []
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or (not line.strip() and not pending):
            continue
        start = start if pending else number
        pending += line.rstrip()
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        name, _, rest = pending.strip().partition(" ")
        if "<<" in rest:
            raise UnknownError(f"line {start}: here-documents are not supported")
        steps.append(Step(name.upper(), rest.strip(), start))
        pending = ""
    if pending:
        raise UnknownError(f"line {start}: the last line ends in a backslash")
    return steps


def read_stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile. Raises UnknownError for an instruction or image that this house does not use."""
    stages: list[Stage] = []
    for step in read_steps(text):
        if step.name != "FROM":
            if not stages:
                raise UnknownError(f"line {step.line}: {step.name} before the first FROM")
            if step.name not in INSTRUCTIONS:
                raise UnknownError(f"line {step.line}: {step.name} is not known to this script")
            stages[-1].steps.append(step)
            continue
        words = step.rest.split()
        named = len(words) == 3 and words[1].upper() == "AS"
        if not (named or len(words) == 1) or not IMAGE.fullmatch(words[0]):
            raise UnknownError(f"line {step.line}: FROM takes python:<version> here, and AS name")
        stages.append(Stage(words[0], words[2] if named else str(len(stages))))
    if not stages:
        raise UnknownError("there is no FROM")
    return stages


class Ignore:
    """The rules of a .dockerignore: the last one that matches a path or one of its parents decides."""

    def __init__(self, path: Path) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        for line in path.read_text().splitlines() if path.exists() else []:
            rule = line.strip()
            if not rule or rule.startswith("#"):
                continue
            if re.search(r"[\[\]\\]", rule):
                raise UnknownError(f"{path.name}: {rule}: brackets and backslashes are not supported")
            keep = rule.startswith("!")
            self._rules.append((keep, _pattern(rule.lstrip("!").strip("/"))))

    def drops(self, relative: Path) -> bool:
        """Whether the build does not get to see the file."""
        dropped = False
        names = [relative.as_posix(), *(p.as_posix() for p in relative.parents if p != Path())]
        for keep, pattern in self._rules:
            if any(pattern.fullmatch(name) for name in names):
                dropped = not keep
        return dropped


def _pattern(rule: str) -> re.Pattern[str]:
    kinds = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", rule)
    return re.compile("".join(kinds.get(part, re.escape(part)) for part in parts))
