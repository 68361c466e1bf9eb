"""The clearance policy: only exactly True is a yes, asked class by class, and nothing that a callable does holds up
anybody else (conversations.md, Shared mode)."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from in_loop import in_loop
from minutebook.commands.conversations.ports import Viewer
from minutebook.commands.conversations.viewing import viewer_of
from minutebook.domain.conversations.identity import Identity
from minutebook.domain.conversations.visibility import may_see
from minutebook.domain.principals import Caller, Principal
from minutebook.infra.clearance import ClearancePolicy
from minutebook.infra.questions import ANSWER_S, MAX_THREADS
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_clearance import ClearanceSettings
from minutebook.infra.settings_load import load

ANN = Viewer(Identity("human:ann", "acme", "human:bob"), {"groups": ("sec", "ops"), "dept": ("law",)})

MODULE = """
import asyncio, sys, threading

asked, release, times = [], threading.Event(), {}

def cleared(viewer, classes):
    asked.append((viewer, classes))
    name, = classes
    times[name] = times.get(name, 0) + 1
    if name == "raises": raise LookupError("canary-in-a-message")
    if name == "leaves": sys.exit(1)
    if name == "interrupts": raise KeyboardInterrupt
    if name == "cancels": raise asyncio.CancelledError
    if name == "hangs": release.wait(20); return True
    if name == "coroutine": return later(viewer, classes)
    if name == "spoils": viewer["groups"] = viewer["claims"]["groups"] = ("spoilt",)
    if name == "seen": return viewer["groups"] == ("sec", "ops")
    return {"yes": True, "one": 1, "text": "yes", "none": None, "equal": Same()}.get(name, False)

async def later(viewer, classes):
    await asyncio.sleep(0)
    name, = classes
    if name == "never": await asyncio.sleep(20)
    if name == "blocks": release.wait(20)
    if name == "raises": raise LookupError("canary-in-a-message")
    if name == "coroutine": return later(viewer, classes)
    return {"yes": True, "one": 1}.get(name)

class Same:
    __bool__ = lambda self: True
    __eq__ = lambda self, other: True
    __hash__ = None

class Asked:
    async def __call__(self, viewer, classes, more=None):
        return await later(viewer, classes)

asks = Asked()
one = lambda viewer: True
words = "none"
"""

PATIENT_S = 20.0
"""What a callable has that answers at once, on a machine that is busy."""

_names = itertools.count()


class Desk:
    """A policy with a callable of a module of its own."""

    def __init__(self, folder: Path, path: str, answer_s: float = PATIENT_S) -> None:
        self.name = f"clearance_desk_{next(_names)}"
        (folder / f"{self.name}.py").write_text(MODULE)
        self.policy = ClearancePolicy(ClearanceSettings(python=f"{self.name}:{path}"), folder, answer_s)

    @property
    def module(self) -> Any:
        """The callable's module."""
        return sys.modules[self.name]

    async def says(self, *names: str) -> bool:
        """Whether one set of these classes is cleared for Ann."""
        return (await self.policy.resolve(ANN, [names]))[frozenset(names)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("clearance_desk_")]:
        sys.modules.pop(name).release.set()
    sys.path[:] = [each for each in sys.path if each != str(tmp_path)]


def labelled(toml: str, folder: Path) -> ClearancePolicy:
    (folder / "minutebook.toml").write_text(toml)
    return ClearancePolicy(load(folder, {}).clearance, folder)


@in_loop
async def test_labels_of_groups_and_claims_clear_the_sets_that_they_hold(tmp_path: Path) -> None:
    toml = """
    [clearance]
    groups = { sec = ["secret", "internal"], none = ["never"] }
    claims = { dept = { law = ["privileged"], hr = ["personal"] } }
    [clearance.tenants.beta]
    groups = { ops = ["secret"] }
    """
    policy = labelled(toml, tmp_path)
    assert policy.labels(ANN) == {"secret", "internal", "privileged"}
    sets = [["secret"], ["privileged", "secret", "secret"], ["secret", "unknown"], ["personal"], []]
    assert await policy.resolve(ANN, sets) == {
        frozenset({"secret"}): True,
        frozenset({"secret", "privileged"}): True,
        frozenset({"secret", "unknown"}): False,
        frozenset({"personal"}): False,
    }
    assert await policy.resolve(ANN, [[], ()]) == {}
    for tenant, labels in (("beta", {"secret"}), ("gamma", {"secret", "internal", "privileged"})):
        viewer = Viewer(Identity("human:ann", tenant), ANN.claims)
        assert policy.labels(viewer) == labels, "a tenant with a section of its own has that alone"
    assert policy.labels(Viewer(ANN.identity)) == frozenset(), "claims that are too old are none"


def test_the_version_says_what_the_policy_is_made_of(folder: Path) -> None:
    same = [labelled("[clearance]\ngroups = { a = ['x'], b = ['y'] }", folder) for _ in range(2)]
    other = labelled("[clearance.tenants.t]\ngroups = { a = ['x'], b = ['y'] }", folder)
    assert same[0].version == same[1].version != other.version
    assert len(other.version) == 16


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *(("yes", True), ("one", False), ("text", False), ("none", False), ("equal", False), ("coroutine", False)),
        *(("raises", False), ("leaves", False), ("interrupts", False), ("cancels", False), ("unknown", False)),
    ],
)
@in_loop
async def test_only_exactly_true_is_a_yes(folder: Path, name: str, answer: bool) -> None:
    with structlog.testing.capture_logs() as lines:
        desk = Desk(folder, "cleared")
        assert await desk.says(name) is answer
        assert await desk.says("yes", name) is answer
        assert may_see([name], await desk.policy.resolve(ANN, [[name]])) is answer
    assert desk.policy.labels(ANN) is None
    assert "canary" not in repr(lines), "an exception's message could say what was asked"


