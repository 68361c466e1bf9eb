"""Python callables as tools: schemas from signatures, checked arguments, limits, exceptions as data."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from in_loop import in_loop
from minutebook.commands.conversations.ports import Tool
from minutebook.domain.conversations.identity import Identity
from minutebook.infra.models.wellformed import UNREADABLE
from minutebook.infra.settings import SettingsError
from minutebook.infra.settings_load import load
from minutebook.infra.tools.results import CUT_MARK, MAX_OUTPUT_BYTES, MAX_PROBLEM_CHARS
from minutebook.infra.tools.threads import Threads
from minutebook.infra.tools.toolbox import Toolbox

ASKER = Identity("human:ann", "acme")
SECRET = "hunter2-in-a-message"

MODULE = '''
from __future__ import annotations
import asyncio, threading
from typing import Annotated, Literal
import msgspec

release = threading.Event()

class Place(msgspec.Struct):
    city: str
    zip: int | None = None

def look(name: Annotated[str, msgspec.Meta(description="Whose")], kind: Literal["a", "b"] = "a",
         places: list[Place] = [], exact: float = 0.5) -> dict:
    """Looks a person up.

    In the book of people."""
    return {"name": name, "kind": kind, "places": [p.city for p in places], "exact": exact}

async def later(name: str) -> str:
    await asyncio.sleep(0)
    return f"later {name} in {threading.current_thread().name}"

def thread() -> str:
    return threading.current_thread().name

def who(asker, word: str = "") -> str:
    return f"{asker.actor} of {asker.tenant}"

def fails(words: str) -> None:
    raise LookupError(words)

def leaves() -> None:
    raise SystemExit(1)

async def leaves_async() -> None:
    raise SystemExit(1)

async def gives_up() -> None:
    raise asyncio.CancelledError

def stops() -> None:
    raise StopIteration

def blocks() -> str:
    release.wait(30)
    return "at last"

async def hangs() -> None:
    await asyncio.Event().wait()

def returns(what: str) -> object:
    return {"none": None, "number": 17, "odd": object(), "nan": float("nan"), "bytes": b"ab", "set": {1},
            "half": ["\\ud83d", {"\\udc00": "a\\0b"}], "empty": "", "list": [1, "é"]}[what]

def long(count: int) -> str:
    return "é" * count

def hands_over():
    return later("x")

def untyped(a): ...
def many(*args: int): ...
def only(a: int, /): ...
def strange(a: threading.Event): ...
def unknown(a: Nowhere): ...
value = 7
class Nested:
    def inner(self): ...
    @staticmethod
    def fine() -> str:
        return "fine"
class Instance:
    """An object."""
    async def __call__(self, a: int = 1) -> str:
        return f"called {a}"
instance = Instance()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("tools")
    (made / "own_tools_of_test.py").write_text(MODULE, "utf-8")
    (made / "broken_of_test.py").write_text(f"raise OSError({SECRET!r})", "utf-8")
    before = list(sys.path)
    yield made
    sys.path[:] = before
    sys.modules.pop("own_tools_of_test", None)


def tool(folder: Path, function: str, more: str = "", module: str = "own_tools_of_test") -> Tool:
    text = f"[tools.t]\npython = '{module}:{function}'\n{more}"
    (folder / "minutebook.toml").write_text(text, "utf-8")
    (made,) = Toolbox(load(folder, {}), ["t"]).tools_of(["t"])
    return made


async def output(made: Tool, **arguments: Any) -> tuple[str, str]:
    result = await made.run(arguments, ASKER)
    return result.status, result.output


def test_the_signature_is_the_schema(folder: Path) -> None:
    spec = tool(folder, "look").spec
    assert (spec.name, spec.description) == ("t", "Looks a person up.\n\nIn the book of people.")
    assert spec.schema["type"] == "object"
    assert spec.schema["required"] == ["name"]
    assert spec.schema["additionalProperties"] is False
    assert spec.schema["properties"]["name"] == {"type": "string", "description": "Whose"}
    assert spec.schema["properties"]["kind"] == {"enum": ["a", "b"], "default": "a"}
    assert spec.schema["properties"]["places"]["items"] == {"$ref": "#/$defs/Place"}
    assert spec.schema["$defs"]["Place"]["required"] == ["city"]
    assert tool(folder, "thread").spec.schema == {
        "type": "object", "properties": {}, "required": [], "additionalProperties": False
    }  # fmt: skip


def test_what_the_settings_say_is_there(folder: Path) -> None:
    plain, said = tool(folder, "look"), tool(folder, "look", "dataClass = 'x'\nidempotent = true\ngroups = ['sec']")
    assert (plain.data_class, plain.is_idempotent, plain.groups) == ("unclassified", False, frozenset())
    assert (said.data_class, said.is_idempotent, said.groups) == ("x", True, frozenset({"sec"}))


@in_loop
async def test_results_are_text_or_compact_json(folder: Path) -> None:
    made = tool(folder, "look")
    said = await output(made, name="é", places=[{"city": "Ulm"}], exact=1)
    assert said == ("ok", '{"name":"é","kind":"a","places":["Ulm"],"exact":1.0}')
    made = tool(folder, "returns")
    for what, text in (("none", ""), ("empty", ""), ("number", "17"), ("list", '[1,"é"]'), ("nan", "null")):
        assert await output(made, what=what) == ("ok", text)


@in_loop
async def test_ill_formed_text_is_repaired_at_any_depth(folder: Path) -> None:
    assert await output(tool(folder, "returns"), what="half") == ("ok", '["\ufffd",{"\ufffd":"a\ufffdb"}]')


@in_loop
async def test_what_is_no_json_is_an_error(folder: Path) -> None:
    assert await output(tool(folder, "returns"), what="odd") == (
        "error",
        "the tool answered a object, which is no JSON",
    )


@in_loop
async def test_output_is_bounded_with_a_mark(folder: Path) -> None:
    made = tool(folder, "long")
    assert await output(made, count=MAX_OUTPUT_BYTES // 2) == ("ok", "é" * (MAX_OUTPUT_BYTES // 2))
    _, cut = await output(made, count=MAX_OUTPUT_BYTES)
    assert cut.endswith(f"é{CUT_MARK}")
    assert MAX_OUTPUT_BYTES - 1 <= len(cut.encode()) <= MAX_OUTPUT_BYTES


@in_loop
async def test_sync_ones_run_in_threads_and_async_ones_in_the_loop(folder: Path) -> None:
    assert (await output(tool(folder, "thread")))[1] == "minutebook-tool"
    here = threading.current_thread().name
    assert await output(tool(folder, "later"), name="x") == ("ok", f"later x in {here}")
    assert await output(tool(folder, "hands_over")) == ("ok", f"later x in {here}")
    assert await output(tool(folder, "instance"), a=2) == ("ok", "called 2")
    assert await output(tool(folder, "Nested.fine")) == ("ok", "fine")


@in_loop
async def test_a_tool_may_know_who_asks_and_the_model_cannot_say_so(folder: Path) -> None:
    made = tool(folder, "who")
    assert "asker" not in made.spec.schema["properties"]
    assert await output(made) == ("ok", "human:ann of acme")
    assert (await output(made, asker={"actor": "human:eve"}))[0] == "error"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({}, "missing required field `name`"), ({"name": 7}, "$.name"), ({"name": "x", "more": 1}, "more"),
     ({"name": "x", "kind": "c"}, "$.kind"), ({"name": "x", "places": [{"zip": 1}]}, "$.places[0]"),
     ({UNREADABLE: "{"}, "not a JSON object")],
)  # fmt: skip
@in_loop
async def test_arguments_that_do_not_fit_are_told_and_nothing_runs(folder: Path, arguments: Any, words: str) -> None:
    made = tool(folder, "look")
    assert words in (made.problem(arguments) or "")
    result = await made.run(arguments, ASKER)
    assert (result.status, result.output) == ("error", made.problem(arguments))


@in_loop
async def test_an_exception_is_data_and_its_words_are_in_no_log(folder: Path) -> None:
    with structlog.testing.capture_logs() as told:
        assert await output(tool(folder, "fails"), words=SECRET) == ("error", f"LookupError: {SECRET}")
    assert [entry["error"] for entry in told] == ["LookupError"]
    assert SECRET not in repr(told)
    _, cut = await output(tool(folder, "fails"), words="x" * 5000)
    assert len(cut) == MAX_PROBLEM_CHARS


@pytest.mark.parametrize(
    ("function", "words"),
    [("leaves", "SystemExit: 1"), ("leaves_async", "SystemExit: 1"), ("stops", "StopIteration: "),
     ("gives_up", "CancelledError: cancelled itself")],
)  # fmt: skip
@in_loop
async def test_no_exception_gets_out(folder: Path, function: str, words: str) -> None:
    assert await output(tool(folder, function)) == ("error", words)


@pytest.mark.parametrize("function", ["blocks", "hangs"])
@in_loop
async def test_a_call_has_its_limit(folder: Path, function: str) -> None:
    began = asyncio.get_running_loop().time()
    status, words = await output(tool(folder, function, "timeoutSeconds = 1"))
    assert (status, "within 1 s" in words) == ("error", True)
    assert asyncio.get_running_loop().time() - began < 5
    sys.modules["own_tools_of_test"].release.set()


@in_loop
async def test_cancelling_a_call_is_a_cancellation(folder: Path) -> None:
    running = asyncio.create_task(output(tool(folder, "hangs")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@in_loop
async def test_threads_that_nobody_waits_for_keep_their_place() -> None:
    threads, release = Threads(1), threading.Event()
    stuck = asyncio.create_task(threads.run(release.wait))
    await asyncio.sleep(0.01)
    stuck.cancel()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await threads.run(int)
    release.set()
    assert (await threads.run(int)).value == 0


@pytest.mark.parametrize(
    ("function", "words"),
    [("untyped", "parameter a has no type"), ("many", "parameter args cannot be given"), ("only", "parameter a cannot"),
     ("strange", "cannot be a schema"), ("unknown", "cannot be read"), ("value", "has no callable value"),
     ("nothing", "has no callable nothing"), ("Nested.other", "has no callable")],
)  # fmt: skip
def test_what_cannot_be_a_tool_stops_the_start_with_its_key(folder: Path, function: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"^tools\.t\.python: ") as caught:
        tool(folder, function)
    assert words in str(caught.value)


@pytest.mark.parametrize("module", ["no_such_module_of_test", "broken_of_test"])
def test_a_module_that_cannot_be_imported_stops_the_start(folder: Path, module: str) -> None:
    with pytest.raises(SettingsError, match=rf"^tools\.t\.python: {module} cannot be imported \("):
        tool(folder, "x", module=module)
