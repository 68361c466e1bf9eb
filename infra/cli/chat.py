"""`minutebook chat`: a conversation with an agent, on a terminal or through a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import uuid
from typing import Annotated, Literal

import typer

from ...domain.ids import is_conversation_id
from ...domain.principals import DEFAULT_TENANT
from ..api_client import Api, Refused, TokenSource
from ..conversation_client import ConversationFollower
from ..sse_client import StreamBroken
from .access import (
    DEFAULT_URL,
    OPERATOR,
    PrincipalName,
    Tenant,
    Token,
    TokenFile,
    Url,
    client_of,
    guarded_call,
    tokens_of,
)
from .chat_view import PROMPT, ChatView
from .common import FINDING, USAGE, DataDir, fail
from .render import complain, remark

DEFAULT_AGENT = "echo"
DEFAULT_TAIL = 10
MAX_TAIL = 200
"""What the server takes (http.md, Conversations)."""


def chat(
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONVERSATION]",
            help="Its id, or a name of your own for it, which starts it the first time.",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDir = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    token_file: TokenFile = None,
    principal: PrincipalName = OPERATOR,
    tenant: Tenant = DEFAULT_TENANT,
    agent: Annotated[str, typer.Option(help="Of a new conversation: the agent of the settings.")] = DEFAULT_AGENT,
    barge_in: Annotated[
        Literal["queue", "interrupt"],
        typer.Option(help="Of a new conversation: what a message does while a reply is on its way."),
    ] = "queue",
    shared: Annotated[
        bool, typer.Option("--shared", help="Of a new conversation: others may take part, whom you name.")
    ] = False,
    tail: Annotated[int, typer.Option(help="Records of before that are shown.")] = DEFAULT_TAIL,
) -> None:
    """Talk with an agent; Ctrl-C stops its reply, and leaves where there is none. Each line is a message."""
    with guarded_call():
        if not 0 <= tail <= MAX_TAIL:
            fail(f"--tail must be 0 to {MAX_TAIL}; `minutebook conversations export` has everything.", USAGE)
        tokens = tokens_of(data_dir, token, token_file, principal, tenant)
        start = {"agent": agent, "bargeIn": barge_in, "mode": "shared" if shared else "owner"}
        try:
            asyncio.run(_chat(url, tokens, conversation, start, tail))
        except StreamBroken as error:
            fail(str(error), FINDING)


async def _chat(url: str, tokens: TokenSource, name: str | None, start: dict[str, str], tail: int) -> None:
    async with client_of(url) as client:
        api = Api(client, tokens)
        if name is None or not is_conversation_id(name):
            body = start if name is None else {**start, "id": name}
            answer = await api.call("POST", "/v1/conversations", body, key=uuid.uuid4().hex)
            conversation_id = str(answer["id"])
        else:
            conversation_id = name
        status = await api.call("GET", f"/v1/conversations/{conversation_id}")
        remark(f"-- conversation {conversation_id} with {status['agent']}; Ctrl-C stops a reply, Ctrl-D leaves")
        follower = ConversationFollower(
            client, tokens, conversation_id, tail=tail, notice=lambda words: remark(f"-- {words}")
        )
        await _Chat(api, conversation_id, follower).run()


class _Chat:
    """One sitting. On a terminal each line goes at once; from a pipe the next one waits for the reply."""

    def __init__(self, api: Api, conversation_id: str, follower: ConversationFollower) -> None:
        self._api = api
        self._path = f"/v1/conversations/{conversation_id}"
        self._follower = follower
        self._view = ChatView()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._moved = asyncio.Event()
        self._sent: set[str] = set()
        self._leave = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the conversation or the input ends, or Ctrl-C with nothing to stop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_ctrl_c)
        tasks = [asyncio.create_task(work) for work in (self._follow(), self._talk(), self._leave.wait())]
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            begun = [*tasks, *([] if self._stopping is None else [self._stopping])]
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
        for task in done:
            task.result()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own: nothing else can wait for a line of a terminal."""
        with contextlib.suppress(RuntimeError, ValueError):  # the loop, or stdin, is closed: nobody waits any more
            for line in sys.stdin:
                loop.call_soon_threadsafe(self._lines.put_nowait, line)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    async def _follow(self) -> None:
        async with contextlib.aclosing(self._follower.frames()) as frames:
            async for frame in frames:
                self._view.show(frame)
                self._moved.set()

    async def _talk(self) -> None:
        is_terminal = sys.stdin.isatty()
        # What is said before the stream begins could be answered before it.
        await self._moved.wait()
        while (line := await self._lines.get()) is not None:
            text = line.rstrip("\n")
            if not text.strip():
                continue
            await self._say(text)
            if not is_terminal:
                await self._answered()
        await self._answered()

    async def _say(self, text: str) -> None:
        message_id = uuid.uuid4().hex
        try:
            answer = await self._api.call(
                "POST", f"{self._path}/turns", {"text": text, "messageId": message_id}, key=message_id
            )
        except Refused as refused:
            if refused.status in (401, 404, 410):
                raise
            complain(f"{PROMPT}{refused.detail}")
            return
        self._view.own.add(str(answer["id"]))
        self._sent.add(str(answer["id"]))

    def _waits(self) -> bool:
        """Whether something that was said here has no reply yet, nor ever will have one."""
        outcomes = self._view.outcomes
        self._sent = {each for each in self._sent if each not in outcomes or outcomes[each] > self._view.answered}
        return bool(self._sent)

    async def _answered(self) -> None:
        while self._waits():
            self._moved.clear()
            await self._moved.wait()

    def _on_ctrl_c(self) -> None:
        """Stop what is on its way; leave where there is nothing, or where it was asked to stop already."""
        is_running = self._waits() or self._view.turn > self._view.answered
        if not is_running or (self._stopping is not None and not self._stopping.done()):
            self._leave.set()
            return
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        view = self._view
        body = {"turn": view.turn, "seen": view.offset} if view.turn > view.answered else {}
        try:
            await self._api.call("POST", f"{self._path}/interrupt", body, key=uuid.uuid4().hex)
        except Refused as refused:
            complain(refused.detail)
        await self._answered()
