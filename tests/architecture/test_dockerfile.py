"""The Dockerfile's steps, run in a clean environment where no container engine is at hand."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tree import ROOT, tracked


@pytest.mark.timeout(600)
def test_its_steps_leave_a_server_that_answers(tmp_path: Path) -> None:
    """Needs the package index. The script's own checks are in its docstring: files, user, entry point, health check."""
    interpreter = Path(sys.executable).resolve()
    if any(not folder.stat().st_mode & stat.S_IXOTH for folder in interpreter.parents):
        pytest.skip("the steps run as another user, who may not enter the folder of this interpreter")
    context = tmp_path / "context"
    for name in tracked():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)
    script = ROOT / "scripts" / "dockerfile_steps.py"
    command = [sys.executable, str(script), "--context", str(context), "--expect", "minutebook"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
