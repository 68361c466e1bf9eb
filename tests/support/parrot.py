"""A model's service that tells all it was shown: whatever reaches a prompt comes out in the answer.

It obeys words of the question: `use <tool>` calls that tool first (`memory_write` with all it saw), `fail with <words>`
answers 400 with these words backwards, `hold <words>` says all it saw, waits to be let go on, and then says these words
backwards. Backwards, so that they can be told from those of the question.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from model_service import openai_chunk, openai_text

SEEN = re.compile(r"zq[0-9a-f]{24}")
"""What it takes for worth telling: words of canaries.canary. Whole prompts would double with every turn."""

HOLD_S = 20.0
"""It goes on by itself after so long."""

_ORDER = re.compile(r"\b(use|hold|fail with) ([\w ]+)")


class Parrot(ThreadingHTTPServer):
    """prompts: all texts of each request that came, its last message last. held: set while an answer waits; let_go:
    set to have it go on."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.prompts: list[list[str]] = []
        self.held = threading.Event()
        self.let_go = threading.Event()

    @property
    def url(self) -> str:
        """What an agent of the provider `openai` has as its baseUrl."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def asked_by(self, mark: str) -> str:
        """Every prompt whose question, or whose tool's result, follows on words with `mark`."""
        return json.dumps([each for each in self.prompts if any(mark in text for text in each[-3:])])


class _Answering(BaseHTTPRequestHandler):
    server: Parrot
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        """Nothing."""

    def do_POST(self) -> None:
        """One request of a model."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body["messages"]
        self.server.prompts.append([json.dumps(each) for each in messages])
        words = f"seen: {' '.join(sorted(set(SEEN.findall(json.dumps(body)))))}"
        said = _text(messages[-1])
        order = _ORDER.search(said[said.find("asks:") :]) if messages[-1]["role"] == "user" else None
        if order is None:
            return self._stream(*openai_text(words))
        if order[1] == "use":
            arguments = json.dumps({"key": "note", "text": words} if order[2] == "memory_write" else {})
            called = {"name": order[2], "arguments": arguments}
            call = {"index": 0, "id": "c1", "type": "function", "function": called}
            return self._stream(
                openai_chunk({"role": "assistant", "tool_calls": [call]}),
                openai_chunk({}, "tool_calls"),
                b"data: [DONE]\n\n",
            )
        if order[1] == "fail with":
            return self._refuse(order[2][::-1])
        return self._hold(words, order[2][::-1])

    def _refuse(self, words: str) -> None:
        said = json.dumps({"error": {"message": words, "code": "bad_request"}}).encode()
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def _hold(self, words: str, later: str) -> None:
        self._begin()
        for chunk in openai_text(f"{words} and ")[:2]:
            self._chunk(chunk)
        self.server.held.set()
        self.server.let_go.wait(HOLD_S)
        for chunk in openai_text(later)[1:]:
            self._chunk(chunk)
        self._chunk(b"")

    def _stream(self, *chunks: bytes) -> None:
        self._begin()
        for chunk in (*chunks, b""):
            self._chunk(chunk)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _chunk(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)


@contextlib.contextmanager
def parrot() -> Generator[Parrot]:
    """One that serves until the end."""
    with Parrot() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.let_go.set()
            server.shutdown()
            thread.join()
