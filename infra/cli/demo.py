"""`minutebook demo`: a server, a room, an agent's run, a viewer, and what the guards say; each step is checked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import typer

from ...commands.deliveries.operators import OPERATORS
from ...domain.errors import MinutebookError
from ...domain.ids import short_id
from ...domain.principals import DEFAULT_TENANT, Principal
from ..api_client import Api, Refused, Unreachable
from ..bridge_approvals import Verdict
from ..bridge_feed import RunOver
from ..database import Database
from ..dev_issuer import DevelopmentIssuer
from ..postgres.export import verify_database
from ..postgres.rebuild import RebuildError, Report
from ..postgres.rebuild import rebuild as run_rebuild
from ..postgres.trial import try_to_rewrite
from ..postgres.views import PROJECTIONS
from ..settings import Settings, SettingsError
from ..settings_load import load
from ..sse_client import Follower
from ..swe_agent import Run, read_run, with_run_id
from .access import MEMBERS, OPERATOR, Issued, client_of, guarded_call
from .common import FINDING, DataDir, fail
from .demo_channels import Chats, deliver
from .demo_runs import HANDOFF, PULL_REQUEST, RunFailed, Worker, meanwhile, review
from .demo_server import DemoServer, ServerFailed
from .demo_shared import share
from .demo_talk import TalkFailed, talk
from .play import Pace, pace_of
from .render import printable, say
from .tail import Viewer

DEFAULT_DATA_DIR = Path(".demo")
RECORDING = "release-notes.traj"
VIEWER = "human:viewer"
WORDS = "Nice. I read along while you work: the log keeps both of us."
STEERING = "Name the oldest release in the test, too."

CATCH_UP_S = 10.0
"""Longest wait for the viewer and for the read models to be where the log is."""

LOOK_AGAIN_S = 0.2

TOKEN_TTL_S = 12 * 3600
"""Life of the token that the demo leaves with its user."""


class StepFailed(Exception):
    """A step did not show what it is there to show."""


class _Scene(msgspec.Struct, frozen=True):
    settings: Settings
    issuer: DevelopmentIssuer
    database: Database
    server: DemoServer
    pace: Pace
    chats: Chats


def demo(
    data_dir: DataDir = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the server [default: 8080, or the next free one].", show_default=False)
    ] = None,
    speed: Annotated[str | None, typer.Option(help="Factor on the recorded times, such as 2x.")] = None,
    stop: Annotated[bool, typer.Option("--stop", "--no-linger", help="Stop the server at the end.")] = False,
) -> None:
    """Show it all on an embedded database of its own (.demo), and leave the server running."""
    with guarded_call():
        pace = pace_of(None, speed)
        # Variables of the environment may point at a real server's database; the demo is none of its business.
        settings = load((data_dir or DEFAULT_DATA_DIR).absolute(), {})
        if settings.database.url is not None:
            raise SettingsError("database.url is set in this data directory; the demo needs one with its own database.")
        try:
            room_id = _run(settings, port, pace, stop=stop)
        except StepFailed as failed:
            fail(printable(str(failed)), FINDING)
        if stop:
            say(f"All steps passed; room {room_id} is in {settings.data_dir}.")


def _run(settings: Settings, port: int | None, pace: Pace, *, stop: bool) -> str:
    number = itertools.count(1)
    chats = Chats(settings.data_dir)
    with _step(next(number), "Start a server on its embedded PostgreSQL"):
        server = DemoServer.start(settings.data_dir, port, chats.write_config(settings.data_dir))
        _say(f"serving on {server.url}")
    try:
        issuer = DevelopmentIssuer.open(settings.data_dir)
        with Database(settings) as database:
            scene = _Scene(settings, issuer, database, server, pace, chats)
            room_id, head = asyncio.run(_live(scene, number))
            _look_back(scene, room_id, head, number)
    except BaseException:
        server.stop()
        raise
    finally:
        chats.close()
    if stop:
        server.stop()
    else:
        _leave(scene, room_id)
    return room_id


async def _live(scene: _Scene, number: Iterator[int]) -> tuple[str, int]:
    """Steps over HTTP; the room's id, and the last seq in it."""
    async with client_of(scene.server.url) as client:
        people = Api(client, Issued(scene.issuer, Principal.parse(OPERATOR), DEFAULT_TENANT, (MEMBERS,)))
        viewer = Api(client, Issued(scene.issuer, Principal.parse(VIEWER), DEFAULT_TENANT, (MEMBERS,)))
        recorded = _recording()
        with _step(next(number), "Open a room"):
            cast = _Cast(scene, client, people, viewer, await _open(people, recorded.title))
            _say(f"room {cast.room_id}: {recorded.title}")
        async with _watching(Follower(client, viewer.token, cast.room_id, after=0)) as watch:
            await _work(cast, recorded, number)
            with _step(next(number), "A reviewer goes on from the room's brief"):
                head = await _review(cast)
                await watch.reach(head)
        with _step(next(number), "A person talks with an agent that the server runs, and stops it"):
            await talk(client, people, _say)
        with _step(next(number), "Two people share a conversation; one of them is not cleared for all of it"):
            await share(client, people, viewer, VIEWER, _say)
        with _step(next(number), "A person links two chats, walks away, and is answered where they were last"):
            operator = Issued(scene.issuer, Principal.parse(OPERATOR), DEFAULT_TENANT, (OPERATORS,))
            await deliver(client, scene.chats, Api(client, operator), _say)
        with _step(next(number), "The viewer has what the log has"):
            if watch.seqs != list(range(1, len(watch.seqs) + 1)) or len(watch.seqs) < head:
                raise StepFailed(f"The viewer saw {len(watch.seqs)} entries, but the log has {head}.")
            _say(f"entries 1 to {head}, each once, in order")
        await people.call("GET", f"/v1/rooms/{cast.room_id}/transcript", params={"minSeq": head, "limit": 1})
        return cast.room_id, head