@pytest.mark.parametrize("path", ["later", "asks"])
@in_loop
async def test_an_async_callable_is_awaited(folder: Path, path: str) -> None:
    desk = Desk(folder, path)
    names = ["yes", "one", "raises", "coroutine", "none"]
    assert [name for name in names if await desk.says(name)] == ["yes"]
    assert not await Desk(folder, path, ANSWER_S).says("never")


@in_loop
async def test_a_callable_gets_one_class_and_who_looks(folder: Path) -> None:
    desk = Desk(folder, "cleared")
    sets = [["yes", "one"], ["yes"], [], ["yes", "text"], ["one", "yes"]]
    answers = await desk.policy.resolve(ANN, sets)
    assert answers == {frozenset(each): each == ["yes"] for each in sets if each}
    assert desk.module.times == {"yes": 1, "one": 1, "text": 1}, "each class once in one call"
    viewer, classes = desk.module.asked[0]
    assert all(len(each) == 1 for _, each in desk.module.asked)
    assert isinstance(classes, frozenset)
    assert viewer == {
        "tenant": "acme",
        "actor": "human:ann",
        "onBehalfOf": "human:bob",
        "groups": ("sec", "ops"),
        "claims": {"groups": ("sec", "ops"), "dept": ("law",)},
    }
    await desk.says("yes")
    assert desk.module.times["yes"] == 2, "nothing is kept from one call to the next"
    await desk.says("spoils")
    assert await desk.says("seen"), "what a callable does to what it gets stays without effect"


@in_loop
async def test_callables_that_hang_hold_up_nobody_else(folder: Path) -> None:
    desk = Desk(folder, "cleared", ANSWER_S)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    ticking = asyncio.create_task(ticks_until(stop))
    hanging = [asyncio.create_task(desk.says("hangs")) for _ in range(MAX_THREADS - 1)]
    await says_yes_at_last(desk)  # while there is a thread left
    assert await asyncio.gather(*hanging) == [False] * len(hanging)
    assert not await desk.says("hangs")
    began = loop.time()
    assert [await desk.says("yes") for _ in range(200)] == [False] * 200
    assert loop.time() - began < 200 * ANSWER_S, "no later question waits for a thread while all of them hang"
    stop.set()
    assert await ticking > 5, "the loop went on"
    desk.module.release.set()
    await says_yes_at_last(desk)


@in_loop
async def test_an_async_callable_that_blocks_blocks_its_thread_alone(folder: Path) -> None:
    desk = Desk(folder, "later", ANSWER_S)
    stop = asyncio.Event()
    ticking = asyncio.create_task(ticks_until(stop))
    assert not await desk.says("blocks")
    stop.set()
    assert await ticking > 5
    await says_yes_at_last(desk)


@in_loop
async def test_who_goes_away_leaves_no_question_behind_that_counts(folder: Path) -> None:
    desk = Desk(folder, "cleared")
    gone = asyncio.create_task(desk.says("hangs"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert await desk.says("yes")


@in_loop
async def test_tenants_have_callables_of_their_own(folder: Path) -> None:
    name = Desk(folder, "cleared").name
    toml = f"""
    [clearance]
    groups = {{ sec = ["one"] }}
    [clearance.tenants.acme]
    python = "{name}:cleared"
    """
    policy = labelled(toml, folder)
    assert (policy.labels(ANN), await policy.resolve(ANN, [["one"]])) == (None, {frozenset({"one"}): False})
    other = Viewer(Identity("human:ann", "beta"), ANN.claims)
    assert await policy.resolve(other, [["one"]]) == {frozenset({"one"}): True}


@pytest.mark.parametrize(
    ("path", "words"),
    [("absent", "no callable absent"), ("words", "no callable words"), ("one", "two arguments")],
)
def test_what_is_no_callable_of_two_stops_the_start(folder: Path, path: str, words: str) -> None:
    with pytest.raises(SettingsError, match=rf"^clearance\.python: .*{words}"):
        Desk(folder, path)


def test_a_module_that_there_is_not_stops_the_start_with_its_key(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^clearance\.tenants\.acme\.python: no_such_module cannot be imported"):
        labelled("[clearance.tenants.acme]\npython = 'no_such_module:cleared'", folder)


def test_the_viewer_of_a_request_has_the_identity_and_the_claims_of_the_token() -> None:
    caller = Caller(Principal("human", "bob"), "acme", delegate=Principal("human", "ann"), claims=dict(ANN.claims))
    assert viewer_of(caller) == ANN


async def ticks_until(stop: asyncio.Event) -> int:
    """How often the loop came round meanwhile."""
    ticks = 0
    while not stop.is_set():
        ticks += 1
        await asyncio.sleep(0.01)
    return ticks


async def says_yes_at_last(desk: Desk) -> None:
    """A busy machine may be late once, and is not late for ever."""
    async with asyncio.timeout(PATIENT_S):
        while not await desk.says("yes"):
            pass
