"""The README's first room, run as it stands there against a real server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from live_server import LiveServer
from tree import ROOT

MARK = "<!-- run by tests/architecture/test_readme.py -->\n"
DEFAULT_URL = "URL=http://127.0.0.1:8080\n"


def lines() -> str:
    """The block behind the mark."""
    after = (ROOT / "README.md").read_text("utf-8").partition(MARK)[2]
    found = re.match(r"```sh\n(.*?)```", after, re.DOTALL)
    assert found is not None, "the README has no marked block"
    return found[1]


def test_it_is_five_lines_of_curl() -> None:
    calls = [line for line in lines().splitlines() if "curl " in line]
    assert len(calls) == 5
    assert len(lines().split("\n\n")[1].splitlines()) == 5


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_first_room(tmp_path: Path) -> None:
    script = lines()
    assert script.startswith(DEFAULT_URL)
    with LiveServer(tmp_path / "data") as server:
        # The follower's frames go to a file of their own: two writers of one pipe would mix their lines.
        script = script.replace(DEFAULT_URL, f"URL={server.url}\n").replace('-H "$AUTH" &', '-H "$AUTH" > followed &')
        script += "\nwait\n"
        env = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")}
        env |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "MINUTEBOOK_DATA_DIR": str(server.data_dir),
            "no_proxy": "*",
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    said = done.stdout + (tmp_path / "followed").read_text("utf-8")
    assert done.returncode == 0, said + done.stderr
    assert re.findall(r"^id: (\d+)$", said, re.MULTILINE) == ["1", "2", "3"], (
        "the follower saw each event once, in order"
    )
    assert 'event: closed\ndata: {"reason":"room_closed"}\n' in said
    answers = [msgspec.json.decode(line, type=dict[str, Any]) for line in said.splitlines() if line.startswith("{")]
    assert [answer["seq"] for answer in answers if "chain" in answer] == [2, 3]
    (read,) = (answer for answer in answers if "events" in answer)
    assert read["lastSeq"] == 2
    assert [event["payload"].get("text") for event in read["events"]] == [None, "Hello, room"]
