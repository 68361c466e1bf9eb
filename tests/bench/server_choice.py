"""uvicorn against granian under this application: commands, and SSE fan-out. Prints a table; run it on a quiet machine.

python tests/bench/server_choice.py
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
from load import request, run
from minutebook.domain.principals import Principal
from minutebook.infra.dev_issuer import DevelopmentIssuer

HERE = Path(__file__).parent
ROUNDS = 3
SECONDS = 4.0
VIEWERS = 200
POSTS = 40
EXIT_S = 12.0
"""As long as the exit is waited for."""

PORT = 18_431


def command(server: str, port: int) -> list[str]:
    """How each server is started: one worker, uvloop, no access log."""
    if server == "uvicorn":
        return [sys.executable, "-m", "uvicorn", "server_app:app", "--port", str(port), "--loop", "uvloop", "--http",
                "httptools", "--no-access-log", "--lifespan", "off", "--log-level", "error"]  # fmt: skip
    return [sys.executable, "-m", "granian", "--interface", "asginl", "server_app:app", "--port", str(port), "--loop",
            "uvloop", "--no-access-log", "--log-level", "error", "--workers", "1"]  # fmt: skip


def resident_kib(pid: int) -> float:
    """Resident memory of a process and its children."""
    parent = psutil.Process(pid)
    return sum(each.memory_info().rss for each in (parent, *parent.children(recursive=True))) / 1024


async def fan_out(port: int, room: str, token: str, pid: int) -> tuple[float, float, float]:
    """Median ms from a POST to the last of VIEWERS viewers, KiB a stream, and seconds from SIGTERM to the exit."""
    before = resident_kib(pid)
    head = f"GET /v1/rooms/{room}/stream?tail=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    streams = []
    for _ in range(VIEWERS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode())
        await reader.readuntil(b"event: state")
        streams.append((reader, writer))
    await asyncio.sleep(0.5)
    times: list[float] = []
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for n in range(POSTS):
        mark = f'"n{n}-"'.encode()
        began = time.perf_counter()
        writer.write(request("POST", f"/v1/rooms/{room}/messages", token, b'{"text":"n%d-"}' % n))
        await asyncio.gather(*(each.readuntil(mark) for each, _ in streams))
        times.append((time.perf_counter() - began) * 1000)
    each_kib = (resident_kib(pid) - before) / VIEWERS
    began = time.perf_counter()
    psutil.Process(pid).terminate()
    gone, _ = await asyncio.to_thread(psutil.wait_procs, [psutil.Process(pid)], EXIT_S)
    exit_s = time.perf_counter() - began if gone else EXIT_S
    for _, stream in streams:
        stream.close()
    writer.close()
    return statistics.median(times), each_kib, exit_s


def measure(server: str, data_dir: str, token: str) -> tuple[float, ...]:
    """Reads and posts a second, fan-out in ms, KiB a stream, seconds to the exit."""
    env = {**os.environ, "BENCH_DATA_DIR": data_dir, "PYTHONPATH": str(HERE)}
    child = subprocess.Popen(command(server, PORT), env=env, cwd=HERE)
    try:
        base = f"http://127.0.0.1:{PORT}"
        headers = {"authorization": f"Bearer {token}"}
        for _ in range(200):
            try:
                httpx.get(f"{base}/healthz", timeout=5)
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        room = httpx.post(f"{base}/v1/rooms", json={"dataClass": "internal"}, headers=headers, timeout=10).json()["id"]
        body = b'{"text":"' + b"x" * 270 + b'"}'
        noop = request("GET", "/v1/rooms?limit=1", token, b"")
        post = request("POST", f"/v1/rooms/{room}/messages", token, body)
        reads, _ = asyncio.run(run("127.0.0.1", PORT, lambda: noop, connections=32, seconds=SECONDS))
        posts, failed = asyncio.run(run("127.0.0.1", PORT, lambda: post, connections=32, seconds=SECONDS))
        assert failed == 0, f"{failed} posts failed"
        return reads, posts, *asyncio.run(fan_out(PORT, room, token, child.pid))
    finally:
        child.terminate()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def main() -> None:
    """Interleaved rounds, medians."""
    with tempfile.TemporaryDirectory() as data_dir:
        issuer = DevelopmentIssuer.open(Path(data_dir))
        token = issuer.issue(Principal("human", "bench"), groups=["agents-member"], now=time.time())
        found: dict[str, list[tuple[float, ...]]] = {"uvicorn": [], "granian": []}
        for _ in range(ROUNDS):
            for server, results in found.items():
                results.append(measure(server, data_dir, token))
        print("| server | reads /s | commands /s | POST to last of 200 viewers, ms | KiB a stream | exit, s |")
        print("|---|---|---|---|---|---|")
        for server, results in found.items():
            reads, posts, fan, each, gone = (statistics.median(column) for column in zip(*results, strict=True))
            print(f"| {server} | {reads:.0f} | {posts:.0f} | {fan:.1f} | {each:.0f} | {gone:.1f} |")


if __name__ == "__main__":
    main()
