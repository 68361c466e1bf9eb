"""Nothing is half added: every command has its route and handler, every event its fold, every error code its status."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from minutebook.domain import errors
from minutebook.domain.events import Opaque, Unstorable
from minutebook.domain.rooms import commands as room_commands
from minutebook.domain.rooms.commands import Command
from minutebook.domain.rooms.events import ROOM_EVENTS
from minutebook.http.problems import STATUS, TITLES
from minutebook.infra.postgres.views import PROJECTIONS
from tree import ROOT, parse, python_files

INTERNAL = {
    "NewMember": "a part of OpenRoom",
    "PushedItem": "the head of RawItem, whose payload is checked apart",
    "TurnRunAway": "of a hello, where another run has the room",
    "LapseDriver": "of the sweep of drivers",
    "SweepRun": "of the sweep of runs",
    "StopRun": "EndRun with the run of the path",
    "RevokeRun": "Revocation with the run of the path",
}
"""Commands that no route takes by themselves, with the reason."""

IGNORED = {
    "evolve": {"VerdictPosted", "VerdictNotPosted"},
    "describe": set[str](),
}
"""Events that a fold takes and that change nothing there."""


def names_in(node: ast.AST) -> set[str]:
    """Every name and attribute in a piece of code."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} | {
        each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)
    }


def routes() -> Iterator[ast.AsyncFunctionDef]:
    """Every route handler."""
    for path in python_files("http"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.AsyncFunctionDef) and any(
                isinstance(each, ast.Call) and ast.unparse(each.func) in ("get", "post", "put", "delete", "patch")
                for each in node.decorator_list
            ):
                yield node


def test_every_command_has_a_route_or_is_internal() -> None:
    declared = {
        name for name, kind in vars(room_commands).items()
        if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
    }  # fmt: skip
    routed = {name for route in routes() for name in names_in(route)}
    assert declared - routed == set(INTERNAL)


def decisions() -> set[str]:
    """The decisions of a room: public functions of a command and a context, whatever else they take."""
    return {
        node.name
        for path in python_files("domain/rooms")
        for node in parse(path).body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and {each.arg for each in node.args.args} & {"command", "items"}
        and "context" in {each.arg for each in node.args.args}
    }


def test_every_decision_is_asked_by_a_handler() -> None:
    asked = {name for path in python_files("commands") for name in names_in(parse(path))}
    assert decisions() - asked == set()


def test_every_decision_has_its_tests() -> None:
    """One file a command: a look at the folder shows what is tested."""
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "domain" / "rooms").glob("test_*.py")}
    assert decisions() - tests == {"check_start"}, "check_start is the first half of start_run and tested with it"


def cases(path: str, function: str) -> dict[str, str]:
    """The classes that a function's `match` takes, with the code of their case."""
    tree = parse(ROOT / path)
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    match = next(node for node in ast.walk(found) if isinstance(node, ast.Match))
    return {
        ast.unparse(pattern.cls): "\n".join(map(ast.unparse, case.body))
        for case in match.cases
        for pattern in ast.walk(case.pattern)
        if isinstance(pattern, ast.MatchClass)
    }


FOLDS = [("domain/rooms/state.py", "evolve"), ("projections/transcript.py", "describe")]


@pytest.mark.parametrize(("path", "function"), FOLDS, ids=[function for _, function in FOLDS])
def test_every_event_is_folded_or_listed_as_ignored(path: str, function: str) -> None:
    found = cases(path, function)
    kinds = {event.__name__ for event in ROOM_EVENTS.declared} | {Opaque.__name__, Unstorable.__name__}
    assert set(found) == kinds
    assert {name for name, code in found.items() if code == "return room"} == IGNORED[function]


def test_every_read_model_folds_by_one_of_these() -> None:
    by = {"room_list": "evolve", "transcript": "describe"}
    assert set(PROJECTIONS) == set(by)
    for name, function in by.items():
        assert function in names_in(parse(ROOT / "projections" / f"{name}.py"))


def leaves(kind: type[errors.MinutebookError]) -> Iterator[type[errors.MinutebookError]]:
    """A refusal and all that are derived from it."""
    yield kind
    for inner in kind.__subclasses__():
        yield from leaves(inner)


def test_every_refusal_has_a_status_and_a_title() -> None:
    codes = {kind.code for kind in leaves(errors.MinutebookError)}
    assert codes <= set(STATUS)
    assert set(STATUS) == set(TITLES)
    assert all(title and not title.endswith(".") for title in TITLES.values())


PROMISED = {
    400: "malformed invalid_cursor",
    401: "unauthenticated",
    403: "forbidden client_not_allowed bad_origin run_not_live four_eyes",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    409: "conflict stale_epoch room_busy lease_lost already_decided no_running_run not_queued holds_driver human_drives"
    " digest_mismatch already_ended too_many_pending stale_consent not_replayable full",
    410: "sealed",
    413: "payload_too_large",
    415: "unsupported_media_type",
    422: "invalid idempotency_key_reused too_long reviewer_needs_pr unknown_target fan_out_exceeded",
    429: "rate_limited queue_full",
    500: "internal",
    503: "unavailable",
    504: "timed_out",
}
"""The codes that clients may rely on (http.md, Errors)."""


def test_the_codes_are_those_that_clients_were_promised() -> None:
    promised = {code: status for status, codes in PROMISED.items() for code in codes.split()}
    assert {code: promised.get(code) for code in STATUS} == STATUS
    assert set(promised) == set(STATUS)
