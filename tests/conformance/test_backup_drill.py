"""The drill of docs/backup.md, command by command: what the page shows is what comes out."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import free_port

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"
SECONDS_MAX = 60
READY = re.compile(r"ready on|Ctrl-C")
STRAYS = re.compile(r"\d+ partitions? would become -stray, of [^.]+\.")
LOSS = re.compile(r"--override (ottla\.metadata\.accepted\.loss=\d+-\d+)")

pytestmark = pytest.mark.needs_ottla


def steps() -> Iterator[tuple[str, str]]:
    """The commands of the drill, each with what the page shows below it."""
    section = PAGE.read_text().partition("## The drill")[2]
    for block in re.findall(r"^```console\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        for piece in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = piece.partition("\n")
            yield command, shown


class Drill:
    """A folder with `ottla up` in one terminal and a shell in another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "bin").mkdir()
        (folder / "bin" / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla.cli.main "$@"\n')
        (folder / "bin" / "ottla").chmod(0o755)
        address = f"127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "OTTLA_BOOTSTRAP_SERVER": address,
            "PYTHONUNBUFFERED": "1",
        }
        self.up: subprocess.Popen[str] | None = None
        self.output: list[str] = []

    def start(self, command: str) -> None:
        """`ottla up` as the page has it, on a port of its own; on return it serves, or has ended."""
        self.stop()
        more = f"--port {self.port} --no-console --no-registry"
        self.up = subprocess.Popen(
            ["bash", "-c", f"exec {command} {more}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = []
        is_settled = threading.Event()
        threading.Thread(target=self._read, args=(self.up, self.output, is_settled)).start()
        assert is_settled.wait(SECONDS_MAX), self.output

    @staticmethod
    def _read(up: subprocess.Popen[str], output: list[str], is_settled: threading.Event) -> None:
        assert up.stdout is not None
        for line in up.stdout:
            output.append(line)
            if READY.search(line):
                is_settled.set()
        is_settled.set()

    def stop(self) -> None:
        if self.up is not None:
            if self.up.poll() is None:
                self.up.send_signal(signal.SIGINT)
            self.up.wait(SECONDS_MAX)
            self.up = None

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    made = Drill(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def test_the_drill_of_the_page(drill: Drill) -> None:
    drill.start("ottla up")
    option = ""
    refusals = 0
    for command, shown in steps():
        if command.startswith(("tar", "mkdir")):
            drill.stop()
        if not command.startswith("ottla up"):
            told = drill.run(command)
            assert not shown or told == shown, command
            continue
        drill.start(LOSS.sub(f"--override {option}", command))
        is_refused = "older than the log directories" in shown
        assert drill.up is not None
        text = "".join(drill.output)
        if is_refused:
            refusals += 1
            assert drill.up.wait(SECONDS_MAX) != 0
            strays = STRAYS.search(shown)
            assert strays is not None
            assert strays[0] in text
            match = LOSS.search(text)
            assert match is not None
            option = match[1]
        else:
            assert drill.up.poll() is None, text
    assert refusals == 1
