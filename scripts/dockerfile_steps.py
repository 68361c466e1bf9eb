"""Run the steps of the Dockerfile where no container engine is at hand, and check what they leave.

Each stage gets an empty folder as its root, with a fresh virtual environment of a Python of this machine at
/usr/local in place of the base image, and an environment of nothing but what the Dockerfile sets (and what
pip needs to reach its index: PIP_*, certificates, proxies). Absolute paths in the steps mean paths below that
root, but for the system folders of this machine (/usr, /bin, /etc, ...). All stages run under the same path,
one after the other, so that what one stage copies from another finds itself where it was made, as in an
image, and nothing else.

Then it checks that the last stage holds no file that was not copied there, that its user is not root, that
the entry point answers (by default to `--version`) as that user, and that the health check passes on a server
that answers 200 and fails on 503 and on none.

What it cannot check: what is in the base image and its Python version, layers and their sizes, file owners in
the image, accounts (useradd and the like are skipped, with a note), and anything that a kernel would isolate.

Exit codes: 0 all well, 1 a step or check failed, 2 the Dockerfile holds something this script does not know.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

from dockerfile_reader import Ignore, Stage, Step, UnknownError, read_stages

SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/dev", "/proc", "/sys")
"""Paths below these are this machine's, but for /usr/local, which is the stage's."""

BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of the official Python images."""

PASSED = re.compile(
    r"PIP_\w+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY", re.IGNORECASE
)
"""Variables of the caller that the steps see: those that pip needs to reach its index."""

SKIPPED_COMMANDS = {"useradd", "groupadd", "adduser", "addgroup", "apt-get"}
ROOT_COMMANDS = {"chown"}
CHECK_TIMEOUT_S = 60
OPTION = re.compile(r"--([a-z-]+)=(\S+)")