async def _open(people: Api, title: str) -> str:
    """A room of the operator, where the viewer may decide what a run asks for."""
    members = [{"principal": VIEWER, "role": "watcher", "approver": True}]
    body = {"dataClass": "internal", "title": title, "members": members}
    answer = await people.call("POST", "/v1/rooms", body, key=secrets.token_hex(16))
    return str(answer["id"])


class _Cast(msgspec.Struct, frozen=True):
    """Who acts in the room. people: its owner, who drives it."""

    scene: _Scene
    client: httpx.AsyncClient
    people: Api
    viewer: Api
    room_id: str

    def run(self, run_id: str, role: str) -> Api:
        """A run of the room."""
        principal = Principal("agent", run_id)
        return Api(self.client, Issued(self.scene.issuer, principal, DEFAULT_TENANT, (), self.room_id, role))

    async def send(self, api: Api, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """A command of the room."""
        return await api.call("POST", f"/v1/rooms/{self.room_id}/{what}", body, key=secrets.token_hex(16))


async def _work(cast: _Cast, recorded: Run, number: Iterator[int]) -> None:
    """The implementer's run, from its hello to its handoff."""
    run_id = short_id(secrets.randbits(40))
    worker = Worker(cast.run(run_id, recorded.role), run_id, with_run_id(recorded, run_id), cast.scene.pace)
    async with contextlib.AsyncExitStack() as stack:
        with _step(next(number), "An agent works in it, a person watches live, another one speaks and steers"):
            task = await stack.enter_async_context(worker.at_work())
            await meanwhile(task, worker.is_halfway.wait())
            await _steer(cast)
            async with asyncio.timeout(CATCH_UP_S):
                await meanwhile(task, worker.is_steered.wait())
            await meanwhile(task, worker.is_asking.wait())
        with _step(next(number), "It waits for leave to open a pull request, and the viewer decides"):
            verdict, _ = await meanwhile(task, _both(worker.ask(), _decide(cast)))
            if not verdict.allow:
                raise StepFailed(f"The viewer approved, but the run was told: {verdict.decision}.")
        with _step(next(number), "It hands over to a reviewer, and ends"):
            await worker.hand_over(task)


async def _steer(cast: _Cast) -> None:
    await cast.send(cast.people, "messages", {"text": WORDS})
    room = await cast.people.call("GET", f"/v1/rooms/{cast.room_id}")
    body = {"text": STEERING, "delivery": "steering", "driverEpoch": room["driverEpoch"]}
    await cast.send(cast.people, "messages", body)


async def _both(asking: Coroutine[Any, Any, Verdict], deciding: Coroutine[Any, Any, None]) -> tuple[Verdict, None]:
    return await asyncio.gather(asking, deciding)


async def _decide(cast: _Cast) -> None:
    """As a viewer would: look at the card, then approve exactly what it shows."""
    url = f"/v1/rooms/{cast.room_id}/approvals"
    async with asyncio.timeout(CATCH_UP_S):
        while not (cards := (await cast.viewer.call("GET", url))["approvals"]):  # noqa: ASYNC110 - the list is asked for
            await asyncio.sleep(LOOK_AGAIN_S)
    card = cards[0]
    _say(f"agent:{card['runId']} asks for {card['class']}: {card['action']['command']}")
    body = {"decision": "approved", "actionDigest": card["actionDigest"]}
    await cast.send(cast.viewer, f"approvals/{card['approvalId']}/decision", body)
    _say(f"{VIEWER} approves it")


async def _review(cast: _Cast) -> int:
    """The reviewer's run; the room's last seq."""
    asked = await cast.send(cast.people, "runs", {"role": "reviewer", "pullRequest": PULL_REQUEST})
    if HANDOFF not in str(asked["brief"]):
        raise StepFailed("The reviewer's brief does not have the handoff.")
    _say(f"run {asked['runId']} is told: {HANDOFF}")
    return await review(cast.run(str(asked["runId"]), "reviewer"))


class _Watch:
    """A viewer at work: the seqs it has shown, in order."""

    def __init__(self, follower: Follower) -> None:
        self.seqs: list[int] = []
        self._follower = follower
        self._viewer = Viewer()
        self._moved = asyncio.Event()

    async def run(self) -> None:
        """Show what comes, for ever."""
        async with contextlib.aclosing(self._follower.frames()) as frames:
            async for frame in frames:
                self._viewer.show(frame)
                if frame.event == "event":
                    self.seqs.append(self._viewer.seq)
                    self._moved.set()

    async def reach(self, seq: int) -> None:
        """Return when the viewer has shown `seq`, or after CATCH_UP_S."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while not self.seqs or self.seqs[-1] < seq:
                    self._moved.clear()
                    await self._moved.wait()


@contextlib.asynccontextmanager
async def _watching(follower: Follower) -> AsyncGenerator[_Watch]:
    watch = _Watch(follower)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _look_back(scene: _Scene, room_id: str, head: int, number: Iterator[int]) -> None:
    """Steps straight at the database."""
    with _step(next(number), "Verify the hash chain"):
        report = verify_database(scene.database.url("auditor"), room_id)
        if not report.ok or report.events < head:
            raise StepFailed(f"The chain does not hold: {report.findings or f'{report.events} events of {head}'}.")
        _say(f"{report.events} events, head {report.head}")
    with _step(next(number), "Try to rewrite the log as the server's own database role"):
        for trial in try_to_rewrite(scene.database.url("app")):
            if trial.refusal is None:
                raise StepFailed(f"The database let this pass: {trial.statement}")
            _say(f"{trial.statement}\n    refused: {trial.refusal} ({trial.sqlstate})")
    with _step(next(number), "Compare every read model with the log"):
        for report in asyncio.run(_compared(scene.database.url("projector"))):
            if report.differences or report.parked or report.compared != report.streams:
                raise StepFailed(
                    f"The read model {report.projection} is not what the log says; see `minutebook doctor`."
                )
            _say(f"{report.projection}: {report.compared} of {report.streams} streams are as the log says")


async def _compared(url: str) -> list[Report]:
    """The reports once the live projectors are where the log is, or the last ones after CATCH_UP_S."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CATCH_UP_S
    while True:
        reports = [run_rebuild(url, projection, check=True) for projection in PROJECTIONS.values()]
        if all(report.compared == report.streams for report in reports) or loop.time() > deadline:
            return reports
        await asyncio.sleep(LOOK_AGAIN_S)


def _leave(scene: _Scene, room_id: str) -> None:
    url, folder = scene.server.url, scene.settings.data_dir
    now = time.time()
    token = scene.issuer.issue(Principal.parse(OPERATOR), DEFAULT_TENANT, (MEMBERS,), TOKEN_TTL_S, now=now)
    say("\nThe server goes on.", "bold")
    script = Path(sys.executable).with_name("minutebook")  # beside the Python that runs this, in or out of the PATH
    command = "minutebook" if shutil.which("minutebook") else str(script)
    watch = shlex.join([command, "tail", room_id, "--url", url, "--data-dir", str(folder)])
    for name, value in (
        ("url", url),
        ("room", room_id),
        ("token", token),
        ("watch", watch),
        ("log", str(scene.server.log_path)),
        ("stop", f"kill {scene.server.pid}"),
    ):
        say(f"  {name:<6} {value}")


def _recording() -> Run:
    package = (__package__ or "").rpartition(".")[0]
    with resources.as_file(resources.files(package) / "demo" / RECORDING) as path:
        return read_run(path)


@contextlib.contextmanager
def _step(number: int, what: str) -> Generator[None]:
    say(f"\n{number}. {what}", "bold blue")
    try:
        yield
    except TimeoutError as error:
        raise StepFailed(f"Step {number} failed: nothing came within {CATCH_UP_S:.0f} s.") from error
    except (Refused, Unreachable, RunOver, RunFailed, TalkFailed, ServerFailed, RebuildError, MinutebookError) as error:
        raise StepFailed(f"Step {number} failed: {error}") from error
    say("   passed", "green")


def _say(words: str) -> None:
    say(f"   {words}")