class StepError(Exception):
    """A step or a check failed."""


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Runner:
    """Carries out the steps of one stage after the other below `place`, always at the path `place/root`."""

    def __init__(self, context: Path, place: Path, python: Path) -> None:
        self.context = context
        self.place = place
        self.python = python
        self.root = place / "root"
        self.ignore = Ignore(context / ".dockerignore")
        self.finished: dict[str, Path] = {}
        self.begin()

    def begin(self) -> None:
        """Forget the stage before."""
        self.env: dict[str, str] = {"PATH": BASE_PATH, "HOME": "/root"}
        self.user = ""
        self.workdir = "/"
        self.exposed: list[str] = []
        self.health: list[str] = []
        self.entry: list[str] = []
        self.command: list[str] = []
        self.expected: set[Path] = set()

    def run(self, stage: Stage, *, last: bool) -> None:
        """Make the stage's root and run its steps; all but the last stage are put away when done."""
        say(f"== stage {stage.name}: {self.python} stands in for {stage.image}")
        self.begin()
        self.root.mkdir()
        for folder in ("root", "tmp", "opt", "var/lib"):
            (self.root / folder).mkdir(parents=True)
        self.must([str(self.python), "-m", "venv", str(self.root / "usr/local")], env=self.environment())
        self.expected = set(self.files())
        for step in stage.steps:
            say(f"-- {step.name} {step.rest}")
            RUNNERS[step.name](self, step)
        if not last:
            self.finished[stage.name] = self.place / f"stage-{stage.name}"
            self.root.rename(self.finished[stage.name])

    def files(self) -> Iterator[Path]:
        """Every file and link below the root."""
        for folder, folders, names in os.walk(self.root):
            here = Path(folder)
            yield from (here / name for name in names)
            yield from (here / name for name in folders if (here / name).is_symlink())

    def mapped(self, path: str) -> str:
        """The path on this machine for an absolute path of the image."""
        own = path == "/usr/local" or path.startswith("/usr/local/")
        system = any(path == folder or path.startswith(folder + "/") for folder in SYSTEM_FOLDERS)
        if system and not own:
            return path
        return str(self.root) if path == "/" else f"{self.root}{path}"

    def mapped_text(self, text: str) -> str:
        """A shell command with every word that is an absolute path mapped, also after `=` and `:`."""
        return re.sub(r"(?<![^\s=:'\"])/[\w./@+-]*", lambda found: self.mapped(found.group()), text)

    def expanded(self, text: str, line: int) -> str:
        """`$NAME` and `${NAME}` replaced by what ENV has set."""

        def value(found: re.Match[str]) -> str:
            name = found.group(1) or found.group(2)
            if name not in self.env:
                raise UnknownError(f"line {line}: ${name} is not set by an ENV")
            return self.env[name]

        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value, text)

    def environment(self) -> dict[str, str]:
        passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
        paths = {name: ":".join(map(self.mapped, value.split(":"))) for name, value in self.env.items()}
        own = {name: paths[name] if value.startswith("/") else value for name, value in self.env.items()}
        return {**passed, **own}

    def must(self, argv: list[str], *, env: dict[str, str], cwd: str = "/") -> None:
        done = subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
        if done.returncode:
            raise StepError(f"ended with {done.returncode}: {shlex.join(argv)}")

    def run_as_user(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of the finished stage as its user: really so when we are root."""
        uid, gid = self.ids()
        drop = os.geteuid() == 0
        try:
            return subprocess.run(  # noqa: S603 the point of this script
                argv,
                env=self.environment(),
                cwd=self.mapped(self.workdir),
                user=uid if drop else None,
                group=gid if drop else None,
                extra_groups=[] if drop else None,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=CHECK_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            advice = f"can that user reach {self.python}? Else give another --python"
            raise StepError(f"as uid {uid}: {argv[0]} cannot be run: {error.strerror}; {advice}") from error

    def ids(self) -> tuple[int, int]:
        """The USER as numbers. Raises StepError for root, and for a name, which may be root's."""
        found = re.fullmatch(r"(\d+):(\d+)", self.user)
        if not found or found.group(1) == "0":
            raise StepError(f"the last stage must have a USER of numbers, uid:gid, not root: {self.user!r}")
        return int(found.group(1)), int(found.group(2))

    def program(self, argv: list[str]) -> list[str]:
        """`argv` with its program found on the stage's PATH, below the root only."""
        folders = [self.mapped(folder) for folder in self.env["PATH"].split(":")]
        found = shutil.which(argv[0], path=":".join(f for f in folders if f.startswith(str(self.root))))
        if found is None:
            raise StepError(f"{argv[0]} is not on the PATH of the last stage")
        return [found, *argv[1:]]


def run_env(runner: Runner, step: Step) -> None:
    """ENV NAME=value ..."""
    words = shlex.split(step.rest)
    if not all("=" in word for word in words):
        raise UnknownError(f"line {step.line}: ENV takes NAME=value here")
    # All values of one instruction see the variables as they were before it.
    pairs = [word.partition("=") for word in words]
    runner.env |= {name: runner.expanded(value, step.line) for name, _, value in pairs}


def run_workdir(runner: Runner, step: Step) -> None:
    """WORKDIR: made where it is missing."""
    runner.workdir = str(Path(runner.workdir) / runner.expanded(step.rest, step.line))
    Path(runner.mapped(runner.workdir)).mkdir(parents=True, exist_ok=True)


def run_user(runner: Runner, step: Step) -> None:
    """USER, which counts for the checks; RUN steps after it are not known here."""
    runner.user = step.rest


def run_run(runner: Runner, step: Step) -> None:
    """RUN in shell form; accounts and system packages are skipped, ownership is too when we are not root."""
    if step.rest.startswith(("[", "--")):
        raise UnknownError(f"line {step.line}: RUN takes a shell command without options here")
    if runner.user:
        raise UnknownError(f"line {step.line}: RUN after USER")
    for part in re.split(r"\s+&&\s+", re.sub(r"\s+", " ", step.rest)):
        word = part.split()[0]
        if word in SKIPPED_COMMANDS or (word in ROOT_COMMANDS and os.geteuid() != 0):
            if re.search(r"[;|&]", part):
                raise UnknownError(f"line {step.line}: {word} cannot be skipped with others in one command")
            say(f"   note: skipped, since a folder is no image: {part}")
            continue
        runner.must(
            ["/bin/sh", "-ec", runner.mapped_text(part)],
            env=runner.environment(),
            cwd=runner.mapped(runner.workdir),
        )


def run_copy(runner: Runner, step: Step) -> None:
    """COPY [--from=stage] source... target."""
    words = step.rest.split()
    options = {found[1]: found[2] for word in words if (found := OPTION.fullmatch(word))}
    paths = [word for word in words if not word.startswith("--")]
    if set(options) - {"from"} or len(options) + len(paths) != len(words) or len(paths) < 2:
        raise UnknownError(f"line {step.line}: COPY takes --from, sources and a target here")
    origin = options.get("from")
    if origin is not None and origin not in runner.finished:
        raise UnknownError(f"line {step.line}: there is no stage {origin} before this one")
    base = runner.finished[origin] if origin else runner.context
    *sources, target = paths
    into = Path(runner.mapped(str(Path(runner.workdir) / target)))
    as_folder = target.endswith(("/", ".")) or len(sources) > 1
    for source in sources:
        found = base / source.lstrip("/")
        if not found.exists():
            raise StepError(f"line {step.line}: there is no {source} to copy")
        for path in (found, *sorted(found.rglob("*"))) if found.is_dir() else (found,):
            if origin is None and path != base and runner.ignore.drops(path.relative_to(base)):
                continue
            if path.is_dir() and not path.is_symlink():
                continue
            inside = path.relative_to(found) if found.is_dir() else Path(found.name if as_folder else "")
            _copy_one(runner, path, into / inside)


def _copy_one(runner: Runner, path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, to, follow_symlinks=False)
    runner.expected.add(to)


def run_healthcheck(runner: Runner, step: Step) -> None:
    """HEALTHCHECK [--options] CMD [...]"""
    options, _, command = step.rest.partition("CMD")
    if not all(OPTION.fullmatch(word) for word in options.split()):
        raise UnknownError(f"line {step.line}: HEALTHCHECK takes --name=value options and CMD here")
    runner.health = _exec_form(command, step)


def run_entrypoint(runner: Runner, step: Step) -> None:
    """ENTRYPOINT [...]"""
    runner.entry = _exec_form(step.rest, step)


def run_cmd(runner: Runner, step: Step) -> None:
    """CMD [...]"""
    runner.command = _exec_form(step.rest, step)


def run_expose(runner: Runner, step: Step) -> None:
    """EXPOSE port..."""
    runner.exposed = step.rest.split()


def _exec_form(text: str, step: Step) -> list[str]:
    with contextlib.suppress(json.JSONDecodeError):
        words: Any = json.loads(text)
        if isinstance(words, list) and words:
            found = [word for word in cast("list[Any]", words) if isinstance(word, str)]
            if len(found) == len(cast("list[Any]", words)):
                return found
    raise UnknownError(f"line {step.line}: {step.name} takes a JSON list of strings here")


RUNNERS = {
    "COPY": run_copy,
    "RUN": run_run,
    "ENV": run_env,
    "USER": run_user,
    "WORKDIR": run_workdir,
    "HEALTHCHECK": run_healthcheck,
    "EXPOSE": run_expose,
    "ENTRYPOINT": run_entrypoint,
    "CMD": run_cmd,
}


def check_files(runner: Runner) -> None:
    """The last stage holds the base, what was copied, and nothing else."""
    extra = sorted(str(path.relative_to(runner.root)) for path in set(runner.files()) - runner.expected)
    if extra:
        raise StepError("files that no COPY brought: " + ", ".join(extra[:20]))
    say(f"ok: {len(runner.expected)} files, all of the base or copied")


def check_entry(runner: Runner, arguments: list[str], expected: str) -> None:
    """The entry point answers as the stage's user."""
    if not runner.entry or not runner.command:
        raise StepError("the last stage must have an ENTRYPOINT and a CMD")
    done = runner.run_as_user([*runner.program(runner.entry), *arguments])
    if done.returncode or expected not in done.stdout:
        said = (done.stdout + done.stderr).strip()
        raise StepError(f"{runner.entry[0]} {shlex.join(arguments)} ended with {done.returncode}: {said}")
    say(f"ok: {runner.entry[0]} {shlex.join(arguments)}: {done.stdout.strip()}")


def check_health(runner: Runner) -> None:
    """The health check tells a server that answers 200 from one that answers 503 and from none."""
    port = int(runner.exposed[0]) if len(runner.exposed) == 1 and runner.exposed[0].isdigit() else 0
    if not runner.health or not port:
        raise StepError("the last stage must have a HEALTHCHECK and one EXPOSE port")
    command = runner.program(runner.health)
    for status in (None, 503, 200):
        try:
            with _answering(status, port):
                passed = runner.run_as_user(command).returncode == 0
        except OSError as error:
            say(f"   note: health check not tried, since port {port} is taken here ({error.strerror})")
            return
        if passed != (status == 200):
            raise StepError(f"the health check {'passes' if passed else 'fails'} on {status or 'no server'}")
    say("ok: the health check passes on 200, and fails on 503 and on no server")


@contextlib.contextmanager
def _answering(status: int | None, port: int) -> Generator[None]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status or 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base class's name
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if status is None:
        server.server_close()
        yield
        return
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run_all(arguments: argparse.Namespace, place: Path) -> None:
    """Run every stage below `place`, then the checks."""
    context: Path = arguments.context.resolve()
    file: Path = arguments.file or context / "Dockerfile"
    stages = read_stages(file.read_text())
    runner = Runner(context, place, arguments.python)
    for stage in stages:
        runner.run(stage, last=stage is stages[-1])
    say("== checks")
    if os.geteuid() != 0:
        say("   note: not root, so the checks run as the present user")
    check_files(runner)
    uid, _ = runner.ids()
    say(f"ok: the user is uid {uid}")
    check_entry(runner, shlex.split(arguments.check), arguments.expect)
    check_health(runner)


def main() -> int:
    """Parse the command line, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    here = Path(__file__).parent.parent
    parser.add_argument("--context", type=Path, default=here, help="the build's folder")
    parser.add_argument("--file", type=Path, help="default: Dockerfile in the context")
    python = Path(sys.executable)
    parser.add_argument("--python", type=Path, default=python, help="stands in for the base image")
    parser.add_argument("--check", default="--version", help="arguments for the entry point")
    parser.add_argument("--expect", default="", help="text that its answer must hold")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the stages for a look")
    arguments = parser.parse_args()
    os.umask(0o022)
    place = Path(tempfile.mkdtemp(prefix="dockerfile-steps-")).resolve()
    place.chmod(0o755)
    try:
        run_all(arguments, place)
    except (UnknownError, StepError) as error:
        say(f"{'unknown' if isinstance(error, UnknownError) else 'FAILED'}: {error}")
        return 2 if isinstance(error, UnknownError) else 1
    finally:
        if arguments.keep:
            say(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
